#include "transport/ring/slot_stores.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>

namespace tutti {
namespace {

constexpr std::size_t kLines = 64;
constexpr std::uint64_t kFast = 4 * kLines, kSlow = 40 * kLines;  // ticks

void record(SlotStores& stores, std::uint64_t elapsed, int times) {
  for (int i = 0; i < times; ++i) stores.record(elapsed, kLines);
}

TEST(SlotStores, StreamAfterFourSlowMessages) {
  SlotStores stores;
  EXPECT_FALSE(stores.streams());
  record(stores, kSlow, 3);
  EXPECT_FALSE(stores.streams());
  record(stores, kSlow, 1);
  EXPECT_TRUE(stores.streams());
}

TEST(SlotStores, DoNotStreamWhereSlowMessagesAreTheFewerOnes) {
  SlotStores stores;
  for (int i = 0; i < 100; ++i) {
    record(stores, kSlow, 1);
    record(stores, kFast, 1);
    ASSERT_FALSE(stores.streams());
  }
}

TEST(SlotStores, StreamUntilTwoMessagesInARowAreFastAgain) {
  SlotStores stores;
  record(stores, kSlow, 4);
  record(stores, kSlow, 1);
  record(stores, kFast, 1);
  EXPECT_TRUE(stores.streams());
  record(stores, kSlow, 1);
  record(stores, kFast, 1);
  EXPECT_TRUE(stores.streams());
  record(stores, kFast, 1);
  EXPECT_FALSE(stores.streams());
  record(stores, kSlow, 3);  // They begin anew.
  EXPECT_FALSE(stores.streams());
}

TEST(SlotStores, TimeEachLongMessageAndAFewOfTheShortOnes) {
  SlotStores stores;
  int timed = 0;
  for (int i = 0; i < 160; ++i) timed += stores.is_timed(SlotStores::kLeastBytes) ? 1 : 0;
#if defined(__x86_64__)
  EXPECT_EQ(timed, 5);
  EXPECT_TRUE(stores.is_timed(1 << 20));
  EXPECT_TRUE(stores.is_timed(1 << 20));
#else
  EXPECT_EQ(timed, 0);
#endif
}

TEST(SlotStores, WriteOrdinarilyNowAndThenWhileTheyStream) {
  SlotStores stores;
  record(stores, kSlow, 4);
  int streamed = 0, ordinary = 0;
  for (int i = 0; i < 512; ++i)
    stores.write(1 << 20, 2, [&](bool streams) { ++(streams ? streamed : ordinary); });
  EXPECT_EQ(streamed + ordinary, 512);
#if defined(__x86_64__)
  // Both times the copy of nothing was fast.
  EXPECT_GE(ordinary, 2);
  EXPECT_FALSE(stores.streams());
#endif
}

}  // namespace
}  // namespace tutti
