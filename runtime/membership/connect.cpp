#include "runtime/membership/connect.h"

#include <algorithm>
#include <cassert>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include <tutti/error.hpp>

#include "common/text.h"
#include "rendezvous/agreement.h"
#include "transport/routed.h"
#include "transport/status_page.h"

namespace tutti {
namespace {

// A rank's text about a transport in the exchange of addresses begins with one of these characters.
// There is no text for a transport in which the rank does not take part.
constexpr char kMadePart = '+';  // the address follows
constexpr char kNoUse = '-';     // it could not be made; the reason follows
static_assert(kMadePart != kNoUse);
// It stands between the peers to which a rank has no connection, and why.
constexpr char kWhy = ';';
constexpr std::size_t kMostWhyBytes = 500;

// Logs why transports do not join this rank and the first of the others.
void log_unused(const RouteTable& table, const TransportContext& context) {
  if (context.log == nullptr || context.size == 1) return;
  const int peer = context.rank == 0 ? 1 : 0;
  for (std::size_t transport = 0; transport < table.transports().size(); ++transport)
    if (const std::string why = table.why_not(context.rank, peer, transport); !why.empty())
      context.log->write(LogLevel::info, "rank {}: {} does not join it and rank {}: {}",
                         context.rank, table.transports()[transport].name, peer, why);
}

/// One rank's part in connecting ranks that use different transports, or not the one that they made
/// ahead. All ranks go through the same rounds: they publish the addresses of the transports that
/// they need, and connect. If a transport could not be made or a connection failed, all ranks learn
/// it, and the pairs concerned try their next transport in the next round.
class Rounds {
 public:
  Rounds(RouteTable table, const TransportContext& context, Store& store, std::string_view prefix,
         TimePoint deadline, KeptConnections kept)
      : table_(std::move(table)),
        context_(context),
        store_(store),
        prefix_(prefix),
        deadline_(deadline),
        page_(std::move(kept.page)),
        part_of_(static_cast<std::size_t>(context.size)) {
    assert(context.rank >= 0 && context.rank < context.size);
    if (kept.transport == nullptr) return;
    parts_.push_back(std::move(kept.transport));
    for (int peer = 0; peer < context.size; ++peer)
      if (peer != context.rank && kept.peers[index(peer)]) part_of_[index(peer)] = 0;
  }

  Connecting::Outcome run();

 private:
  struct Part {
    std::size_t transport;
    bool rings = false, may_fail = false;  // of the links of this rank that use it
    std::unique_ptr<Transport> made = nullptr;
    std::string refusal = {};  // why it could not be made
  };

  bool is_connected(int peer) const { return part_of_[index(peer)].has_value(); }
  static std::size_t index(int rank) { return static_cast<std::size_t>(rank); }
  template <typename Use>
  void for_each_missing(Use&& use) const;

  std::vector<Part> needed() const;
  ShownPage shown_page(bool may_fail);
  std::vector<bool> elsewhere(std::size_t transport) const;
  void make();
  bool exchange_addresses();
  void connect();
  void connect(Part& part);
  void fail(int peer, std::string why);
  bool exchange_failures();
  void log_routes() const;
  std::vector<Texts> exchange_texts(std::string_view what, const std::vector<std::string>& mine);

  RouteTable table_;
  const TransportContext& context_;
  Store& store_;
  const std::string_view prefix_;
  const TimePoint deadline_;
  std::shared_ptr<OwnPage> page_;                    // made if no transport is sure to stay
  std::vector<std::unique_ptr<Transport>> parts_;    // those that are connected
  std::vector<std::optional<std::size_t>> part_of_;  // index in parts_, for each peer
  std::vector<Part> made_;                           // those of this round
  std::vector<Texts> addresses_;                     // those of this round, indexed by transport
  std::vector<int> failed_;  // peers to which a connection failed in this round
  std::string why_failed_;   // that to the first of them
  int exchanges_ = 0;
};

template <typename Use>
void Rounds::for_each_missing(Use&& use) const {
  for (int peer = 0; peer < context_.size; ++peer)
    if (peer != context_.rank && !is_connected(peer)) use(peer, table_.link(context_.rank, peer));
}

// The transports of peers that are not connected yet. Those with rings come first, since they make
// the status page that the others show; then those that cannot fail.
std::vector<Rounds::Part> Rounds::needed() const {
  std::vector<Part> parts;
  const auto need = [&](const RouteTable::Link& link) {
    auto part = std::find_if(parts.begin(), parts.end(),
                             [&](const Part& known) { return known.transport == link.transport; });
    if (part == parts.end()) part = parts.insert(part, Part{link.transport});
    part->rings = part->rings || link.can.rings;
    part->may_fail = part->may_fail || link.can.may_fail;
  };
  for_each_missing([&](int, const RouteTable::Link& link) { need(link); });
  if (context_.size == 1) need(table_.link(0, 0));
  std::sort(parts.begin(), parts.end(), [](const Part& a, const Part& b) {
    return std::tuple(!a.rings, a.may_fail, a.transport) <
           std::tuple(!b.rings, b.may_fail, b.transport);
  });
  return parts;
}

// Returns the status page that the next transport shows, which is null if it makes its own.
ShownPage Rounds::shown_page(bool may_fail) {
  if (page_ != nullptr) return shown(page_);
  if (!parts_.empty()) return page_of_another(parts_.front()->own_status_page());
  for (const Part& part : made_)
    if (part.made != nullptr) return page_of_another(part.made->own_status_page());
  if (may_fail) page_ = std::make_shared<OwnPage>(false);
  return page_ != nullptr ? shown(page_) : ShownPage();
}

// Returns, by rank, which peers a transport of this round does not connect to.
std::vector<bool> Rounds::elsewhere(std::size_t transport) const {
  std::vector<bool> peers(part_of_.size(), true);
  peers[index(context_.rank)] = false;
  for_each_missing([&](int peer, const RouteTable::Link& link) {
    if (link.transport == transport) peers[index(peer)] = false;
  });
  return peers;
}

// The peers of a transport with rings map the status page. Where another transport already shows
// one to connected peers that they cannot map, it comes too late.
void Rounds::make() {
  made_.clear();
  if (parts_.empty()) page_.reset();  // Nobody has seen it.
  made_ = needed();
  const bool shown = page_ != nullptr ? !page_->is_shared() : !parts_.empty();
  for (Part& part : made_) {
    if (part.rings && shown) {
      part.refusal = fmt::format(
          "rank {} is connected to others already; TUTTI_TRANSPORTS should "
          "name {} first",
          context_.rank, table_.transports()[part.transport].name);
      continue;
    }
    TransportContext context = context_;
    context.status_page = shown_page(part.may_fail);
    context.elsewhere = elsewhere(part.transport);
    try {
      part.made = table_.transports()[part.transport].make(context);
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::unavailable) throw;
      part.refusal = error.what();
    }
  }
}

std::vector<Texts> Rounds::exchange_texts(std::string_view what,
                                          const std::vector<std::string>& mine) {
  return exchange(store_, fmt::format("{}/{}/{}", prefix_, what, exchanges_++), context_.rank,
                  context_.size, mine, deadline_);
}

// Returns false if a rank could not make a transport that it needs.
bool Rounds::exchange_addresses() {
  std::vector<std::string> mine(table_.transports().size());
  for (const Part& part : made_)
    mine[part.transport] =
        part.made != nullptr ? kMadePart + part.made->address() : kNoUse + part.refusal;
  addresses_ = exchange_texts("addresses", mine);
  for (std::size_t transport = 0; transport < addresses_.size(); ++transport) {
    int first = 0;
    for (const Texts::Run& run : addresses_[transport].runs()) {
      const std::string& text = addresses_[transport].values()[run.value];
      for (int rank = first; text.starts_with(kNoUse) && rank < static_cast<int>(run.end); ++rank)
        table_.cannot_make(rank, transport, text.substr(1));
      first = static_cast<int>(run.end);
    }
  }
  return !table_.apply_reports();
}

void Rounds::connect(Part& part) {
  assert(part.made != nullptr && part.refusal.empty());
  std::vector<std::string> addresses(part_of_.size());
  for (std::size_t rank = 0; rank < addresses.size(); ++rank)
    if (const std::string& text = addresses_[part.transport][rank]; text.starts_with(kMadePart))
      addresses[rank] = text.substr(1);
  std::vector<int> peers;
  for_each_missing([&](int peer, const RouteTable::Link& link) {
    if (link.transport == part.transport) peers.push_back(peer);
  });
  try {
    part.made->connect(addresses, deadline_);
  } catch (const Error& error) {
    if (!part.may_fail || error.kind() != ErrorKind::unavailable) throw;
    if (context_.log != nullptr)
      context_.log->write(LogLevel::info, "rank {}: {} is not used: {}", context_.rank,
                          table_.transports()[part.transport].name, error.what());
    for (const int peer : peers) fail(peer, error.what());
    part.made.reset();
    return;
  }
  bool joins = peers.empty();  // Then this rank is alone.
  for (const int peer : peers) {
    assert(peer != context_.rank && !is_connected(peer));
    const std::string why = part.made->why_unconnected(peer);
    joins = joins || why.empty();
    if (why.empty())
      part_of_[index(peer)] = parts_.size();
    else
      fail(peer, why);
  }
  if (joins)
    parts_.push_back(std::move(part.made));
  else
    part.made.reset();
}

// The first one is told why to all, so that those that end for it can say so.
void Rounds::fail(int peer, std::string why) {
  if (failed_.empty() || peer < failed_.front()) {
    failed_.insert(failed_.begin(), peer);
    why_failed_ = std::move(why);
  } else {
    failed_.push_back(peer);
  }
}

void Rounds::connect() {
  failed_.clear();
  for (Part& part : made_) connect(part);
}

// Returns false if two ranks could not connect: one of the two reports it, and both use another
// link. A report is the peers, and behind them why there is no connection to the first.
bool Rounds::exchange_failures() {
  std::vector<std::string> mine;
  for (const int peer : failed_) mine.push_back(std::to_string(peer));
  std::string report = join(mine, ",");
  if (!failed_.empty()) report += kWhy + why_failed_.substr(0, kMostWhyBytes);
  const Texts said = exchange_texts("failures", {report})[0];
  for (int rank = 0; rank < context_.size; ++rank) {
    std::string_view rest = said[index(rank)];
    const std::size_t end = std::min(rest.find(kWhy), rest.size());
    std::string_view why = rest.substr(std::min(end + 1, rest.size()));
    rest = rest.substr(0, end);
    while (!rest.empty()) {
      const auto peer = parse_number<int>(rest.substr(0, rest.find(',')));
      if (!peer || *peer < 0 || *peer >= context_.size || *peer == rank)
        throw Error(ErrorKind::corrupt,
                    fmt::format("rank {} says that it did not connect to {}, which cannot be read",
                                rank, shown(rest)));
      table_.cannot_connect(rank, *peer, std::string(std::exchange(why, {})));
      if (*peer == context_.rank) part_of_[index(rank)].reset();
      rest.remove_prefix(std::min(rest.find(','), rest.size() - 1) + 1);
    }
  }
  return !table_.apply_reports();
}

void Rounds::log_routes() const {
  if (context_.log == nullptr) return;
  std::vector<int> peers(table_.transports().size());
  for (int peer = 0; peer < context_.size; ++peer)
    if (peer != context_.rank) ++peers[table_.link(context_.rank, peer).transport];
  std::vector<std::string> ways;
  for (std::size_t transport = 0; transport < peers.size(); ++transport)
    if (peers[transport] > 0)
      ways.push_back(
          fmt::format("{} by {}", peers[transport], table_.transports()[transport].name));
  context_.log->write(LogLevel::info, "rank {} of {} reaches {} of the others", context_.rank,
                      context_.size, join(ways, ", "));
}

Connecting::Outcome Rounds::run() {
  for (bool connected = false; !connected;) {
    // Throws on all ranks if a pair of ranks has no link.
    const bool may_fail = table_.summary().may_fail;
    make();
    if (!exchange_addresses()) continue;
    connect();
    connected = !may_fail || exchange_failures();
  }
  log_unused(table_, context_);
  log_routes();
  Connecting::Outcome outcome{nullptr, table_.summary()};
  assert(!parts_.empty());
  if (parts_.size() == 1 && page_ == nullptr) {
    outcome.transport = std::move(parts_.front());
    return outcome;
  }
  assert(std::count(part_of_.begin(), part_of_.end(), std::nullopt) == 1 &&
         !is_connected(context_.rank) && "all peers are connected");
  std::vector<std::size_t> parts;
  for (const auto& part : part_of_) parts.push_back(part.value_or(0));
  outcome.transport = route(std::move(parts_), std::move(parts), std::move(page_));
  return outcome;
}

// Precedes the address of a transport that was made ahead.
std::string made_ahead_text(const TransportEntry& transport) {
  return fmt::format("{}\n", transport.name);
}

// Returns the addresses of all ranks without the prefix of each; empty if no rank has an address.
std::vector<std::string> addresses_behind(const std::string& prefix, const Texts& column) {
  std::vector<std::string> addresses;
  if (column.values().size() == 1 && column[0] == prefix) return addresses;
  addresses.reserve(column.size());
  for (const Texts::Run& run : column.runs())
    addresses.resize(run.end, column.values()[run.value].substr(prefix.size()));
  return addresses;
}

// Returns a transport that reaches the peers of `kept` by what is kept, and the others by `made`.
std::unique_ptr<Transport> beside(KeptConnections kept, std::unique_ptr<Transport> made, int rank) {
  if (kept.transport == nullptr) return made;
  std::vector<std::size_t> part_of;
  for (const bool keeps : kept.peers) part_of.push_back(keeps ? 0 : 1);
  part_of[static_cast<std::size_t>(rank)] = 0;
  std::vector<std::unique_ptr<Transport>> parts;
  parts.push_back(std::move(kept.transport));
  parts.push_back(std::move(made));
  return route(std::move(parts), std::move(part_of), std::move(kept.page));
}

}  // namespace

Connecting::Connecting(RouteCandidates candidates, const TransportContext& context)
    : candidates_(std::move(candidates)),
      offers_(offers_text(candidates_, context)),
      address_(fmt::format("{:016x}", context.random->next())) {
  const bool keeps = !context.elsewhere.empty();
  std::string refusal;
  for (const RouteTable::Link& link : RouteTable(candidates_, Texts(offers_)).at_place_of(0)) {
    if (link.can.may_fail) return;  // It may take a quarter of a second, and the rounds make it.
    const TransportEntry& best = candidates_.transports[link.transport];
    try {
      transport_ = best.make(context);
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::unavailable) throw;
      refusal = error.what();  // the rounds report it
      continue;
    }
    address_ = made_ahead_text(best) + transport_->address();
    return;
  }
  // In the rounds the newcomers would read that their transports do not reach this rank, and give
  // up, as at a start.
  if (keeps && !refusal.empty()) throw Error(ErrorKind::unavailable, refusal);
}

Connecting::Outcome Connecting::connect(const Texts& offers, const Texts& addresses,
                                        const TransportContext& agreed, bool as_expected,
                                        Store& store, std::string_view prefix, TimePoint deadline,
                                        KeptConnections kept) {
  RouteTable table(std::move(candidates_), offers);
  const RouteTable::Summary links = table.summary();
  if (as_expected && links.only && !links.may_fail) {
    const std::string made = made_ahead_text(table.transports()[*links.only]);
    const auto all = [&](const std::string& text) { return text.starts_with(made); };
    if (transport_ != nullptr &&
        std::all_of(addresses.values().begin(), addresses.values().end(), all)) {
      transport_->connect(addresses_behind(made, addresses), deadline);
      log_unused(table, agreed);
      return {beside(std::move(kept), std::move(transport_), agreed.rank), links};
    }
  }
  transport_.reset();
  return Rounds(std::move(table), agreed, store, prefix, deadline, std::move(kept)).run();
}

}  // namespace tutti
