// Executes a file's plan with the numbers of chunks in place of data.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <tuple>
#include <vector>

#include "collectives/formats/file_plan.h"

namespace tutti::collectives {

/// Executes all ranks of a plan, one step after another, and notes for each step what it moves.
class Replay {
 public:
  /// Describes a step with the places of a schedule.
  struct Resolved {
    std::vector<Operand> in;
    std::vector<Operand> out;
    int chunk = 0;
    bool completes = false;
  };

  explicit Replay(const FilePlan& plan);

  /// Returns whether all steps could be done; where some wait for each other for ever, these are
  /// resolved as though they found what their positions hold at first.
  bool run();
  /// Returns whether a step moves chunks that are not consecutive, so that it must be cut in
  /// several.
  bool must_split() const { return must_split_; }

  const Resolved& resolved(int rank, int lane, int step) const;
  /// Returns the number of a rank's scratch chunks: those of the plan, and those for what is
  /// written to the input.
  int scratch_chunks(int rank) const { return ranks_[static_cast<std::size_t>(rank)].scratch; }

 private:
  /// Says what a place holds: a chunk, and how many ranks have contributed to it. The chunk is -1
  /// if it holds nothing.
  struct Value {
    int chunk = -1;
    int summands = 0;
  };
  struct Cell {
    Value value;
    bool written = false;  // by a step; before, an input holds what the caller gave
    int scratch = -1;      // where a written input lies that is no output
  };
  struct RankState {
    std::vector<Cell> cells;  // inputs, outputs, scratch
    std::vector<std::size_t> done;
    std::vector<std::vector<Resolved>> steps;
    int scratch = 0;
  };
  using Channel = std::tuple<int, int, int>;  // from, to, number

  bool advance(int rank, int lane);
  bool can_start(int rank, int lane, const FileStep& step) const;
  void resolve(int rank, int lane, const FileStep& step);
  std::size_t cell(int rank, const Operand& at) const;
  int chunk_at(int rank, Place place, int position) const;
  Operand place_of(int rank, const Operand& at, bool writes);
  void resolve_chunk(int rank, const FileLane& lane, const FileStep& step, int k, Resolved& into);
  Value read(int rank, const FileLane& lane, const Operand& from, int k);

  const FilePlan& plan_;
  const int ranks_count_;
  const int inputs_, outputs_;  // positions
  std::vector<RankState> ranks_;
  std::map<Channel, std::deque<std::vector<Value>>> messages_;
  bool must_split_ = false;
  bool stuck_ = false;
};

}  // namespace tutti::collectives
