#include "runtime/membership/kept_connections.h"

#include <algorithm>
#include <cassert>
#include <chrono>
#include <string>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include <tutti/error.hpp>

#include "common/bytes.h"
#include "common/text.h"
#include "rendezvous/agreement.h"
#include "runtime/membership/pauses.h"
#include "runtime/membership/setup.h"
#include "runtime/membership/split.h"

namespace tutti {
namespace {

using std::chrono::steady_clock;

// The text that a member tells the others begins with one of these characters, and its SplitCard
// follows.
constexpr char kKeeps = '+', kConnectsAnew = '-';

// Returns how many ranks share this rank's machine once the ranks that are not members have gone.
int machine_ranks_left(const CommunicatorParts& whole, const Regrouped& members) {
  const auto on_own_machine = [&](int rank) {
    return whole.machines.empty() || whole.machines[static_cast<std::size_t>(rank)] ==
                                         whole.machines[static_cast<std::size_t>(whole.rank)];
  };
  int left = whole.machine_ranks;
  for (int rank = 0; rank < whole.size; ++rank)
    if (!members.includes(rank) && on_own_machine(rank)) --left;
  assert(left >= 1);
  return left;
}

// Takes the cards of all members. Returns false where any of them connects anew.
bool take_cards(Splitting& splitting, const Regrouped& members, const Texts& said) {
  bool all_keep = true;
  for (std::size_t i = 0; i < members.members.size(); ++i) {
    const std::string& text = said[i];
    const auto card =
        fixed_part<SplitCard>(std::string_view(text).substr(std::min<std::size_t>(1, text.size())));
    if (text.size() != 1 + sizeof(SplitCard) || card->form != splitting.card().form ||
        card->color != splitting.card().color)
      throw Error(ErrorKind::corrupt,
                  fmt::format("rank {} tells in the store of connections what cannot be",
                              members.members[i]));
    all_keep = all_keep && text[0] == kKeeps;
    splitting.take(members.members[i], *card);
  }
  return all_keep;
}

std::vector<int>::const_iterator first_unusable(const Regrouped& members,
                                                const std::vector<bool>& unusable) {
  return std::find_if(members.members.begin(), members.members.end(),
                      [&](int member) { return unusable[static_cast<std::size_t>(member)]; });
}

// Calls `look` until `joined`, and looks now and then whether that is in vain.
template <typename Joined, typename Look>
void await_members(Joined&& joined, Look&& look, const std::function<void()>& throw_if_vain) {
  auto check_at = steady_clock::now() + kWatchEvery;
  while (!joined()) {
    if (steady_clock::now() >= check_at) {
      throw_if_vain();
      check_at = steady_clock::now() + kWatchEvery;
    }
    look();
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
}

// Each growing adds transports, all of which every wait looks at. After some, the ranks connect
// anew.
constexpr int kMostTimesGrown = 4;

bool can_grow_again(const CommunicatorParts& whole) {
  return whole.gpu == nullptr && whole.times_grown < kMostTimesGrown;
}

// Makes the parts of a communicator without newcomers.
CommunicatorParts shrink(const CommunicatorParts& whole, const Regrouped& members,
                         Splitting& splitting, const std::function<void()>& throw_if_vain,
                         TimePoint deadline) {
  try {
    splitting.make(deadline);
    await_members([&] { return splitting.joined(); },
                  [&] { splitting.look(whole.runtime->clock().now(), false); }, throw_if_vain);
  } catch (const Error& error) {
    throw splitting.give_up(error);
  }
  CommunicatorParts parts = splitting.take_parts(whole.runtime->clock().now());
  parts.name = members.name;
  parts.secret = whole.secret;
  parts.own_place = whole.own_place;
  parts.recorded = {parts.recorded.identity, members.name};
  parts.machine_ranks = machine_ranks_left(whole, members);
  return parts;
}

// Makes the parts of a communicator with newcomers.
CommunicatorParts grow(const CommunicatorParts& whole, const Regrouped& members,
                       const Splitting& splitting, const std::function<void()>& throw_if_vain,
                       const std::shared_ptr<WatchedStore>& store, TimePoint deadline) {
  Keeping keeping(whole, splitting.subset(), static_cast<int>(members.newcomers.size()),
                  throw_if_vain);
  CommunicatorParts parts = join_regrouped(whole, members, store, deadline, &keeping);
  parts.times_grown = whole.times_grown + 1;
  return parts;
}

}  // namespace

std::optional<CommunicatorParts> join_over_kept_connections(
    const CommunicatorParts& whole, const Regrouped& members, const std::vector<bool>& unusable,
    const std::shared_ptr<WatchedStore>& store, TimePoint deadline) {
  assert(members.includes(whole.rank));
  const auto own = std::find(members.members.begin(), members.members.end(), whole.rank);
  const bool grows = !members.newcomers.empty();
  const bool keeps = first_unusable(members, unusable) == members.members.end() &&
                     (!grows || can_grow_again(whole));
  Splitting splitting(whole, survivor_card());
  std::string mine(1, keeps ? kKeeps : kConnectsAnew);
  SplitCard card = splitting.card();
  card.ring_bytes = first_ring_bytes(whole.runtime->config(), machine_ranks_left(whole, members));
  mine += bytes_of(card);
  const std::vector<Texts> said =
      exchange(*store, members.name + "/kept", static_cast<int>(own - members.members.begin()),
               static_cast<int>(members.members.size()), {mine}, deadline);
  if (!take_cards(splitting, members, said.front())) return std::nullopt;
  splitting.compare();
  const auto throw_if_vain = [&] {
    store->check()();
    const auto to = first_unusable(members, unusable);
    if (to != members.members.end())
      throw Error(ErrorKind::peer_lost,
                  fmt::format("the connection from rank {} to rank {} cannot be used any more",
                              whole.rank, *to));
  };
  return grows ? grow(whole, members, splitting, throw_if_vain, store, deadline)
               : shrink(whole, members, splitting, throw_if_vain, deadline);
}

Keeping::Keeping(const CommunicatorParts& whole, Subset subset, int newcomers,
                 std::function<void()> throw_if_vain)
    : whole_(whole),
      subset_(std::move(subset)),
      throw_if_vain_(std::move(throw_if_vain)),
      page_(std::make_shared<OwnPage>(true)) {
  const std::size_t size = subset_.members.size() + static_cast<std::size_t>(newcomers);
  subset_.members.resize(size, kElsewhere);
  subset_.numbers.resize(size);
  subset_.status_page = shown(page_);
}

void Keeping::lend_endpoint(CommunicatorParts& parts) const {
  parts.shared->doorbell = whole_.shared->doorbell;
  parts.shared->splits = whole_.shared->splits;
}

void Keeping::restrict(TransportContext& context) const {
  context.status_page = subset_.status_page;
  context.elsewhere.clear();
  for (std::size_t rank = 0; rank < subset_.members.size(); ++rank)
    context.elsewhere.push_back(subset_.members[rank] != kElsewhere &&
                                static_cast<int>(rank) != subset_.rank);
}

std::string Keeping::abilities() const {
  return fmt::format("{} {}", whole_.rings ? 1 : 0, whole_.largest_message);
}

KeptConnections Keeping::join(const TransportContext& agreed, TimePoint deadline) {
  subset_.data_bytes = agreed.data_bytes;
  subset_.max_message_bytes = agreed.max_message_bytes;
  KeptConnections kept{page_, whole_.transport->split(subset_), agreed.elsewhere};
  if (kept.transport == nullptr)
    throw Error(ErrorKind::unavailable, "a transport of this communicator cannot grow");
  std::vector<int> missing;
  const auto joined = [&] {
    missing = kept.transport->join();
    return missing.empty();
  };
  const auto look = [&] {
    kept.transport->progress();
    if (whole_.runtime->clock().now() < deadline) return;
    throw Error(ErrorKind::timeout,
                fmt::format("{} of the {} ranks that the communicator had did not come to the new "
                            "one in time, of which rank {} is the first",
                            missing.size(), whole_.size,
                            subset_.members[static_cast<std::size_t>(missing.front())]));
  };
  await_members(joined, look, throw_if_vain_);
  return kept;
}

void limit_to_kept(CommunicatorParts& parts, const Texts& column) {
  for (const std::string& text : column.values()) {
    if (text.empty()) continue;
    const std::vector<std::string_view> numbers = split(text, ' ');
    const auto rings = parse_number<int>(numbers.front());
    const auto largest = parse_number<std::size_t>(numbers.back());
    if (numbers.size() != 2 || !rings || !largest)
      throw Error(ErrorKind::corrupt,
                  fmt::format("a rank says of the connections that it keeps {}, which cannot be "
                              "read",
                              shown(text)));
    parts.rings = parts.rings && *rings == 1;
    parts.largest_message = std::min(parts.largest_message, *largest);
  }
}

}  // namespace tutti
