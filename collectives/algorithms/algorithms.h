// The list of algorithms. Each is a pure function from a request to one rank's schedule.
#pragma once

#include <span>
#include <string_view>

#include <tutti/schedule.hpp>

namespace tutti {

/// An algorithm. Its schedules must be right in place and out of place alike; the verifier runs
/// both.
struct Algorithm {
  std::string_view name;                 ///< As in TUTTI_ALGORITHM, lower case.
  bool (*knows)(Collective, int ranks);  ///< Whether plan() may be asked for this.
  Schedule (*plan)(const PlanRequest&);
  /// For gather, scatter and all_to_all: each block is sent in a message of its own directly from
  /// its source to its destination. Then only these two ranks need to know the block's length, as
  /// in gatherv, scatterv and all_to_allv.
  bool direct = false;
  /// For all_reduce and reduce: the output holds partial results for a while, see
  /// Facts::rewrites_output.
  bool rewrites_output = false;
  /// For collectives that reduce, with more than two ranks: see Facts::reduces_at_once.
  bool reduces_at_once = false;
};

/// Returns all algorithms. Ranks compare an index in this list (CallSignature::algorithm).
std::span<const Algorithm> algorithms();

}  // namespace tutti
