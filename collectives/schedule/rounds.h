// Schedules said in rounds: steps that repeat are written once, with what is added to their numbers
// from one round to the next. One rank's part of a ring over 100 000 ranks has 200 000 steps; said
// in rounds it has six.
#pragma once

#include <vector>

#include <tutti/schedule.hpp>

namespace tutti::collectives {

/// Holds the amounts by which the numbers in a step grow from one round to the next.
struct Shift {
  int chunk = 0;  ///< To Step::chunk and to operands in input and output, around Schedule::chunks.
  int peer = 0;   ///< To the ranks of peers, around Schedule::ranks.

  bool operator==(const Shift&) const = default;
};

/// Consecutive steps of a lane that are done `count` times, one round after the other. They are
/// written as they are in the first round.
struct Repeat {
  int lane = 0;
  int first = 0;  ///< The first of the steps.
  int steps = 1;
  int count = 1;
  Shift shift = {};

  bool operator==(const Repeat&) const = default;
};

/// One rank's part of a collective. `After::step` counts the steps as they are written: a step that
/// repeats is after the same round of a step that repeats as often; any other is after the last
/// round.
struct Rounds {
  Schedule written;
  std::vector<Repeat> repeats = {};  ///< Ascending by lane and first step; none share a step.

  bool operator==(const Rounds&) const = default;
};

/// The plain schedule, which the verifier and the compiler read.
Schedule expand(Rounds rounds);

}  // namespace tutti::collectives
