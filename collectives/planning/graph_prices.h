// Predicts what a call takes on a fabric, and says how far the prediction is to be trusted.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "collectives/algorithms/algorithms.h"
#include "collectives/planning/graph_simulation.h"

namespace tutti {

struct GraphCall {
  const Algorithm* algorithm = nullptr;  ///< It knows `what` for `ranks`.
  Collective what = Collective::all_reduce;
  int ranks = 2;            ///< 2 to all GPUs of the fabric; the first ones, node after node.
  std::uint64_t bytes = 0;  ///< Of the vector, or of a block.
  std::size_t message_bytes = 512u << 10;  ///< The largest message.
  /// Run every step of every rank, with the length of each chunk, in place of one rank of each
  /// class. This is what the classes are compared with.
  bool every_rank = false;
  int recorded_ranks = 0;  ///< Steps of the first ranks are recorded.
  std::size_t most_spans = 100'000;
  /// Called now and then with what is done and how much of it, from 0 to 1.
  std::function<void(const char* what, double part)> progress = {};
};

/// Says what the links of one kind carry.
struct KindLoad {
  RouteKind kind = RouteKind::pci;
  double bytes = 0;       ///< Over all links of the kind.
  double most_bytes = 0;  ///< Over the link that is busy longest.
  double busy = 0;        ///< The part of the time that this link needs for its bytes.
  std::string link;       ///< The name of this link.
};

/// Describes a recorded step of one of the first ranks.
struct RankSpan {
  int rank;
  StepSpan span;
};

struct GraphPrice {
  Picoseconds time = 0;
  TimeParts parts;  ///< Of the chain of steps and messages that ends last; they add up to `time`.
  /// The busiest link needs this long for its bytes: no order of messages makes the call faster.
  Picoseconds at_least = 0;
  std::vector<KindLoad> loads;  ///< The busiest kind first.
  std::string bottleneck;       ///< What takes most of the time, in words.
  bool exact = false;
  std::vector<std::string> reasons;  ///< Why it is not exact.
  std::size_t classes = 0;           ///< Ranks that were simulated, each for all of its class.
  std::uint64_t events = 0, repeated_steps = 0;
  std::vector<RankSpan> spans;
};

/// Throws `usage` for more ranks than the fabric has GPUs, and `unavailable` for calls that take
/// too much time or memory to simulate. Deterministic and thread-safe.
GraphPrice price_on_graph(const GraphCall& call, const Routes& routes, const GraphCosts& costs);

}  // namespace tutti
