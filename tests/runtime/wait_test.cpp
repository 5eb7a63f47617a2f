// Tests of wait() in which events are made to happen between its steps.
#include "runtime/engine/wait.h"

#include <gtest/gtest.h>

#include <stdexcept>

namespace tutti::test {
namespace {

struct PeerIsLost {};

// A look takes news from a connection that communicators share. Another thread may do so between
// this thread's look and its sleep, and it wakes only threads that have announced their sleep.
TEST(Wait, LooksOnceMoreForTheNewsOfAPeersEndAfterTheSleepIsAnnounced) {
  const SteadyClock clock;
  bool lost = false;
  EXPECT_THROW(wait(
                   WaitPolicy{0, 0, std::chrono::microseconds{0}}, clock, [] { return false; },
                   [&] {
                     if (lost) throw PeerIsLost();
                   },
                   [&](auto&& last_look) -> bool {
                     lost = true;
                     if (last_look()) return true;
                     throw std::runtime_error("it sleeps");
                   }),
               PeerIsLost);
}

TEST(Wait, EndsWithoutSleepingWhenTheLastLookBringsWhatItWaitsFor) {
  const SteadyClock clock;
  bool came = false;
  wait(
      WaitPolicy{0, 0, std::chrono::microseconds{0}}, clock, [&] { return came; }, [] {},
      [&](auto&& last_look) -> bool {
        came = true;
        EXPECT_TRUE(last_look());
        return true;
      });
}

}  // namespace
}  // namespace tutti::test
