// The three checks of verify(), in the order in which they build on each other. Each throws
// Rejected at the first fault.
#pragma once

#include <span>
#include <string>

#include <tutti/schedule.hpp>

namespace tutti::collectives {

/// The reason why schedules are rejected; verify() turns it into its verdict.
struct Rejected {
  std::string why;
  bool too_large = false;
};

/// Limits of what can be verified: the number of ranks times the chunks of a buffer, the number of
/// ranks times the scratch chunks, and the number of pieces that an `after` reaches back. Beyond
/// them the symbols would not fit in memory.
inline constexpr int kMostChunks = 1 << 20;
inline constexpr int kMostPiecesBack = 16;
/// The greatest number of operands on one side of a step, and of channel numbers. Programs and
/// transports count in types of this range.
inline constexpr int kMostOperands = 1 << 14;
inline constexpr int kMostChannels = 1 << 15;

/// Checks everything that can be checked without execution: numbers are in range, and fields that
/// must agree are equal on all ranks.
void check_shape(std::span<const Schedule> schedules);

/// Checks that any two accesses of different lanes of this rank to the same memory, at least one of
/// which writes, are ordered by `after`. Messages through other ranks order lanes, too, but no
/// schedule may depend on that: an order that is written down can be seen, and checking it costs a
/// comparison. Assumes that check_shape() has passed.
void check_races(const Schedule& schedule, const VerifyOptions& options);

/// Executes all ranks with symbols over bounded channels, and checks that they do not deadlock,
/// that messages have the expected sizes, and that results are right. Assumes that check_shape()
/// has passed and, if the result is to hold for all orders of execution, check_races().
void check_run(std::span<const Schedule> schedules, const VerifyOptions& options);

// --- texts for verdicts ---

std::string where(int rank, int lane, int step);    // "rank 1 lane 0 step 2"
std::string moment_text(int operation, int piece);  // "piece 0 of operation 1"

}  // namespace tutti::collectives
