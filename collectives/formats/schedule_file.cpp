#include "collectives/formats/schedule_file.h"

#include <fmt/format.h>

#include <tutti/error.hpp>

#include "common/files.h"
#include "common/json_file.h"

namespace tutti {

namespace {

ScheduleFile read_any(const std::string& path, std::string text) {
  const std::size_t begin = text.find_first_not_of(" \t\r\n\xef\xbb\xbf");
  if (begin == std::string::npos)
    throw Error(ErrorKind::usage, path +
                                      ": the file is empty; expected MSCCL's XML, an execution "
                                      "plan of MSCCL++, or tutti's JSON");
  if (text[begin] == '<') return read_msccl(path, std::move(text));
  // Of the two kinds of JSON, only plans of MSCCL++ have GPUs.
  return text.find("\"gpus\"") != std::string::npos ? read_mscclpp(path, text)
                                                    : read_schedules(path, text);
}

}  // namespace

ScheduleFile parse_schedule_file(const std::string& path, std::string text) {
  ScheduleFile file = read_any(path, std::move(text));
  if (file.least_bytes > file.most_bytes)
    throw Error(ErrorKind::usage, fmt::format("{}: no call is of {} bytes or more and {} or less",
                                              path, file.least_bytes, file.most_bytes));
  return file;
}

ScheduleFile read_schedule_file(const std::string& path) {
  return parse_schedule_file(path, read_file("the file of schedules", path, kMostJsonBytes));
}

}  // namespace tutti
