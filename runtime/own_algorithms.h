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
#include "runtime/schedule_files.h"

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
  /// `files` are proved and have a schedule for each rank of this communicator. Throws as add().
  OwnAlgorithms(PlanRequest request, std::vector<ScheduleFilePtr> files)
      : request_(std::move(request)) {
    for (ScheduleFilePtr& file : files) add(std::move(file));
  }

  /// Throws `usage` if the name is empty or taken, or if there is no planner.
  void add(std::string name, Planner planner);
  /// Adds the schedules of a file, which is proved and has one for each rank of this communicator.
  /// Throws `usage` if its name is empty or taken.
  void add(ScheduleFilePtr file);
  /// Adds the files of a path for this number of ranks, proved, and returns their names; adds none
  /// of them where it throws what read_schedule_files_of(), prove() and add() throw.
  std::vector<std::string> add_files(const std::string& path);
  /// Adds all algorithms of `whole`, the communicator that this one was split off, except those of
  /// files for another number of ranks and those that this one has. They are verified anew for its
  /// ranks.
  void add_all_of(const OwnAlgorithms& whole);
  bool has(std::string_view name) const;

  /// Returns the number of `name` for a collective and root. The first time, it plans the schedules
  /// of all ranks and verifies them, in place and out of place. Throws `usage` with the
  /// counter-example, and `unavailable` if messages of `message_bytes` cannot hold the widest step.
  std::uint32_t number(std::string_view name, Collective what, int root, std::size_t message_bytes);

  /// Returns the name of the first file, in the order of names, that is meant for calls of this
  /// collective, root and size, and whose widest step fits messages of `message_bytes`; empty if
  /// there is none.
  std::string of_window(Collective what, int root, std::uint64_t bytes,
                        std::size_t message_bytes) const;

  /// Returns the name of the algorithm that has this number, or an empty one.
  std::string name_of(std::uint32_t number) const;
  /// Returns this rank's schedule, for a number that number() has returned.
  const Schedule& schedule(std::uint32_t number) const;
  /// Returns the properties of all ranks' schedules.
  ScheduleProperties properties(std::uint32_t number) const;

 private:
  using Use = std::tuple<std::string, Collective, int>;  // name, collective, root
  /// An algorithm is a function or a file.
  struct Entry {
    Planner planner;
    ScheduleFilePtr file;
  };
  std::vector<Schedule> proved(const std::string& name, const Entry& entry, Collective what,
                               int root) const;
  void add(std::string name, Entry entry);
  void check_name(const std::string& name, const ScheduleFile* file) const;

  const PlanRequest request_;
  mutable sync::Mutex mutex_;
  std::map<std::string, Entry, std::less<>> entries_;  // guarded by mutex_
  std::map<Use, std::uint32_t> numbers_;               // guarded by mutex_
  struct Proved {
    Schedule own;
    ScheduleProperties properties;
  };
  std::map<std::uint32_t, Proved> proved_;  // guarded by mutex_; entries never change
};

}  // namespace tutti
