// Writes the results in the JSON format of nccl-tests' -J (its file version 3).
#pragma once

#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "perf/options.h"
#include "perf/table.h"

namespace tutti::perf {

/// The results of a run.
struct Report {
  std::vector<std::string> arguments;
  std::string start_time, end_time;
  std::vector<Device> devices;
  std::vector<Row> rows;
  Summary summary;
  std::optional<Mover> mover;  ///< Where there are GPUs.
};

/// Returns the document. It has nccl-tests' keys in nccl-tests' order, and four of tutti:
/// `tutti_version`, `limit_us`, `one_way_ns` and, where there are GPUs, `moved_by`. Numbers are in
/// full precision; flags are the strings "true" and "false", as in nccl-tests.
[[nodiscard]] std::string to_json(const Report& report, const Options& options,
                                  std::string_view version);

/// Returns whether the path is a device or a pipe (/dev/stdout, for example), which holds nothing
/// that would be lost.
bool is_stream(const std::string& path);

/// A file that is created at the start, so that a path that cannot be written is reported before
/// hours of measurement. An existing file is kept, as in nccl-tests: the new one is then `path`.0,
/// `path`.1 and so on. A stream is written to.
class OutputFile {
 public:
  /// Error messages name the `option` that asked for the file.
  OutputFile(std::string option, const std::string& path);

  const std::string& path() const noexcept { return path_; }
  void write(std::string_view text);

 private:
  struct Closer {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };

  std::string option_, path_;
  std::unique_ptr<std::FILE, Closer> file_;
};

}  // namespace tutti::perf
