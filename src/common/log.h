// The log: lines to whoever the configuration names. The library never writes to standard output.
#pragma once

#include <fmt/format.h>

#include <mutex>
#include <utility>

#include <tutti/config.hpp>

namespace tutti {

/// Thread-safe. Lines above the level cost one comparison.
class Log {
 public:
  Log(LogLevel level, LogSink sink);  ///< An empty sink: spdlog to standard error.

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
