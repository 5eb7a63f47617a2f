#include "runtime/own_algorithms.h"

#include <cassert>
#include <exception>
#include <utility>

#include <fmt/format.h>

#include "collectives/algorithms/algorithms.h"
#include "collectives/schedule/semantics.h"
#include "common/text.h"
#include "common/wire.h"

namespace tutti {
namespace {

constexpr std::size_t kLeastChunkBytes = 64;  // chunks start on cache lines

[[noreturn]] void refuse_algorithm(std::string_view name, const std::string& why) {
  throw Error(ErrorKind::usage, fmt::format("algorithm '{}' {}", name, why));
}

std::uint64_t hash(std::uint64_t seed, std::string_view text) {
  for (const char letter : text) seed = mix(seed ^ static_cast<unsigned char>(letter)) + 1;
  return seed;
}

std::string show_root(Collective what, int root) {
  return collectives::has_root(what) ? fmt::format(" with root {}", root) : std::string();
}

Schedule planned(const std::string& name, const Planner& planner, const PlanRequest& request) {
  const auto failed = [&](const std::string& why) {
    refuse_algorithm(name, fmt::format("cannot plan {} for rank {} of {}: {}",
                                       to_string(request.what), request.rank, request.ranks, why));
  };
  try {
    Schedule schedule = planner(request);
    if (schedule.what != request.what || schedule.ranks != request.ranks ||
        schedule.rank != request.rank || schedule.root != request.root)
      failed(fmt::format("it planned {} for rank {} of {}, root {}", to_string(schedule.what),
                         schedule.rank, schedule.ranks, schedule.root));
    return schedule;
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    failed(error.what());
  } catch (...) {
    failed("it threw something that is no std::exception");
  }
  assert(false);
  return {};
}

}  // namespace

std::string describe_algorithm(std::uint32_t number) {
  if ((number & kOwnAlgorithm) != 0) return "an algorithm of the program's own";
  const auto list = algorithms();
  return number < list.size() ? fmt::format("algorithm {}", list[number].name)
                              : fmt::format("algorithm {}", number);
}

void OwnAlgorithms::add(std::string name, Planner planner) {
  if (!planner) refuse_algorithm(name, "plans nothing: the function is empty");
  add(std::move(name), Entry{std::move(planner), nullptr});
}

void OwnAlgorithms::add(ScheduleFilePtr file) {
  assert(file->schedules.size() == static_cast<std::size_t>(request_.ranks));
  std::string name = file->name;
  add(std::move(name), Entry{nullptr, std::move(file)});
}

std::vector<std::string> OwnAlgorithms::add_files(const std::string& path) {
  std::vector<ScheduleFilePtr> files = read_schedule_files_of(path, request_.ranks);
  for (const ScheduleFilePtr& file : files) prove(*file);
  // All are added, or none.
  const std::lock_guard lock(mutex_);
  std::vector<std::string> names;
  for (const ScheduleFilePtr& file : files) {
    check_name(file->name, file.get());
    names.push_back(file->name);
  }
  for (ScheduleFilePtr& file : files) {
    std::string name = file->name;
    entries_.emplace(std::move(name), Entry{{}, std::move(file)});
  }
  return names;
}

// The caller holds the mutex.
void OwnAlgorithms::check_name(const std::string& name, const ScheduleFile* file) const {
  const std::string of_file = file == nullptr ? "" : " (of " + escape_controls(file->path) + ")";
  if (name.empty() || is_built_in_algorithm(name))
    refuse_algorithm(name, "has a name that tutti uses itself" + of_file);
  if (entries_.contains(name))
    refuse_algorithm(
        name, "was added before, to this communicator or one that it was split off" + of_file);
}

void OwnAlgorithms::add(std::string name, Entry entry) {
  const std::lock_guard lock(mutex_);
  check_name(name, entry.file.get());
  entries_.emplace(std::move(name), std::move(entry));
}

void OwnAlgorithms::add_all_of(const OwnAlgorithms& whole) {
  assert(&whole != this);
  const std::scoped_lock both(mutex_, whole.mutex_);
  for (const auto& [name, entry] : whole.entries_)
    if (entry.file == nullptr ||
        entry.file->schedules.size() == static_cast<std::size_t>(request_.ranks))
      entries_.try_emplace(name, entry);
}

bool OwnAlgorithms::has(std::string_view name) const {
  const std::lock_guard lock(mutex_);
  return entries_.find(name) != entries_.end();
}

std::string OwnAlgorithms::of_window(Collective what, int root, std::uint64_t bytes,
                                     std::size_t message_bytes) const {
  const std::lock_guard lock(mutex_);
  for (const auto& [name, entry] : entries_) {
    if (entry.file == nullptr) continue;
    const Schedule& first = entry.file->schedules[0];
    if (first.what == what && first.root == root && entry.file->least_bytes <= bytes &&
        bytes <= entry.file->most_bytes &&
        static_cast<std::size_t>(first.widest) <= message_bytes / kLeastChunkBytes)
      return name;
  }
  return {};
}

std::string OwnAlgorithms::name_of(std::uint32_t number) const {
  const std::lock_guard lock(mutex_);
  for (const auto& [use, its] : numbers_)
    if (its == number) return std::get<0>(use);
  return {};
}

// The caller does not hold the mutex, because the planner belongs to the program and may call any
// function.
std::vector<Schedule> OwnAlgorithms::proved(const std::string& name, const Entry& entry,
                                            Collective what, int root) const {
  if (entry.file != nullptr) {
    const Schedule& first = entry.file->schedules[0];
    if (first.what != what || first.root != root)
      refuse_algorithm(name, fmt::format("is for {}{}, not for {}{} ({})", to_string(first.what),
                                         show_root(first.what, first.root), to_string(what),
                                         show_root(what, root), entry.file->path));
    return entry.file->schedules;
  }
  std::vector<Schedule> schedules;
  PlanRequest request = request_;
  request.what = what;
  request.root = root;
  for (request.rank = 0; request.rank < request.ranks; ++request.rank)
    schedules.push_back(planned(name, entry.planner, request));
  assert(schedules.size() == static_cast<std::size_t>(request_.ranks));
  for (const bool in_place : {false, true}) {
    const Verdict verdict = verify(schedules, {.in_place = in_place});
    if (!verdict.ok)
      refuse_algorithm(name, fmt::format("{} for {} of {} ranks: {}",
                                         verdict.too_large ? "cannot be proved" : "is wrong",
                                         to_string(what), request.ranks, verdict.why));
  }
  return schedules;
}

std::uint32_t OwnAlgorithms::number(std::string_view name, Collective what, int root,
                                    std::size_t message_bytes) {
  const Use use{name, what, root};
  Entry entry;
  {
    const std::lock_guard lock(mutex_);
    if (const auto found = numbers_.find(use); found != numbers_.end()) return found->second;
    entry = entries_.at(std::get<0>(use));
  }
  std::vector<Schedule> schedules = proved(std::get<0>(use), entry, what, root);
  const auto widest = static_cast<std::size_t>(schedules[0].widest);
  if (widest > message_bytes / kLeastChunkBytes)
    throw Error(ErrorKind::unavailable,
                fmt::format("algorithm '{}' moves {} chunks in one step, but messages of {} bytes "
                            "hold {}; raise TUTTI_MESSAGE_BYTES, or use narrower steps",
                            name, widest, message_bytes, message_bytes / kLeastChunkBytes));
  std::uint64_t all = hash(0, name);
  for (const Schedule& schedule : schedules) all = hash(all, to_text(schedule));
  const std::uint32_t number = static_cast<std::uint32_t>(all ^ all >> 32) | kOwnAlgorithm;
  const std::lock_guard lock(mutex_);
  const ScheduleProperties properties = properties_of(schedules);
  const auto [kept, added] = proved_.try_emplace(
      number, Proved{std::move(schedules[static_cast<std::size_t>(request_.rank)]), properties});
  if (!added)
    refuse_algorithm(name, "has the number of another one by chance: give it another name");
  return numbers_[use] = number;
}

const Schedule& OwnAlgorithms::schedule(std::uint32_t number) const {
  assert((number & kOwnAlgorithm) != 0);
  const std::lock_guard lock(mutex_);
  return proved_.at(number).own;
}

ScheduleProperties OwnAlgorithms::properties(std::uint32_t number) const {
  assert((number & kOwnAlgorithm) != 0);
  const std::lock_guard lock(mutex_);
  return proved_.at(number).properties;
}

}  // namespace tutti
