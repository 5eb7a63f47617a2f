// The algorithms that a program has added to a communicator. Each is verified before it moves a
// byte.
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

/// The bit of CallSignature::algorithm that marks a program's own algorithm. The other bits are
/// then a hash of its name and of all ranks' schedules, so that ranks notice when their algorithms
/// differ. A number without this bit is an index in algorithms().
inline constexpr std::uint32_t kOwnAlgorithm = 1u << 31;

/// Returns for example "algorithm ring" or "an algorithm of the program's own (89ab01cd)".
std::string describe_algorithm(std::uint32_t number);

/// Holds a program's own algorithms and their schedules. Thread-safe.
class OwnAlgorithms {
 public:
  /// `request` has this communicator's ranks and groups; its collective does not matter.
  explicit OwnAlgorithms(PlanRequest request) : request_(std::move(request)) {}

  /// Throws `usage` if the name is empty or taken, or if there is no planner.
  void add(std::string name, Planner planner);
  /// Adds all algorithms of `whole`, the communicator that this one was split off; this one has
  /// none yet. They are verified anew for its ranks.
  void add_all_of(const OwnAlgorithms& whole);
  bool has(std::string_view name) const;

  /// Returns the number of `name` for a collective and root. The first time, it plans the schedules
  /// of all ranks and verifies them, in place and out of place. Throws `usage` with the
  /// counter-example, and `unavailable` if messages of `message_bytes` cannot hold the widest step.
  std::uint32_t number(std::string_view name, Collective what, int root, std::size_t message_bytes);

  /// Returns this rank's schedule, for a number that number() has returned.
  const Schedule& schedule(std::uint32_t number) const;
  /// Returns the properties of all ranks' schedules.
  ScheduleProperties properties(std::uint32_t number) const;

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
    ScheduleProperties properties;
  };
  std::map<std::uint32_t, Proved> proved_;  // guarded by mutex_; entries never change
};

}  // namespace tutti
