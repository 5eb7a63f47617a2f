#include "common/log.h"

#include <spdlog/logger.h>
#include <spdlog/sinks/stdout_sinks.h>

#include <array>
#include <memory>

namespace tutti {
namespace {

constexpr std::array<std::string_view, 4> kLevelNames{"error", "warn", "info", "debug"};

// A logger of our own: spdlog's registry and default logger are the program's, not the library's.
LogSink standard_error() {
  auto logger = std::make_shared<spdlog::logger>(
      "tutti", std::make_shared<spdlog::sinks::stderr_sink_st>());  // Log holds its mutex
  logger->set_pattern("%v");
  return [logger](LogLevel level, std::string_view text) {
    logger->critical("tutti[{}] {}", to_string(level), text);
  };
}

}  // namespace

std::string_view to_string(LogLevel level) noexcept {
  const auto index = static_cast<std::size_t>(level);
  return index < kLevelNames.size() ? kLevelNames[index] : "unknown";
}

Log::Log(LogLevel level, LogSink sink)
    : level_(level), sink_(sink ? std::move(sink) : standard_error()) {}

void Log::line(LogLevel level, std::string_view text) {
  const std::lock_guard lock(mutex_);
  try {
    sink_(level, text);
  } catch (...) {
    // A line that cannot be written must not fail the collective that wanted to write it.
  }
}

}  // namespace tutti
