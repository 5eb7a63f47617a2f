// Collects what ranks log, for tests.
#pragma once

#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include <tutti/config.hpp>

namespace tutti::test {

class Lines {
 public:
  LogSink sink() {
    return [this](LogLevel, std::string_view line) {
      const std::lock_guard lock(mutex_);
      lines_.emplace_back(line);
    };
  }
  std::vector<std::string> with(const std::string& part) const {
    const std::lock_guard lock(mutex_);
    std::vector<std::string> found;
    for (const std::string& line : lines_)
      if (line.find(part) != std::string::npos) found.push_back(line);
    return found;
  }

 private:
  mutable std::mutex mutex_;
  std::vector<std::string> lines_;
};

}  // namespace tutti::test
