// The log: lines to whoever the configuration names. The library never writes to standard output.
#pragma once

#include <fmt/format.h>

#include <mutex>
#include <string_view>
#include <utility>

#include <tutti/config.hpp>

namespace tutti {

std::string_view to_string(LogLevel level) noexcept;

/// Thread-safe. Lines above the level cost one comparison.
class Log {
 public:
  /// An empty sink: standard error, as lines "tutti[warn] text". What a sink throws is swallowed.
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
