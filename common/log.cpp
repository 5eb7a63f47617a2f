#include "common/log.h"

#include <spdlog/logger.h>
#include <spdlog/sinks/stdout_sinks.h>

#include <array>
#include <cassert>
#include <memory>

#include "common/text.h"

namespace tutti {
namespace {

constexpr std::array<std::string_view, 4> kLevelNames{"error", "warn", "info", "debug"};
static_assert(kLevelNames.size() == static_cast<std::size_t>(LogLevel::debug) + 1);

// The library has a logger of its own, since spdlog's registry and default logger belong to the
// program.
LogSink standard_error() {
  auto logger = std::make_shared<spdlog::logger>(
      "tutti",
      // The sink needs no mutex of its own: Log holds one while it calls it.
      std::make_shared<spdlog::sinks::stderr_sink_st>());
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
    sink_(level, escape_controls(text));
  } catch (...) {
    // A line that cannot be written must not fail the collective that wanted to log it.
  }
}

}  // namespace tutti
