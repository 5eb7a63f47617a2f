// The log, whose lines go to the sink that the configuration names. The library never writes to
// standard output.
#pragma once

#include <fmt/format.h>

#include <mutex>
#include <string_view>
#include <utility>

#include <tutti/config.hpp>

namespace tutti {

std::string_view to_string(LogLevel level) noexcept;

/// Writes lines to a sink. Thread-safe. A line that is less urgent than the level costs one
/// comparison.
class Log {
 public:
  /// An empty sink stands for standard error, with lines of the form "tutti[warn] text". Exceptions
  /// of the sink are ignored.
  Log(LogLevel level, LogSink sink);

  template <typename... Args>
  void write(LogLevel level, fmt::format_string<Args...> format, Args&&... args) {
    if (level <= level_) line(level, fmt::format(format, std::forward<Args>(args)...));
  }

 private:
  void line(LogLevel level, std::string_view text);

  const LogLevel level_;
  std::mutex mutex_;
  const LogSink sink_;  // called with mutex_ held
};

}  // namespace tutti
