// Symbolic values: what a chunk holds, as an expression over the ranks' inputs. Equal expressions
// have equal numbers, so that comparing two results, bit for bit, is comparing two integers.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace tutti::collectives {

/// A value's number. Leaves come first, so that they need no memory.
using Value = std::int32_t;
inline constexpr Value kNothing = -1;

/// An arena of expressions. An item is one chunk of one piece of one operation: values of different
/// items are never combined. Own thread only.
class Expressions {
 public:
  /// `leaves_final`: inputs are results already (nothing is reduced, nothing has to be completed).
  Expressions(int ranks, int items, bool leaves_final);

  /// What `rank` puts into `item`.
  Value leaf(int rank, int item) const { return item * ranks_ + rank; }

  /// The left fold of `operands`, all of one item, with post-operations applied if `completes`.
  /// One operand that nothing is applied to is itself. A fold of n is not n - 1 folds of two: the
  /// kernels round once a fold.
  Value fold(std::span<const Value> operands, bool completes);

  int item(Value value) const;
  bool is_final(Value value) const;

  /// A rank whose input counts in more than one of `operands`, or -1.
  int counted_twice(std::span<const Value> operands);
  /// A rank whose input does not count in `value`, or -1.
  int missing(Value value) const;

 private:
  struct Node {
    std::uint32_t first_operand;
    std::uint32_t operands;
    std::int32_t item;
    bool completes;
  };

  bool is_leaf(Value value) const { return value < leaves_; }
  const Node& node(Value value) const { return nodes_[value - leaves_]; }
  bool is(const Node& node, std::span<const Value> operands, bool completes) const;
  void add_ranks(Value value, std::span<std::uint64_t> set) const;
  void grow_table();
  static std::uint64_t hash(std::span<const Value> operands, bool completes);

  const int ranks_;
  const int words_;  // of a set of ranks
  const Value leaves_;
  const bool leaves_final_;
  std::vector<Node> nodes_;
  std::vector<Value> operands_;          // of all nodes
  std::vector<std::uint64_t> ranks_in_;  // `words_` a node
  std::vector<Value> table_;             // open addressing, a power of two, at most half full
  std::vector<std::uint64_t> seen_;      // of counted_twice()
};

}  // namespace tutti::collectives
