#include "collectives/schedule/answers.h"

#include <algorithm>
#include <map>

namespace tutti::collectives {

std::vector<int> answered_peers(const Lane& lane) {
  // For each peer from which the lane receives: whether every step answers it.
  std::map<int, bool> answered;
  for (const Step& step : lane.steps)
    for (const Operand& from : step.in) {
      if (from.place != Place::peer) continue;
      const bool back = std::find(step.out.begin(), step.out.end(), from) != step.out.end();
      const auto [peer, added] = answered.try_emplace(from.index, back);
      peer->second = peer->second && back;
    }
  std::vector<int> peers;
  for (const auto& [peer, always] : answered)
    if (always) peers.push_back(peer);
  return peers;
}

}  // namespace tutti::collectives
