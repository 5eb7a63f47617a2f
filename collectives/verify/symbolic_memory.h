// The buffers of all ranks, with symbols for bytes, and what must be in them at the end.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "collectives/schedule/semantics.h"
#include "collectives/verify/checks.h"
#include "collectives/verify/expressions.h"

namespace tutti::collectives {

/// Every function that finds something wrong throws Rejected; where a step did it, the caller adds.
/// Own thread only.
class SymbolicMemory {
 public:
  SymbolicMemory(std::span<const Schedule> schedules, const VerifyOptions& options);

  /// Input holds this operation's values, output nothing; scratch stays as it was.
  void begin_operation(int rank, int operation);
  /// All that must be in the output is there. `writer` says who writes a chunk of it.
  void check_results(int rank, int operation, const std::function<std::string(int chunk)>& writer);

  /// Returns what input, output or scratch holds at `place.index`. A premultiplied sum multiplies
  /// all values that are read as input, and no others. So where values are reduced, this rejects a
  /// read of input that was written over in place, and a read of output sees nothing of the
  /// caller's input.
  Value read(int rank, const Operand& place, int piece) const;
  void write(int rank, const Operand& place, int piece, Value value);
  /// Whether a copy from `from` to `to` changes nothing. In place, input and output are the same
  /// memory, but where values are reduced a premultiplied sum multiplies them on the way.
  bool changes_nothing(const Operand& from, const Operand& to, int piece) const {
    if (from.place == Place::peer || to.place == Place::peer) return false;
    return from == to || (!reduces(what_) && cell(from, piece) == cell(to, piece));
  }

  static constexpr int kAnyItem = -1;  ///< As an argument of combine().
  int item(int operation, int piece, int chunk) const {
    return (operation * options_.pieces + piece) * chunks_ + chunk;
  }
  std::string item_text(int item) const;

  /// The left fold of `values`, read from `places`: all of them must be there, of `item`, not yet
  /// complete, and of different ranks.
  Value combine(std::span<const Value> values, const std::vector<Operand>& places, int item,
                bool completes);

 private:
  /// Input and output of different pieces are different memory; scratch serves all pieces.
  std::size_t cell(const Operand& place, int piece) const {
    const std::size_t held = positions_;
    if (place.place == Place::scratch) return options_.pieces * 2 * held + place.index;
    const bool apart = place.place == Place::output && !options_.in_place;
    return piece * 2 * held + (apart ? held : 0) + position(what_, ranks_, place);
  }
  void check_result(int item, Value value);
  Seat seat(int rank) const { return {what_, rank, ranks_, root_}; }

  const VerifyOptions options_;
  const Collective what_;
  const int ranks_;
  const int root_;
  const int chunks_;
  const int positions_;  // of an input or output buffer
  Expressions expressions_;
  std::vector<Value> agreed_;              // all_reduce: by item, the first rank's result
  std::vector<std::vector<Value>> cells_;  // by rank: input, then output, of each piece; scratch
  std::vector<std::vector<bool>> given_;   // as cells_: holds the caller's input still
};

}  // namespace tutti::collectives
