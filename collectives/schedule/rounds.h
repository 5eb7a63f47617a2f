// Schedules written in rounds: steps that repeat are written once, with the amounts by which their
// numbers grow from one round to the next. One rank's part of a ring of 100 000 ranks has 200 000
// steps; written in rounds it has six.
#pragma once

#include <vector>

#include <tutti/schedule.hpp>

namespace tutti::collectives {

/// Holds the amounts by which the numbers in a step grow from one round to the next.
struct Shift {
  /// Added to Step::chunk and to operands in input and output, modulo Schedule::chunks.
  int chunk = 0;
  int peer = 0;  ///< Added to the ranks of peers, modulo Schedule::ranks.

  bool operator==(const Shift&) const = default;
};

/// Consecutive steps of a lane that are done `count` times, one round after the other. They are
/// written with the numbers of the first round.
struct Repeat {
  int lane = 0;
  int first = 0;  ///< Index of the first of the steps.
  int steps = 1;
  int count = 1;
  Shift shift = {};

  bool operator==(const Repeat&) const = default;
};

/// One rank's part of a collective. `After::step` counts the steps as they are written. A step that
/// repeats waits for the same round of a step that repeats as often; otherwise it waits for the
/// last round.
struct Rounds {
  Schedule written;
  /// Sorted by lane and first step; no two of them share a step.
  std::vector<Repeat> repeats = {};

  bool operator==(const Rounds&) const = default;
};

/// Returns the plain schedule, which the verifier and the compiler read.
Schedule expand(Rounds rounds);

}  // namespace tutti::collectives
