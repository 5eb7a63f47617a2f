#include "transport/routes.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <string_view>

#include <tutti/error.hpp>

#include "common/text.h"

namespace tutti {
namespace {

// The cheapest link is the one that takes the least time for a message of this size. Below it the
// latency decides, above it the rate; a transport that is better at both ends is better here.
constexpr std::int64_t kPricedBytes = 16 << 10;

using Places = std::vector<std::optional<std::string>>;

Places parse_offers(std::string_view text, const std::vector<TransportEntry>& transports) {
  Places places(transports.size());
  while (!text.empty()) {
    const std::size_t end = text.find('\n'), blank = text.find(' ');
    if (end == std::string_view::npos || blank >= end)
      throw Error(ErrorKind::corrupt,
                  fmt::format("a rank says that it offers {}, which cannot be read: is it running "
                              "the same build of tutti?",
                              shown(text)));
    for (std::size_t transport = 0; transport < transports.size(); ++transport)
      if (transports[transport].name == text.substr(0, blank))
        places[transport] = text.substr(blank + 1, end - blank - 1);
    text.remove_prefix(end + 1);
  }
  return places;
}

std::pair<int, int> ordered(int rank, int peer) { return std::minmax(rank, peer); }

}  // namespace

std::string offers_text(const RouteCandidates& candidates, const TransportContext& context) {
  std::string text;
  for (const TransportEntry& transport : candidates.transports) {
    const std::optional<std::string> place = transport.place(context);
    if (!place) continue;
    assert(place->find('\n') == std::string::npos);
    text += fmt::format("{} {}\n", transport.name, *place);
  }
  return text;
}

RouteTable::RouteTable(RouteCandidates candidates, const Texts& offers)
    : candidates_(std::move(candidates)), offers_(offers) {
  for (const std::string& text : offers_.values())
    places_.push_back(parse_offers(text, transports()));
  assert(places_.size() == offers_.values().size());
}

std::size_t RouteTable::place_of(int rank) const {
  assert(rank >= 0 && static_cast<std::size_t>(rank) < offers_.size());
  const auto& runs = offers_.runs();
  const auto run = std::upper_bound(
      runs.begin(), runs.end(), static_cast<std::uint32_t>(rank),
      [](std::uint32_t wanted, const Texts::Run& candidate) { return wanted < candidate.end; });
  assert(run != runs.end() && run->value < places_.size());
  return run->value;
}

bool RouteTable::has_failed(int rank, int peer, std::size_t transport) const {
  assert(transport < transports().size());
  if (failures_.none()) return false;
  return failures_.ranks.contains({rank, transport}) ||
         failures_.ranks.contains({peer, transport}) ||
         failures_.connections.contains({ordered(rank, peer), transport});
}

// Returns the links between two places, the preferred one first.
std::vector<RouteTable::Link> RouteTable::links_between(std::size_t place,
                                                        std::size_t other) const {
  assert(place < places_.size() && other < places_.size());
  std::vector<Link> links;
  for (std::size_t transport = 0; transport < transports().size(); ++transport) {
    const auto &here = places_[place][transport], &there = places_[other][transport];
    if (!here || !there) continue;
    const Reach reach = transports()[transport].reach(*here, *there);
    if (reach.why_not.empty()) links.push_back({transport, reach.can});
  }
  if (candidates_.by_cost)
    std::stable_sort(links.begin(), links.end(), [](const Link& a, const Link& b) {
      return message_time(a.can, kPricedBytes) < message_time(b.can, kPricedBytes);
    });
  return links;
}

RouteTable::Link RouteTable::link(int rank, int peer, MemoryKind kind) const {
  for (const Link& link : links_between(place_of(rank), place_of(peer)))
    if (link.can.memory.has(kind) && !has_failed(rank, peer, link.transport)) return link;
  refuse(rank, peer);
}

std::string RouteTable::why_unconnected(int rank, int peer, std::size_t transport) const {
  const auto failed = failures_.connections.find({ordered(rank, peer), transport});
  assert(failed != failures_.connections.end());
  const std::string& why = failed->second;
  return "it did not connect them" + (why.empty() ? "" : ": " + why);
}

std::string RouteTable::why_not(int rank, int peer, std::size_t transport) const {
  const auto& one = places_[place_of(rank)][transport];
  const auto& other = places_[place_of(peer)][transport];
  const auto not_made = [&](int of) { return failures_.ranks.find({of, transport}); };
  if (!one || !other) return fmt::format("rank {} cannot use it", one ? peer : rank);
  if (const auto here = not_made(rank); here != failures_.ranks.end())
    return fmt::format("rank {}: {}", rank, here->second);
  if (const auto there = not_made(peer); there != failures_.ranks.end())
    return fmt::format("rank {}: {}", peer, there->second);
  if (has_failed(rank, peer, transport)) return why_unconnected(rank, peer, transport);
  return transports()[transport].reach(*one, *other).why_not;
}

void RouteTable::refuse(int rank, int peer) const {
  std::string reasons;
  for (std::size_t transport = 0; transport < transports().size(); ++transport)
    reasons +=
        fmt::format("\n  {}: {}", transports()[transport].name, why_not(rank, peer, transport));
  const std::string what = rank == peer
                               ? fmt::format("no transport can be used by rank {}", rank)
                               : fmt::format("no transport joins rank {} and rank {}", rank, peer);
  throw Error(
      ErrorKind::unavailable,
      fmt::format("{}; add one that does to TUTTI_TRANSPORTS, or leave it out:{}", what, reasons));
}

std::vector<RouteTable::Link> RouteTable::at_place_of(int rank) const {
  return links_between(place_of(rank), place_of(rank));
}

// Calls use(rank, peer) for all pairs of ranks. Where nothing has failed, all ranks at one place
// are alike, so that it calls it for only one pair of ranks for each pair of places.
template <typename Use>
void RouteTable::for_each_pair(Use&& use) const {
  assert(offers_.size() >= 1);
  if (offers_.size() == 1) return use(0, 0);  // A single rank uses what it would use with another.
  if (!failures_.none()) {
    const auto ranks = static_cast<int>(offers_.size());
    for (int rank = 0; rank < ranks; ++rank)
      for (int peer = rank + 1; peer < ranks; ++peer) use(rank, peer);
    return;
  }
  std::vector<std::vector<int>> ranks(places_.size());  // the first two ranks at each place
  int first = 0;
  for (const Texts::Run& run : offers_.runs()) {
    const auto end = static_cast<int>(run.end);
    for (int rank = first; rank < end && ranks[run.value].size() < 2; ++rank)
      ranks[run.value].push_back(rank);
    first = end;
  }
  for (std::size_t one = 0; one < ranks.size(); ++one) {
    if (ranks[one].size() == 2) use(ranks[one][0], ranks[one][1]);
    for (std::size_t other = one + 1; other < ranks.size(); ++other)
      use(ranks[one][0], ranks[other][0]);
  }
}

RouteTable::Summary RouteTable::summary() const {
  Summary all;
  bool first = true;
  for_each_pair([&](int rank, int peer) {
    const Link used = link(rank, peer);
    all.only = first || all.only == used.transport ? std::optional(used.transport) : std::nullopt;
    first = false;
    all.may_fail = all.may_fail || used.can.may_fail;
    all.rings = all.rings && used.can.rings;
    all.largest_message = std::min(all.largest_message, used.can.largest_message);
  });
  assert(!first && "every communicator has a pair of ranks, or a single rank");
  return all;
}

void RouteTable::cannot_make(int rank, std::size_t transport, std::string why) {
  assert(rank >= 0 && transport < transports().size());
  reports_.ranks.emplace(std::pair(rank, transport), std::move(why));
}

void RouteTable::cannot_connect(int rank, int peer, std::string why) {
  assert(rank != peer);
  std::string& known = reports_.connections[{ordered(rank, peer), link(rank, peer).transport}];
  if (known.empty() && !why.empty()) known = fmt::format("rank {}: {}", rank, why);
}

bool RouteTable::apply_reports() {
  if (reports_.none()) return false;
  failures_.ranks.merge(reports_.ranks);
  failures_.connections.merge(reports_.connections);
  reports_ = {};
  return true;
}

}  // namespace tutti
