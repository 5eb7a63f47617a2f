// Starts more ranks on this machine than it has cores for: as many as a machine with three hundred
// cores may run.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <set>
#include <string>
#include <vector>

#include "../tools/command.h"
#include "watchdog.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED
#endif
#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED
#endif
#endif

namespace tutti::tools {
namespace {

using testing::IsEmpty;

#ifdef SANITIZED
constexpr int kRanks = 64;  // Each of them takes as much memory as ten ordinary ranks.
#else
constexpr int kRanks = 600;
#endif
constexpr int kMinutes = 4;

// The limit of 1024 descriptors for a process is the usual default.
TEST(ManyRanks, StartOnOneMachineWithTheUsualSoftLimitOfDescriptors) {
  // It takes over a minute on a machine that compiles.
  watchdog::allow(std::chrono::minutes(kMinutes));
  // A rank that has no turn for seconds is no stall to report, nor is one that comes late.
  Command command({"env", "TUTTI_STALL_MS=0", "TUTTI_LOG_LEVEL=error", "sh", "-c",
                   "ulimit -Sn 1024 && exec \"$0\" \"$@\"", TUTTI_RUN, "-n", std::to_string(kRanks),
                   "--", TUTTI_RANK});
  int status = -1;
  for (int minute = 0; status == -1 && minute < kMinutes; ++minute) status = command.wait();
  EXPECT_EQ(status, 0);
  EXPECT_THAT(command.err(), IsEmpty());
  const std::vector<std::string> lines = command.out_lines();
  std::set<std::string> expected;
  for (int rank = 0; rank < kRanks; ++rank)
    expected.insert(
        fmt::format("[{}] rank {} of {}: sum {}", rank, rank, kRanks, kRanks * (kRanks + 1) / 2));
  EXPECT_EQ(std::set<std::string>(lines.begin(), lines.end()), expected);
}

}  // namespace
}  // namespace tutti::tools
