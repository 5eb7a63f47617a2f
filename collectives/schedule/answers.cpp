#include "collectives/schedule/answers.h"

#include <algorithm>
#include <cassert>
#include <map>

namespace tutti::collectives {

std::vector<int> answered_peers(const Lane& lane) {
  // For each peer from which the lane receives: whether every step answers it.
  std::map<int, bool> answered;
  std::vector<int> sent_to;  // by the step, ascending
  for (const Step& step : lane.steps) {
    sent_to.clear();
    for (const Operand& to : step.out)
      if (to.place == Place::peer) sent_to.push_back(to.index);
    std::sort(sent_to.begin(), sent_to.end());
    for (const Operand& from : step.in) {
      if (from.place != Place::peer) continue;
      const bool back = std::binary_search(sent_to.begin(), sent_to.end(), from.index);
      const auto [peer, added] = answered.try_emplace(from.index, back);
      peer->second = peer->second && back;
    }
  }
  std::vector<int> peers;
  for (const auto& [peer, always] : answered)
    if (always) peers.push_back(peer);
  assert(std::is_sorted(peers.begin(), peers.end()));
  return peers;
}

}  // namespace tutti::collectives
