// The one wait, with what happens in between made to happen.
#include "runtime/engine/wait.h"

#include <gtest/gtest.h>

#include <stdexcept>

namespace tutti::test {
namespace {

struct PeerIsLost {};

// Looking takes the news from a connection that communicators share: another thread may do it
// between this one's look and its sleep, and rings only for those who have announced theirs.
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
