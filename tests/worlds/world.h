// Runs a world: all ranks of a plan in one thread, in an order drawn from its seed, against the
// reference model.
#pragma once

#include <cstdint>
#include <string>

#include "plan.h"

namespace tutti::worlds {

struct Outcome {
  /// Says what the model does not allow, with the last events of each rank; empty if all was right.
  std::string wrong;
  std::uint64_t calls = 0;   // that ended
  std::uint64_t errors = 0;  // that calls and splits ended with
  TimePoint ended_at{};      // the simulated time
};

Outcome run(const Plan& plan);

/// Returns the smallest plan found that fails, too.
Plan shrunk(Plan failing);

}  // namespace tutti::worlds
