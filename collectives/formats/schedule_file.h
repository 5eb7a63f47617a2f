// Files that hold a collective's schedules, in any of the formats that are read.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include <tutti/schedule.hpp>

namespace tutti {

/// The schedules of one collective for one number of ranks, as a file has them. They are not
/// verified.
struct ScheduleFile {
  std::string path;
  std::string name;    ///< By which calls name the algorithm; by default the file's name.
  std::string format;  ///< "tutti", "msccl" or "mscclpp".
  /// The window of sizes for which the file is meant: the bytes of the whole vector, or of all
  /// blocks of the call.
  std::uint64_t least_bytes = 0;
  std::uint64_t most_bytes = std::numeric_limits<std::uint64_t>::max();
  std::vector<Schedule> schedules = {};  ///< One for each rank; at least one.
};

/// Each of these reads one format; `path` is the file's name in errors. Each throws `usage` with
/// the line or place for a malformed file, and `unavailable` for what tutti has no schedules for.
///
/// MSCCL's XML: docs/planning.md says what of it is read.
ScheduleFile read_msccl(const std::string& path, std::string text);
/// Reads an execution plan of MSCCL++.
ScheduleFile read_mscclpp(const std::string& path, const std::string& text);
/// Reads what to_json() writes for each schedule, in an array, or in an object as write_schedules()
/// makes it.
ScheduleFile read_schedules(const std::string& path, const std::string& text);

/// Reads a file in the format that its content shows.
ScheduleFile parse_schedule_file(const std::string& path, std::string text);
ScheduleFile read_schedule_file(const std::string& path);

/// Returns a JSON object with name, window and schedules.
std::string write_schedules(const ScheduleFile& file);
/// Returns MSCCL's XML. Throws `unavailable` for schedules that it cannot express: lanes with
/// several peers in one direction, messages that are passed on and not kept, and roots other than
/// 0. The schedules are proved.
std::string write_msccl(const ScheduleFile& file);

}  // namespace tutti
