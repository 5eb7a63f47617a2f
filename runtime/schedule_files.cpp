#include "runtime/schedule_files.h"

#include <algorithm>
#include <filesystem>
#include <set>
#include <system_error>

#include <fmt/format.h>

#include <tutti/error.hpp>

#include "collectives/algorithms/algorithms.h"
#include "common/text.h"

namespace tutti {
namespace {

constexpr std::size_t kMostFiles = 256;

std::vector<std::string> paths_of(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code failed;
  if (!fs::is_directory(path, failed)) return {path};
  std::vector<std::string> paths;
  for (fs::directory_iterator at(path, failed), end; !failed && at != end; at.increment(failed)) {
    const std::string extension = at->path().extension();
    if (extension == ".xml" || extension == ".json") paths.push_back(at->path().string());
    if (paths.size() > kMostFiles)
      throw Error(ErrorKind::usage, fmt::format("the folder of schedules {} has more than {} files",
                                                shown(path), kMostFiles));
  }
  if (failed)
    throw Error(ErrorKind::usage, fmt::format("the folder of schedules {} cannot be read: {}",
                                              shown(path), failed.message()));
  std::sort(paths.begin(), paths.end());
  return paths;
}

}  // namespace

std::vector<ScheduleFilePtr> read_schedule_files(const std::string& path) {
  std::vector<ScheduleFilePtr> files;
  std::set<std::pair<std::string, std::size_t>> names;  // with the number of ranks
  for (const std::string& one : paths_of(path)) {
    files.push_back(std::make_shared<const ScheduleFile>(read_schedule_file(one)));
    const ScheduleFile& file = *files.back();
    if (!names.insert({file.name, file.schedules.size()}).second)
      throw Error(ErrorKind::usage,
                  fmt::format("{}: another file has an algorithm of the name {} for {} ranks, too",
                              one, shown(file.name), file.schedules.size()));
  }
  return files;
}

std::vector<ScheduleFilePtr> read_schedule_files_of(const std::string& path, int ranks) {
  std::vector<ScheduleFilePtr> files = read_schedule_files(path);
  const auto others = [&](const ScheduleFilePtr& file) {
    return file->schedules.size() != static_cast<std::size_t>(ranks);
  };
  const std::string found = files.size() == 1
                                ? fmt::format("those of {} ranks", files[0]->schedules.size())
                                : fmt::format("{} files for other numbers of ranks", files.size());
  files.erase(std::remove_if(files.begin(), files.end(), others), files.end());
  if (files.empty())
    throw Error(ErrorKind::usage,
                fmt::format("{} has no schedules of {} ranks, but {}", shown(path), ranks, found));
  return files;
}

void prove(const ScheduleFile& file) {
  for (const bool in_place : {false, true}) {
    const Verdict verdict = verify(file.schedules, {.in_place = in_place});
    if (!verdict.ok)
      throw Error(ErrorKind::usage,
                  fmt::format("{}: the schedules of {} {} for {} of {} ranks{}: {}",
                              escape_controls(file.path), shown(file.name),
                              verdict.too_large ? "cannot be proved" : "are wrong",
                              to_string(file.schedules[0].what), file.schedules.size(),
                              in_place ? " in place" : "", verdict.why));
  }
}

ScheduleFiles::ScheduleFiles(const std::string& path) {
  if (path.empty()) return;
  files_ = read_schedule_files(path);
  for (const ScheduleFilePtr& file : files_) {
    if (file->name.empty() || is_built_in_algorithm(file->name))
      throw Error(ErrorKind::usage,
                  fmt::format("{}: tutti uses the name {} itself: give the algorithm another one",
                              escape_controls(file->path), shown(file->name)));
    prove(*file);
  }
}

std::vector<ScheduleFilePtr> ScheduleFiles::of(int ranks) const {
  std::vector<ScheduleFilePtr> found;
  for (const ScheduleFilePtr& file : files_)
    if (file->schedules.size() == static_cast<std::size_t>(ranks)) found.push_back(file);
  return found;
}

}  // namespace tutti
