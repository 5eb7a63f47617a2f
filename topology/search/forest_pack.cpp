// Packs spanning trees into edges between GPUs (Berczi and Frank 2010).
#include <algorithm>
#include <cassert>

#include <tutti/error.hpp>

#include "topology/search/forest.h"

namespace tutti {
namespace {

/// Some equal trees, which grow together.
struct Growing {
  SpanningTree tree;
  std::int64_t copies;
  std::vector<int> depths;  // by GPU; -1 for those that it does not reach yet

  bool reaches(int gpu) const { return depths[static_cast<std::size_t>(gpu)] >= 0; }
  bool is_spanning() const { return tree.edges.size() + 1 == depths.size(); }
};

class Packer {
 public:
  Packer(TreeUnits units, const std::vector<int>& roots, int trees, StepBudget& budget)
      : units_(std::move(units)), roots_(roots), budget_(budget) {
    for (const int root : roots) {
      Growing tree{{root, {}}, trees, std::vector<int>(static_cast<std::size_t>(units_.gpus), -1)};
      tree.depths[static_cast<std::size_t>(root)] = 0;
      growing_.push_back(std::move(tree));
    }
  }

  std::vector<SpanningTree> run() {
    // Trees grow in turns, so that the first does not take the short ways of all.
    for (bool grew = true; grew;) {
      grew = false;
      for (std::size_t at = 0; at < growing_.size(); ++at)
        if (!growing_[at].is_spanning()) {
          grow(at);
          grew = true;
        }
    }
    std::vector<SpanningTree> packed;
    for (const int root : roots_)
      for (const Growing& one : growing_)
        if (one.tree.root == root)
          packed.insert(packed.end(), static_cast<std::size_t>(one.copies), one.tree);
    return packed;
  }

 private:
  // Adds an edge to the trees of one kind, or to some of them; the others become a kind of their
  // own.
  void grow(std::size_t at) {
    std::vector<SpanningTree::Edge> edges;
    for (int from = 0; from < units_.gpus; ++from)
      for (int to = 0; to < units_.gpus; ++to)
        if (growing_[at].reaches(from) && !growing_[at].reaches(to) && units_.at(from, to) > 0)
          edges.push_back({from, to});
    budget_.spend(std::int64_t{units_.gpus} * units_.gpus);
    const std::vector<int>& depths = growing_[at].depths;
    std::stable_sort(edges.begin(), edges.end(), [&](const auto& a, const auto& b) {
      return depths[static_cast<std::size_t>(a.from)] < depths[static_cast<std::size_t>(b.from)];
    });
    for (const SpanningTree::Edge& edge : edges) {
      const std::int64_t most = most_added(at, edge);
      if (most <= 0) continue;
      if (most < growing_[at].copies) {
        Growing rest = growing_[at];
        rest.copies -= most;
        growing_.push_back(std::move(rest));
      }
      Growing& tree = growing_[at];
      tree.copies = most;
      tree.tree.edges.push_back(edge);
      tree.depths[static_cast<std::size_t>(edge.to)] =
          tree.depths[static_cast<std::size_t>(edge.from)] + 1;
      units_.at(edge.from, edge.to) -= most;
      return;
    }
    throw Error(ErrorKind::internal, "the edges between GPUs do not suffice for the trees");
  }

  // Returns how many of the trees can take the edge such that every set of GPUs can still be
  // entered by all trees that do not reach it yet.
  std::int64_t most_added(std::size_t at, const SpanningTree::Edge& edge) {
    std::vector<const Growing*> others;
    std::int64_t of_others = 0;
    for (std::size_t number = 0; number < growing_.size(); ++number)
      if (number != at && !growing_[number].reaches(edge.to)) {
        others.push_back(&growing_[number]);
        of_others += growing_[number].copies;
      }
    FlowNetwork flow(units_.gpus + static_cast<int>(others.size()));
    for (int from = 0; from < units_.gpus; ++from)
      for (int to = 0; to < units_.gpus; ++to)
        if (units_.at(from, to) > 0) flow.add(from, to, units_.at(from, to));
    for (std::size_t number = 0; number < others.size(); ++number) {
      const int node = units_.gpus + static_cast<int>(number);
      flow.add(edge.from, node, others[number]->copies);
      for (int gpu = 0; gpu < units_.gpus; ++gpu)
        if (others[number]->reaches(gpu)) flow.add(node, gpu, FlowNetwork::kUnlimited / 4);
    }
    const std::int64_t most = std::min(units_.at(edge.from, edge.to), growing_[at].copies);
    return std::min(most, flow.max_flow(edge.from, edge.to, budget_, of_others + most) - of_others);
  }

  TreeUnits units_;
  const std::vector<int>& roots_;
  StepBudget& budget_;
  std::vector<Growing> growing_;
};

}  // namespace

std::vector<SpanningTree> pack_trees(TreeUnits units, const std::vector<int>& roots, int trees,
                                     StepBudget& budget) {
  assert(units.gpus >= 2);
  return Packer(std::move(units), roots, trees, budget).run();
}

}  // namespace tutti
