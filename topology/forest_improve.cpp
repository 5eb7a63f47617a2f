// Moves trees from links that are loaded most to others, where each edge takes the best path.
#include <algorithm>
#include <cassert>
#include <cmath>
#include <limits>

#include "topology/forest.h"

namespace tutti {
namespace {

constexpr int kMostRounds = 30;

class Improver {
 public:
  Improver(const Paths& paths, std::vector<SpanningTree>& trees, TreeUse use, StepBudget& budget)
      : paths_(paths), trees_(trees), use_(use), budget_(budget), load_(paths.links().size()) {
    for (const SpanningTree& tree : trees) add(tree, 1);
  }

  void run() {
    double best = rate();
    std::vector<SpanningTree> kept = trees_;
    for (int round = 0; round < kMostRounds; ++round) {
      // With each round the links that are loaded most count for more.
      sharpness_ = 4 + round % 5 * 3;
      bool changed = false;
      for (SpanningTree& tree : trees_) changed = replace(tree) || changed;
      if (const double now = rate(); now > best * (1 + 1e-9)) {
        best = now;
        kept = trees_;
      }
      if (!changed && round >= 5) break;
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

  // Returns the price of one more tree on each link.
  std::vector<double> prices() const {
    const std::vector<Link>& links = paths_.links();
    const double least = rate();
    std::vector<double> prices(links.size());
    for (std::size_t link = 0; link < links.size(); ++link) {
      const double share = least / links[link].gb_per_s;
      prices[link] = std::pow((load_[link] + 1) * share, sharpness_) * share + 1e-9 * share;
    }
    return prices;
  }

  bool replace(SpanningTree& tree) {
    add(tree, -1);
    const std::vector<double> price = prices();
    SpanningTree other = cheapest(tree.root, price);
    const bool better = cost(other, price) < cost(tree, price) * (1 - 1e-9);
    if (better) tree = std::move(other);
    add(tree, 1);
    return better;
  }

  double length(int from, int to, const std::vector<double>& price) const {
    double length = 0;
    for_links(paths_, {from, to}, use_, [&](std::size_t link) { length += price[link]; });
    return length;
  }

  double cost(const SpanningTree& tree, const std::vector<double>& price) const {
    double all = 0;
    for (const auto& edge : tree.edges) all += length(edge.from, edge.to, price);
    return all;
  }

  // Returns the tree that grows by the cheapest edge each time; of edges that cost the same it
  // takes the one nearest to the root.
  SpanningTree cheapest(int root, const std::vector<double>& price) {
    const int gpus = paths_.gpus();
    budget_.spend(std::int64_t{8} * gpus * gpus);
    const auto index = [](int gpu) { return static_cast<std::size_t>(gpu); };
    std::vector<double> least(index(gpus), std::numeric_limits<double>::infinity());
    std::vector<int> from(index(gpus), root), depth(index(gpus), -1);
    SpanningTree tree{root, {}};
    depth[index(root)] = 0;
    for (int last = root; static_cast<int>(tree.edges.size()) + 1 < gpus;) {
      int next = -1;
      for (int gpu = 0; gpu < gpus; ++gpu) {
        if (depth[index(gpu)] >= 0) continue;
        const double own = length(last, gpu, price) * (1 + 1e-3 * depth[index(last)]);
        if (own < least[index(gpu)]) {
          least[index(gpu)] = own;
          from[index(gpu)] = last;
        }
        if (next < 0 || least[index(gpu)] < least[index(next)]) next = gpu;
      }
      tree.edges.push_back({from[index(next)], next});
      depth[index(next)] = depth[index(from[index(next)])] + 1;
      last = next;
    }
    return tree;
  }

  const Paths& paths_;
  std::vector<SpanningTree>& trees_;
  const TreeUse use_;
  StepBudget& budget_;
  std::vector<int> load_;  // of links, in trees
  double sharpness_ = 4;
};

}  // namespace

void improve_trees(const Paths& paths, std::vector<SpanningTree>& trees, TreeUse use,
                   StepBudget& budget) {
  if (!trees.empty()) Improver(paths, trees, use, budget).run();
}

}  // namespace tutti
