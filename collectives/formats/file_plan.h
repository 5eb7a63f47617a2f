// A plan as the files of other programs have it, and the schedules that follow from it. Readers of
// formats make the former; nothing else is left to them.
#pragma once

#include <vector>

#include <tutti/schedule.hpp>

namespace tutti::collectives {

/// Limits of what is read from a file.
inline constexpr int kMostFileRanks = 1024;
inline constexpr int kMostFileLanes = 1 << 12;   ///< Of one rank.
inline constexpr int kMostFileSteps = 1 << 20;   ///< Of all ranks.
inline constexpr int kMostFileChunks = 1 << 20;  ///< Of one buffer, and of all ranks' scratch.
inline constexpr int kMostFileLanesOfAll = 1 << 16;
inline constexpr int kMostFileMoves = 1 << 22;  ///< Operands' chunks of all steps of all ranks.
inline constexpr int kMostFileCells = 1 << 22;  ///< Chunks of all buffers of all ranks.

/// A step that names places by their position in the buffers, not by the chunks that are there when
/// the step is done. It may write to the input.
struct FileStep {
  std::vector<Operand> in;  ///< Empty, like `out`, for a step that only waits.
  std::vector<Operand> out;
  int count = 1;             ///< Consecutive positions.
  std::vector<After> after;  ///< Steps of the file, of other lanes of the rank; all must be done.
};

struct FileLane {
  int receives_on = 0;
  int sends_on = 0;
  std::vector<FileStep> steps;
};

struct FileRank {
  int scratch_chunks = 0;
  std::vector<FileLane> lanes;
};

struct FilePlan {
  Collective what = Collective::all_reduce;
  int root = 0;
  int chunks = 1;  ///< Of the vector (Layout::whole); otherwise of no meaning.
  /// Input and output are the same memory, so that what is written to one is read from the other.
  bool in_place = false;
  std::vector<FileRank> ranks;
};

/// Returns the number of positions of a rank's input or output: the chunks of the vector, or the
/// blocks that the buffer holds.
int positions_of(const FilePlan& plan, Place place);

/// Returns the schedules of all ranks. The plan is executed once, to find which chunk each step
/// moves, whether it reads the input or what was written over it, and where a sum is complete. Some
/// order is added: a lane that uses scratch begins a piece when all such lanes have ended the piece
/// before, and an output is written after the input at its position was read, so that the plan
/// works in place, too. What was written to an input that is no output goes to scratch.
///
/// The schedules are as right or wrong as the plan: verify() is the judge. All positions must be in
/// range, and all `after` must name steps. Throws `unavailable` for a plan beyond the limits above.
std::vector<Schedule> schedules_of(const FilePlan& plan);

}  // namespace tutti::collectives
