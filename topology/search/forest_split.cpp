// Replaces switches by edges between GPUs (edge splitting), which keeps what every GPU can be sent.
#include <algorithm>
#include <cassert>
#include <limits>

#include "topology/search/forest.h"

namespace tutti {
namespace {

class Splitter {
 public:
  Splitter(const GpuNetwork& network, const std::vector<int>& roots, int trees,
           std::int64_t mb_per_s, StepBudget& budget)
      : gpus_(network.gpus),
        nodes_(network.nodes),
        needed_(std::int64_t{trees} * static_cast<std::int64_t>(roots.size())),
        units_(static_cast<std::size_t>(nodes_) * static_cast<std::size_t>(nodes_)),
        numbers_(static_cast<std::size_t>(nodes_ + 1) * static_cast<std::size_t>(nodes_ + 1), -1),
        flow_(nodes_ + 1),
        budget_(budget) {
    budget.spend(std::int64_t{nodes_} * nodes_);
    for (const GpuNetwork::Edge& edge : network.edges)
      set(edge.from, edge.to, edge.mb_per_s / mb_per_s);
    for (const int root : roots) flow_.set_capacity(number(nodes_, root), trees);
    roots_.assign(static_cast<std::size_t>(nodes_), 0);
    for (const int root : roots) roots_[static_cast<std::size_t>(root)] = trees;
  }

  TreeUnits run() {
    for (int middle = gpus_; middle < nodes_; ++middle) remove(middle);
    TreeUnits left(gpus_);
    for (int from = 0; from < gpus_; ++from)
      for (int to = 0; to < gpus_; ++to) left.units.push_back(units(from, to));
    return left;
  }

 private:
  std::int64_t units(int from, int to) const {
    return units_[static_cast<std::size_t>(from) * static_cast<std::size_t>(nodes_) +
                  static_cast<std::size_t>(to)];
  }

  // Returns the number of an edge of the network of flows, which is added if it is not there.
  int number(int from, int to) {
    int& found = numbers_[static_cast<std::size_t>(from) * static_cast<std::size_t>(nodes_ + 1) +
                          static_cast<std::size_t>(to)];
    if (found < 0) found = flow_.add(from, to, 0);
    return found;
  }

  void set(int from, int to, std::int64_t units) {
    if (from == to) return;
    units_[static_cast<std::size_t>(from) * static_cast<std::size_t>(nodes_) +
           static_cast<std::size_t>(to)] = units;
    flow_.set_capacity(number(from, to), units);
  }

  // First come pairs of neighbours that have no edge of their own, so that two GPUs which are
  // joined directly are not joined by the switch as well, where other pairs need it.
  void remove(int middle) {
    enum class Pairs : std::uint8_t { apart, joined, same };
    for (const Pairs pairs : {Pairs::apart, Pairs::joined, Pairs::same})
      for (int from = 0; from < nodes_; ++from) {
        budget_.spend(nodes_);
        for (int to = 0; to < nodes_ && units(from, middle) > 0; ++to) {
          if (units(middle, to) == 0) continue;
          const bool joined = from < gpus_ && to < gpus_ && units(from, to) > 0;
          const Pairs own = from == to ? Pairs::same : joined ? Pairs::joined : Pairs::apart;
          if (own != pairs) continue;
          const std::int64_t moved = most_moved(from, middle, to);
          set(from, middle, units(from, middle) - moved);
          set(middle, to, units(middle, to) - moved);
          if (from != to) set(from, to, units(from, to) + moved);
        }
      }
  }

  // Returns how many units can go from `from` to `to` without passing by `middle` such that all
  // roots can still send their trees to every GPU. Only sets with both ends on one side and
  // `middle` on the other one lose capacity.
  std::int64_t most_moved(int from, int middle, int to) {
    std::int64_t most = std::min(units(from, middle), units(middle, to));
    for (int gpu = 0; gpu < gpus_ && most > 0; ++gpu) {
      if (gpu != from && gpu != to)
        most = std::min(most, slack({{nodes_, from}, {nodes_, to}, {middle, gpu}}, gpu, most));
      if (most > 0)
        most = std::min(most, slack({{nodes_, middle}, {from, gpu}, {to, gpu}}, gpu, most));
    }
    return most;
  }

  struct Ends {
    int from, to;
  };

  // Returns by how much the smallest cut before `gpu` that does not cut the edges `kept` is larger
  // than what is needed.
  std::int64_t slack(std::initializer_list<Ends> kept, int gpu, std::int64_t most) {
    for (const Ends& ends : kept)
      if (ends.from != ends.to)
        flow_.set_capacity(number(ends.from, ends.to), FlowNetwork::kUnlimited / 4);
    const std::int64_t flow = flow_.max_flow(nodes_, gpu, budget_, needed_ + most);
    for (const Ends& ends : kept)
      if (ends.from != ends.to)
        flow_.set_capacity(number(ends.from, ends.to),
                           ends.from == nodes_ ? roots_[static_cast<std::size_t>(ends.to)]
                                               : units(ends.from, ends.to));
    assert(flow >= needed_);
    return flow - needed_;
  }

  const int gpus_, nodes_;
  const std::int64_t needed_;
  std::vector<std::int64_t> units_;  // by both ends
  std::vector<std::int64_t> roots_;  // the units that enter at each node
  std::vector<int> numbers_;         // of edges in the network of flows, by both ends
  FlowNetwork flow_;                 // its last node is where everything enters
  StepBudget& budget_;
};

}  // namespace

TreeUnits split_switches(const GpuNetwork& network, const std::vector<int>& roots, int trees,
                         std::int64_t mb_per_s, StepBudget& budget) {
  return Splitter(network, roots, trees, mb_per_s, budget).run();
}

}  // namespace tutti
