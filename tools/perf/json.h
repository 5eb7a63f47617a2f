// The results as nccl-tests writes them with -J (its file version 3).
#pragma once

#include <cstdio>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "perf/options.h"
#include "perf/table.h"

namespace tutti::perf {

/// All that a run has found out.
struct Report {
  std::vector<std::string> arguments;
  std::string start_time, end_time;
  std::vector<Device> devices;
  std::vector<Row> rows;
  Summary summary;
};

/// The document: nccl-tests' keys in its order, and of ours `tutti_version`, `limit_us` and
/// `one_way_ns`. Numbers are in full precision; flags are the strings "true" and "false", as
/// theirs.
[[nodiscard]] std::string to_json(const Report& report, const Options& options,
                                  std::string_view version);

/// A file that is there from the start, so that a path that cannot be written is known before hours
/// of measurement. As nccl-tests does, an existing file is kept: `path`.0, `path`.1 … is used then.
class OutputFile {
 public:
  /// `option` asked for it, for messages.
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
