// The program's own algorithms of one communicator, each proved before it moves a byte.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <tuple>

#include <tutti/schedule.hpp>
#include <tutti/tutti.hpp>

#include "collectives/schedule/program.h"
#include "common/sync.h"

namespace tutti {

/// As CallSignature::algorithm: an own one has this bit, and beside it a hash of its name and of
/// all ranks' schedules, so that ranks whose algorithms differ notice. Those without are indices in
/// algorithms().
inline constexpr std::uint32_t kOwnAlgorithm = 1u << 31;

/// "algorithm ring", "an algorithm of the program's own (89ab01cd)".
std::string describe_algorithm(std::uint32_t number);

/// Thread-safe.
class OwnAlgorithms {
 public:
  /// `request`: with this communicator's ranks and groups, for any collective.
  explicit OwnAlgorithms(PlanRequest request) : request_(std::move(request)) {}

  /// Throws `usage` for a name that is empty or taken, and for no planner.
  void add(std::string name, Planner planner);
  /// Those of a communicator that this one, which has none yet, was split off: they are proved anew
  /// for its ranks.
  void add_all_of(const OwnAlgorithms& whole);
  bool has(std::string_view name) const;

  /// The number of `name` for a collective and root. The first time, it plans the schedules of all
  /// ranks and proves them, in place and out of place: throws `usage` with the counter-example, and
  /// `unavailable` where messages of `message_bytes` cannot hold its widest step.
  std::uint32_t number(std::string_view name, Collective what, int root, std::size_t message_bytes);

  /// This rank's, for a number that was given out.
  const Schedule& schedule(std::uint32_t number) const;
  /// Those of all ranks' schedules.
  Facts facts(std::uint32_t number) const;

 private:
  using Use = std::tuple<std::string, Collective, int>;  // name, collective, root
  std::vector<Schedule> proved(const std::string& name, const Planner& planner, Collective what,
                               int root) const;

  const PlanRequest request_;
  mutable sync::Mutex mutex_;
  std::map<std::string, Planner, std::less<>> planners_;  // guarded by mutex_
  std::map<Use, std::uint32_t> numbers_;                  // guarded by mutex_
  struct Proved {
    Schedule own;
    Facts facts;
  };
  std::map<std::uint32_t, Proved> proved_;  // guarded by mutex_; entries stay as they are
};

}  // namespace tutti
