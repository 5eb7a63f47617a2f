// The list of algorithms. Each is a pure function from a request to one rank's schedule.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include <tutti/schedule.hpp>

#include "collectives/schedule/renumbering.h"
#include "collectives/schedule/rounds.h"

namespace tutti {

/// An algorithm. Its schedules must be right in place and out of place alike; the verifier runs
/// both.
struct Algorithm {
  /// A collective, and the function that plans it for two ranks or more.
  struct Plan {
    Collective what;
    Schedule (*plan)(const PlanRequest&);
    /// In place of `plan`: it says the schedule in rounds.
    collectives::Rounds (*in_rounds)(const PlanRequest&) = nullptr;
  };

  std::string_view name;    ///< As in TUTTI_ALGORITHM, lower case.
  std::vector<Plan> plans;  ///< One for each collective that the algorithm implements.
  /// For gather, scatter and all_to_all: each block is sent in a message of its own directly from
  /// its source to its destination. Then only these two ranks need to know the block's length, as
  /// in gatherv, scatterv and all_to_allv.
  bool direct = false;
  /// See ScheduleProperties::rewrites_output; for all_reduce and reduce.
  bool rewrites_output = false;
  /// See ScheduleProperties::reduces_at_once; for more than two ranks.
  bool reduces_at_once = false;
  /// How the ranks of several groups are numbered for it, where that is possible.
  collectives::Numbering numbering = collectives::Numbering::ranks;
  bool grouped = false;  ///< Its plans go by the groups of the request themselves.

  bool knows(Collective what, int ranks) const;
  /// Returns whether the groups of a request may change what it plans.
  bool heeds_groups() const noexcept {
    return grouped || numbering != collectives::Numbering::ranks;
  }
  /// This rank's part of a collective that the algorithm knows.
  Schedule plan(const PlanRequest& request) const;
  /// The same in rounds. There are no repeats unless the algorithm says its schedule in rounds.
  collectives::Rounds plan_in_rounds(const PlanRequest& request) const;

 private:
  collectives::Rounds plan_as_numbered(const PlanRequest& request) const;
};

/// Returns all algorithms. Ranks compare an index in this list (CallSignature::algorithm).
std::span<const Algorithm> algorithms();

/// Returns whether tutti itself has an algorithm of this name, or uses the name for something else.
bool is_built_in_algorithm(std::string_view name);

}  // namespace tutti
