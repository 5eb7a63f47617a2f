// Symbolic values: the content of a chunk, as an expression over the inputs of the ranks. Equal
// expressions have equal numbers, so comparing two results bit for bit means comparing two
// integers.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace tutti::collectives {

/// The number of an expression. Leaves have the lowest numbers, so that they need no memory.
using Value = std::int32_t;
inline constexpr Value kNothing = -1;

/// An arena of expressions. An item is one chunk of one piece of one operation; values of different
/// items are never combined. Used by one thread.
class Expressions {
 public:
  /// `leaves_final` says that inputs are complete values already, since nothing is reduced.
  Expressions(int ranks, int items, bool leaves_final);

  /// Returns the expression of `rank`'s input for `item`.
  Value leaf(int rank, int item) const { return item * ranks_ + rank; }

  /// Returns the left fold of `operands`, which all belong to one item; post-operations are applied
  /// if `completes`. The fold of one operand without post-operations is the operand itself. A fold
  /// of n operands differs from n - 1 folds of two, because the kernels round once in each fold.
  Value fold(std::span<const Value> operands, bool completes);

  int item(Value value) const;
  bool is_final(Value value) const;

  /// Returns a rank whose input is contained in more than one of `operands`, or -1.
  int counted_twice(std::span<const Value> operands);
  /// Returns a rank whose input is not contained in `value`, or -1.
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
  const int words_;  // in a set of ranks
  const Value leaves_;
  const bool leaves_final_;
  std::vector<Node> nodes_;
  std::vector<Value> operands_;          // the operands of all nodes
  std::vector<std::uint64_t> ranks_in_;  // for each node the set of its ranks, in `words_` words
  std::vector<Value> table_;  // a hash table with open addressing; its size is a power of two, and
                              // it is at most half full
  std::vector<std::uint64_t> seen_;  // temporary memory of counted_twice()
};

}  // namespace tutti::collectives
