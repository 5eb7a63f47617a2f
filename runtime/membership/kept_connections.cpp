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

// Waits until all members have made their parts, and looks now and then whether that is in vain.
void await_members(Splitting& splitting, const CommunicatorParts& whole, const Regrouped& members,
                   const std::vector<bool>& unusable, const WatchedStore& store) {
  auto check_at = steady_clock::now() + kWatchEvery;
  while (!splitting.joined()) {
    if (steady_clock::now() >= check_at) {
      store.check()();
      const auto to = first_unusable(members, unusable);
      if (to != members.members.end())
        throw Error(ErrorKind::peer_lost,
                    fmt::format("the connection from rank {} to rank {} cannot be used any more",
                                *to, whole.rank));
      check_at = steady_clock::now() + kWatchEvery;
    }
    splitting.look(whole.runtime->clock().now(), false);
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
}

}  // namespace

std::optional<CommunicatorParts> join_over_kept_connections(const CommunicatorParts& whole,
                                                            const Regrouped& members,
                                                            const std::vector<bool>& unusable,
                                                            WatchedStore& store,
                                                            TimePoint deadline) {
  assert(members.newcomers.empty() && members.includes(whole.rank));
  const auto own = std::find(members.members.begin(), members.members.end(), whole.rank);
  const bool keeps = first_unusable(members, unusable) == members.members.end();
  Splitting splitting(whole, survivor_card());
  std::string mine(1, keeps ? kKeeps : kConnectsAnew);
  SplitCard card = splitting.card();
  card.ring_bytes = first_ring_bytes(whole.runtime->config(), machine_ranks_left(whole, members));
  mine += bytes_of(card);
  const std::vector<Texts> said =
      exchange(store, members.name + "/kept", static_cast<int>(own - members.members.begin()),
               static_cast<int>(members.size()), {mine}, deadline);
  if (!take_cards(splitting, members, said.front())) return std::nullopt;
  splitting.compare();
  try {
    splitting.make(deadline);
    await_members(splitting, whole, members, unusable, store);
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

}  // namespace tutti
