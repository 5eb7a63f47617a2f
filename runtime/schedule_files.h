// Reads the files of schedules that a setting or a program names, and verifies each before it is
// used.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/formats/schedule_file.h"

namespace tutti {

using ScheduleFilePtr = std::shared_ptr<const ScheduleFile>;

/// Reads a file, or all files of a folder whose names end in .xml or .json, in the order of their
/// names; at most 256. Throws `usage` for a path that is neither, for two files of one name of an
/// algorithm, and what read_schedule_file() throws.
std::vector<ScheduleFilePtr> read_schedule_files(const std::string& path);

/// Reads a file of `ranks` ranks, or those of a folder that are of as many. Throws `usage` for a
/// file of another number of ranks and for a folder without any of this number.
std::vector<ScheduleFilePtr> read_schedule_files_of(const std::string& path, int ranks);

/// Verifies a file, in place and out of place. Throws `usage` with the counter-example.
void prove(const ScheduleFile& file);

/// The files that a setting names, which are read and verified once, at the start: those for other
/// numbers of ranks serve communicators that are split off or shrunk, whose making must not fail
/// for them. Constant, so any thread may use it.
class ScheduleFiles {
 public:
  /// An empty path names none. Throws what read_schedule_files() and prove() throw, and `usage` for
  /// an algorithm with a name of tutti's own.
  explicit ScheduleFiles(const std::string& path);

  /// Returns those for `ranks` ranks.
  std::vector<ScheduleFilePtr> of(int ranks) const;

 private:
  std::vector<ScheduleFilePtr> files_;
};

}  // namespace tutti
