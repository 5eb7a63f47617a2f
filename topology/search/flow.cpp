#include "topology/search/flow.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>

#include <tutti/error.hpp>

namespace tutti {

void StepBudget::spend(std::int64_t steps) {
  left_ -= steps;
  if (left_ < 0)
    throw Error(ErrorKind::unavailable,
                fmt::format("{} takes more than {} steps for this graph: describe fewer GPUs or "
                            "fewer links",
                            what_, most_));
}

int FlowNetwork::add(int from, int to, std::int64_t capacity) {
  assert(from != to && capacity >= 0);
  const int edge = static_cast<int>(edges_.size() / 2);
  edges_of_[static_cast<std::size_t>(from)].push_back(2 * edge);
  edges_of_[static_cast<std::size_t>(to)].push_back(2 * edge + 1);
  edges_.push_back({to, capacity, capacity});
  edges_.push_back({from, 0, 0});
  return edge;
}

void FlowNetwork::set_capacity(int edge, std::int64_t capacity) {
  edges_[2 * static_cast<std::size_t>(edge)].capacity = capacity;
}

std::int64_t FlowNetwork::max_flow(int from, int to, StepBudget& budget, std::int64_t enough) {
  assert(from != to);
  for (Edge& edge : edges_) edge.left = edge.capacity;
  budget.spend(static_cast<std::int64_t>(edges_.size()));
  std::int64_t flow = 0;
  while (flow < enough && find_levels(from, to, budget)) {
    next_.assign(edges_of_.size(), 0);
    while (const std::int64_t more = push(from, to, enough - flow, budget)) flow += more;
  }
  return flow;
}

bool FlowNetwork::find_levels(int from, int to, StepBudget& budget) {
  levels_.assign(edges_of_.size(), -1);
  levels_[static_cast<std::size_t>(from)] = 0;
  std::vector<int> queue{from};
  for (std::size_t head = 0; head < queue.size(); ++head) {
    const auto at = static_cast<std::size_t>(queue[head]);
    budget.spend(static_cast<std::int64_t>(edges_of_[at].size()) + 1);
    for (const int number : edges_of_[at]) {
      const Edge& edge = edges_[static_cast<std::size_t>(number)];
      if (edge.left == 0 || levels_[static_cast<std::size_t>(edge.to)] >= 0) continue;
      levels_[static_cast<std::size_t>(edge.to)] = levels_[at] + 1;
      queue.push_back(edge.to);
    }
  }
  return levels_[static_cast<std::size_t>(to)] >= 0;
}

// The depth of the recursion is bounded by the number of nodes.
std::int64_t FlowNetwork::push(int at, int to, std::int64_t most, StepBudget& budget) {
  if (at == to || most == 0) return most;
  const auto index = static_cast<std::size_t>(at);
  for (std::size_t& next = next_[index]; next < edges_of_[index].size(); ++next) {
    budget.spend(1);
    const auto number = static_cast<std::size_t>(edges_of_[index][next]);
    Edge& edge = edges_[number];
    if (edge.left == 0 || levels_[static_cast<std::size_t>(edge.to)] != levels_[index] + 1)
      continue;
    const std::int64_t pushed = push(edge.to, to, std::min(most, edge.left), budget);
    if (pushed == 0) continue;
    edge.left -= pushed;
    edges_[number ^ 1].left += pushed;
    return pushed;
  }
  return 0;
}

std::vector<bool> FlowNetwork::side_of_source() const {
  std::vector<bool> side(levels_.size());
  for (std::size_t at = 0; at < side.size(); ++at) side[at] = levels_[at] >= 0;
  return side;
}

}  // namespace tutti
