// The list of algorithms: each a pure function from what is asked to one rank's schedule.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include <tutti/schedule.hpp>

namespace tutti {

struct PlanRequest {
  Collective what = Collective::all_reduce;
  int rank = 0;
  int ranks = 1;
  int root = 0;
  /// By rank: the number of its group, for algorithms that go by groups (ranks of a host, say).
  /// Empty: nothing is known.
  std::vector<int> groups = {};
};

/// Lanes of one rank's schedule must be right in place and out of place alike; the verifier runs
/// both.
struct Algorithm {
  std::string_view name;                 ///< As in TUTTI_ALGORITHM, lower case.
  bool (*knows)(Collective, int ranks);  ///< Whether plan() may be asked for this.
  Schedule (*plan)(const PlanRequest&);
};

/// All of them. The index in this list is what ranks compare (CallSignature::algorithm).
std::span<const Algorithm> algorithms();

}  // namespace tutti
