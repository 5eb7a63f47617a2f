// Declares the simulator over the graph of a fabric, which runs the steps of ranks, or of one rank
// of each class, and shares links among the messages that use them at once, but moves no byte.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "collectives/planning/machine_costs.h"
#include "collectives/planning/rank_classes.h"

namespace tutti {

/// Holds the costs of a rank's steps and messages beside the bandwidth of links. They are
/// assumptions about GPUs, not measurements.
struct GraphCosts {
  Picoseconds step = 500'000;          ///< Each step, beside its bytes.
  Picoseconds node_latency = 700'000;  ///< A message within a node, beside its links' latencies.
  Picoseconds network_latency = 3'000'000;  ///< A message between nodes.
  double copy_gb_per_s = 200;    ///< A lane reads its first operand and writes its results.
  double reduce_gb_per_s = 200;  ///< A lane adds a further operand.
  int window = 8;                ///< Messages that a channel holds; 2 to 64.
};

/// Says how long the steps were of the chain of events that ends last.
struct TimeParts {
  double steps = 0;     ///< The cost of each step.
  double bytes = 0;     ///< Copying and reducing in a rank.
  double transfer = 0;  ///< Bytes on links.
  double latency = 0;   ///< Of messages.

  double sum() const { return steps + bytes + transfer + latency; }
  bool operator==(const TimeParts&) const = default;
};

/// A step of a rank that was recorded.
struct StepSpan {
  std::uint32_t actor, lane;
  std::uint32_t receives, inputs, sends;  ///< `inputs` with the messages that it receives.
  std::uint64_t bytes, piece, round;
  Picoseconds begin, end;
};

/// Holds what the simulation found.
struct GraphRun {
  Picoseconds time = 0;  ///< From the start of all ranks to the end of the last.
  TimeParts parts;       ///< In picoseconds; they add up to `time`.
  std::uint64_t events = 0;
  /// Rounds or pieces that were left out because they repeat what came before, summed over lanes.
  std::uint64_t repeated_steps = 0;
  std::vector<StepSpan> spans;
};

/// Describes what is simulated: actors, each of which stands for the ranks of a class.
struct GraphRequest {
  const RankPlans& plans;
  const ChannelRoutes& channels;
  const RankClasses& classes;
  const Routes& routes;
  GraphCosts costs = {};
  double tolerance = 0;      ///< See LinkSharing.
  bool skip_repeats = true;  ///< Leave out what repeats.
  std::uint64_t most_events = 100'000'000;
  std::size_t recorded_actors = 0, most_spans = 0;  ///< The first actors' steps are recorded.
  std::function<void(const char* what, double part)> progress = {};
};

/// Runs all ranks' steps. Throws `unavailable` for more than `most_events`, and for a time of more
/// than 10^18 ps. Deterministic.
GraphRun run_on_graph(const GraphRequest& request);

/// Returns the latency of a message over these links.
Picoseconds latency_of(const Routes& routes, const GraphCosts& costs, int from, int to,
                       const std::uint32_t* first, const std::uint32_t* last);

}  // namespace tutti
