// The list of algorithms: each a pure function from what is asked to one rank's schedule.
#pragma once

#include <span>
#include <string_view>

#include <tutti/schedule.hpp>

namespace tutti {

/// Lanes of one rank's schedule must be right in place and out of place alike; the verifier runs
/// both.
struct Algorithm {
  std::string_view name;                 ///< As in TUTTI_ALGORITHM, lower case.
  bool (*knows)(Collective, int ranks);  ///< Whether plan() may be asked for this.
  Schedule (*plan)(const PlanRequest&);
  /// Of gather, scatter and all_to_all: each block goes in a message of its own from its source to
  /// its destination. So only these two need to know its length, as in gatherv, scatterv and
  /// all_to_allv.
  bool direct = false;
  /// Of all_reduce and reduce: partial results wait in the output, see Facts::rewrites_output.
  bool rewrites_output = false;
  /// Of what reduces, with more than two ranks: see Facts::reduces_at_once.
  bool reduces_at_once = false;
};

/// All of them. The index in this list is what ranks compare (CallSignature::algorithm).
std::span<const Algorithm> algorithms();

}  // namespace tutti
