#include "common/log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace tutti {
namespace {

using testing::ElementsAre;
using testing::internal::CaptureStderr;
using testing::internal::CaptureStdout;
using testing::internal::GetCapturedStderr;
using testing::internal::GetCapturedStdout;

TEST(Log, GivesTheProgramsSinkTheLinesUpToItsLevel) {
  std::vector<std::pair<LogLevel, std::string>> lines;
  Log log(LogLevel::info,
          [&](LogLevel level, std::string_view text) { lines.emplace_back(level, text); });
  log.write(LogLevel::error, "rank {} of {}", 1, 4);
  log.write(LogLevel::debug, "not this");
  log.write(LogLevel::info, "{{}}");
  log.write(LogLevel::warn, "host {}", "\x1b[2J");
  EXPECT_THAT(lines, ElementsAre(std::pair(LogLevel::error, std::string("rank 1 of 4")),
                                 std::pair(LogLevel::info, std::string("{}")),
                                 std::pair(LogLevel::warn, std::string("host \\x1b[2J"))));
}

TEST(Log, WritesToStandardErrorAndNeverToStandardOutput) {
  CaptureStdout();
  CaptureStderr();
  {
    Log log(LogLevel::warn, {});
    log.write(LogLevel::warn, "peer {} is slow", 3);
    log.write(LogLevel::error, "100% {}", "{done}");
    log.write(LogLevel::info, "hidden");
  }
  EXPECT_EQ(GetCapturedStderr(), "tutti[warn] peer 3 is slow\ntutti[error] 100% {done}\n");
  EXPECT_EQ(GetCapturedStdout(), "");
}

TEST(Log, SurvivesASinkThatThrows) {
  int calls = 0;
  Log log(LogLevel::warn, [&](LogLevel, std::string_view) {
    ++calls;
    throw std::runtime_error("disk full");
  });
  EXPECT_NO_THROW(log.write(LogLevel::warn, "one"));
  EXPECT_NO_THROW(log.write(LogLevel::warn, "two"));
  EXPECT_EQ(calls, 2);
}

TEST(Log, NeverCallsTheSinkFromTwoThreadsAtOnce) {
  // There is no mutex here: the thread sanitizer reports two calls at once, and the count may show
  // them, too.
  int lines = 0;
  Log log(LogLevel::warn, [&](LogLevel, std::string_view) { ++lines; });
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 1000; ++i) log.write(LogLevel::warn, "line");
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(lines, 4000);
}

}  // namespace
}  // namespace tutti
