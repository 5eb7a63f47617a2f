#include "collectives/algorithms/algorithms.h"

#include <array>

namespace tutti {

// Each function is defined in the file of its name.
Algorithm ring_algorithm();
Algorithm one_shot_algorithm();
Algorithm all_pairs_algorithm();
Algorithm recursive_doubling_algorithm();
Algorithm binomial_tree_algorithm();
Algorithm double_binary_tree_algorithm();
Algorithm halving_doubling_algorithm();
Algorithm bruck_algorithm();
Algorithm knomial_tree_algorithm();
Algorithm scatter_all_gather_algorithm();
Algorithm hierarchical_algorithm();
Algorithm pairwise_algorithm();

std::span<const Algorithm> algorithms() {
  static const std::array list{
      ring_algorithm(),
      one_shot_algorithm(),
      all_pairs_algorithm(),
      recursive_doubling_algorithm(),
      binomial_tree_algorithm(),
      double_binary_tree_algorithm(),
      halving_doubling_algorithm(),
      bruck_algorithm(),
      knomial_tree_algorithm(),
      scatter_all_gather_algorithm(),
      hierarchical_algorithm(),
      pairwise_algorithm(),
  };
  return list;
}

}  // namespace tutti
