// The three checks behind verify(), in the order in which they build on each other. Each throws
// Rejected at the first thing that is wrong.
#pragma once

#include <span>
#include <string>

#include <tutti/schedule.hpp>

namespace tutti::collectives {

/// Why schedules are wrong; verify() turns it into its verdict.
struct Rejected {
  std::string why;
};

/// The most ranks times chunks of a buffer, ranks times scratch chunks, and the most pieces that an
/// `after` reaches back: beyond, symbols would not fit in memory.
inline constexpr int kMostChunks = 1 << 20;
inline constexpr int kMostPiecesBack = 16;
/// Operands of one side of a step, and channel numbers: what programs and transports count in.
inline constexpr int kMostOperands = 1 << 14;
inline constexpr int kMostChannels = 1 << 15;

/// Everything that can be seen without running: numbers in range, fields that must agree.
void check_shape(std::span<const Schedule> schedules);

/// Every two accesses of two lanes of this rank to the same memory, of which one writes, are
/// ordered by `after`. Messages of other ranks order lanes, too, but no schedule may need that: an
/// order that is written down is seen, and costs a comparison. Assumes check_shape().
void check_races(const Schedule& schedule, const VerifyOptions& options);

/// Runs all ranks on symbols over bounded channels: no deadlock, fitting messages, right results.
/// Assumes check_shape() and, for all orders of execution, check_races().
void check_run(std::span<const Schedule> schedules, const VerifyOptions& options);

// --- words for verdicts ---

std::string where(int rank, int lane, int step);    // "rank 1 lane 0 step 2"
std::string moment_text(int operation, int piece);  // "piece 0 of operation 1"

}  // namespace tutti::collectives
