// Runs a scenario under many seeds, each time in another interleaving of its threads, and reports
// the first that fails with the few switches that are needed for it.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tests/interleaving/scheduler.h"

namespace tutti::interleaving {

/// The body of the first thread of a scenario. It makes what the scenario needs, starts the others
/// as sync::Thread, and joins them.
using Scenario = std::function<void(Scheduler&)>;

/// Names what is to be run. main() takes it from the command line.
struct Effort {
  std::uint64_t first_seed = 1;
  std::uint64_t seeds = 0;  ///< 0: as many as the scenario names.
  std::chrono::seconds most_time{20};
  std::optional<Policy> policy;  ///< None: the seed decides.
  bool single = false;           ///< Runs the first seed alone.
  bool shrinks = true;           ///< Whether a failure is shrunk and explained.
};
Effort& effort();

/// The policy of a seed where none is given.
inline Policy policy_of(std::uint64_t seed) {
  return seed % 2 == 0 ? Policy::random : Policy::priorities;
}

struct Failure {
  std::uint64_t seed = 0;
  Policy policy = Policy::calm;
  Ending ending = Ending::done;
  std::string text;    ///< What is wrong: the scheduler's words, or what the process wrote.
  std::string report;  ///< The same for a reader: with the switches that are needed, and stacks.
  std::vector<Switch> switches;  ///< After shrinking.
};

struct Exploration {
  std::uint64_t seeds = 0;  ///< The number of runs.
  std::uint64_t steps = 0;  ///< Of all runs together.
  double seconds = 0;
  std::optional<Failure> failure;
};

/// Runs `scenario` with `seeds` seeds, or with fewer in most_time, in forked processes. Stops at
/// the first failure, which it shrinks. Called by a process with a single thread.
Exploration explore(const Scenario& scenario, std::uint64_t seeds, const Effort& effort);

/// Does the same with the command line's effort and prints what was done; a failure is one of the
/// test that runs.
void explore(const Scenario& scenario, std::uint64_t seeds);

/// The result of a single run in a process of its own.
struct Outcome {
  Ending ending = Ending::running;
  std::uint64_t hash = 0;
  std::uint64_t steps = 0;
  std::vector<Switch> switches;
  std::string text;
  std::string errors;  ///< What the process wrote to standard error.
};
Outcome run_once(const Scenario& scenario, const RunPlan& plan);

}  // namespace tutti::interleaving
