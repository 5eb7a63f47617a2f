// Moves trees from links that are loaded most to others, where each edge takes the best path.
#include <algorithm>
#include <cassert>
#include <cmath>
#include <limits>

#include "topology/search/forest.h"

namespace tutti {
namespace {

constexpr int kMostRounds = 30;

class Improver {
 public:
  Improver(const Paths& paths, std::vector<SpanningTree>& trees, TreeUse use, StepBudget& budget)
      : paths_(paths),
        trees_(trees),
        use_(use),
        budget_(budget),
        load_(paths.links().size()),
        price_(paths.links().size()) {
    for (const SpanningTree& tree : trees) add(tree, 1);
  }

  /// Goes on until nothing is won, or a quarter of the steps is spent.
  void run() {
    const std::int64_t kept_steps = budget_.left() - budget_.left() / 4;
    double best = rate();
    std::vector<SpanningTree> kept = trees_;
    for (int round = 0; round < kMostRounds; ++round) {
      // With each round the links that are loaded most count for more.
      sharpness_ = 4 + round % 5 * 3;
      bool changed = false;
      for (SpanningTree& tree : trees_) {
        if (budget_.left() < kept_steps) break;
        changed = replace(tree) || changed;
      }
      if (const double now = rate(); now > best * (1 + 1e-9)) {
        best = now;
        kept = trees_;
      }
      if ((!changed && round >= 5) || budget_.left() < kept_steps) break;
    }
    trees_ = std::move(kept);
  }

 private:
  void add(const SpanningTree& tree, int count) {
    for (const auto& edge : tree.edges)
      for_links(paths_, edge, use_, [&](std::size_t link) { load_[link] += count; });
  }

  double rate() const {
    double least = std::numeric_limits<double>::infinity();
    for (std::size_t link = 0; link < load_.size(); ++link)
      if (load_[link] > 0) least = std::min(least, paths_.links()[link].gb_per_s / load_[link]);
    return least;
  }

  // Sets the price of one more tree on a link.
  void set_price(std::size_t link) {
    const double share = scale_ / paths_.links()[link].gb_per_s;
    price_[link] = std::pow((load_[link] + 1) * share, sharpness_) * share + 1e-9 * share;
  }

  // Adds an edge to the loads, and returns what it costs.
  double take(const SpanningTree::Edge& edge) {
    double cost = 0;
    for_links(paths_, edge, use_, [&](std::size_t link) {
      cost += price_[link];
      ++load_[link];
      set_price(link);
    });
    return cost;
  }

  void give_back(const SpanningTree& tree) {
    for (const auto& edge : tree.edges)
      for_links(paths_, edge, use_, [&](std::size_t link) {
        --load_[link];
        set_price(link);
      });
  }

  bool replace(SpanningTree& tree) {
    scale_ = rate();
    add(tree, -1);
    for (std::size_t link = 0; link < price_.size(); ++link) set_price(link);
    double cost = 0;
    for (const auto& edge : tree.edges) cost += take(edge);
    give_back(tree);
    double other_cost = 0;
    SpanningTree other = cheapest(tree.root, other_cost);
    if (other_cost >= cost * (1 - 1e-9)) {
      give_back(other);
      add(tree, 1);
      return false;
    }
    tree = std::move(other);
    return true;
  }

  double length(int from, int to) const {
    double length = 0;
    for_links(paths_, {from, to}, use_, [&](std::size_t link) { length += price_[link]; });
    const bool ways = paths_.between(from, to).kind != PathKind::none &&
                      paths_.between(to, from).kind != PathKind::none;
    return ways ? length : std::numeric_limits<double>::infinity();
  }

  // Returns the tree that grows by the cheapest edge each time, by the prices that its own edges
  // leave; of edges that cost the same it takes the one nearest to the root. Its edges are added to
  // the loads.
  SpanningTree cheapest(int root, double& cost) {
    const int gpus = paths_.gpus();
    budget_.spend(std::int64_t{gpus} * gpus * gpus);
    std::vector<int> depth(static_cast<std::size_t>(gpus), -1);
    const auto depth_of = [&](int gpu) -> int& { return depth[static_cast<std::size_t>(gpu)]; };
    SpanningTree tree{root, {}};
    depth_of(root) = 0;
    while (static_cast<int>(tree.edges.size()) + 1 < gpus) {
      SpanningTree::Edge best{-1, -1};
      double least = std::numeric_limits<double>::infinity();
      for (int from = 0; from < gpus; ++from)
        for (int to = 0; to < gpus && depth_of(from) >= 0; ++to) {
          if (depth_of(to) >= 0) continue;
          const double own = length(from, to) * (1 + 1e-3 * depth_of(from));
          if (best.from >= 0 && own >= least) continue;
          best = {from, to};
          least = own;
        }
      cost += take(best);
      tree.edges.push_back(best);
      depth_of(best.to) = depth_of(best.from) + 1;
    }
    return tree;
  }

  const Paths& paths_;
  std::vector<SpanningTree>& trees_;
  const TreeUse use_;
  StepBudget& budget_;
  std::vector<int> load_;      // of links, in trees
  std::vector<double> price_;  // of links
  double sharpness_ = 4;
  double scale_ = 1;  // what a tree carries
};

}  // namespace

void improve_trees(const Paths& paths, std::vector<SpanningTree>& trees, TreeUse use,
                   StepBudget& budget) {
  if (!trees.empty()) Improver(paths, trees, use, budget).run();
}

}  // namespace tutti
