// The buffers of all ranks with symbols in place of bytes, and the check of their contents at the
// end.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "collectives/schedule/semantics.h"
#include "collectives/verify/checks.h"
#include "collectives/verify/expressions.h"

namespace tutti::collectives {

/// The memory of all ranks. Every function that finds a fault throws Rejected; if a step caused the
/// fault, the caller adds which. Used by one thread.
class SymbolicMemory {
 public:
  SymbolicMemory(std::span<const Schedule> schedules, const VerifyOptions& options);

  /// Starts an operation: the input holds this operation's values, the output holds nothing, and
  /// scratch keeps its contents.
  void begin_operation(int rank, int operation);
  /// Checks that the output holds everything that it must. `writer` returns which step writes a
  /// chunk of the output.
  void check_results(int rank, int operation, const std::function<std::string(int chunk)>& writer);

  /// Returns what input, output or scratch holds at `place.index`. A premultiplied sum multiplies
  /// all values that are read as input, and no others. So where values are reduced, this rejects a
  /// read of input that was written over in place, and a read of output sees nothing of the
  /// caller's input.
  Value read(int rank, const Operand& place, int piece) const;
  void write(int rank, const Operand& place, int piece, Value value);
  /// Returns whether a copy from `from` to `to` changes nothing. In place, input and output are the
  /// same memory; but where values are reduced, a premultiplied sum multiplies them during the
  /// copy.
  bool changes_nothing(const Operand& from, const Operand& to, int piece) const {
    if (from.place == Place::peer || to.place == Place::peer) return false;
    return from == to || (!reduces(what_) && cell(from, piece) == cell(to, piece));
  }

  /// Passed to combine() when the step does not name its chunks.
  static constexpr int kAnyItem = -1;
  int item(int operation, int piece, int chunk) const {
    return (operation * options_.pieces + piece) * chunks_ + chunk;
  }
  std::string item_text(int item) const;

  /// Returns the left fold of `values`, which were read from `places`. All values must exist,
  /// belong to `item`, be incomplete, and contain contributions of different ranks.
  Value combine(std::span<const Value> values, const std::vector<Operand>& places, int item,
                bool completes);

 private:
  /// Input and output have different memory for each piece; all pieces share scratch.
  std::size_t cell(const Operand& place, int piece) const {
    const std::size_t held = positions_;
    if (place.place == Place::scratch) return options_.pieces * 2 * held + place.index;
    const bool apart = place.place == Place::output && !options_.in_place;
    return piece * 2 * held + (apart ? held : 0) + position(what_, ranks_, place);
  }
  void check_result(int item, Value value);
  RankCall call(int rank) const { return {what_, rank, ranks_, root_}; }

  const VerifyOptions options_;
  const Collective what_;
  const int ranks_;
  const int root_;
  const int chunks_;
  const int positions_;  // in an input or output buffer
  Expressions expressions_;
  std::vector<Value> agreed_;  // for all_reduce: the first rank's result, indexed by item
  // Indexed by rank: input, then output, of each piece; then scratch.
  std::vector<std::vector<Value>> cells_;
  // Indexed as cells_: whether the cell still holds the caller's input.
  std::vector<std::vector<bool>> given_;
};

}  // namespace tutti::collectives
