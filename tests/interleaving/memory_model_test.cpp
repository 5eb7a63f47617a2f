// Tests of the memory model itself, with the litmus tests of the literature: what must be possible
// is seen, and what must not be is not.
#include "common/sync.h"
#include "tests/interleaving/meeting.h"

namespace tutti::interleaving {
namespace {

struct Words {
  sync::Atomic<int> x{0}, y{0};
  int plain = 0;
  int a = -1, b = -1, c = -1, d = -1;
};

TEST(MemoryModel, AStoreMayWaitWhileALaterLoadReturns) {
  static bool both_old;
  both_old = false;
  const Exploration found =
      explore<Words>({[](Words& w) { w.x.store(1, kRelease), w.a = w.y.load(kAcquire); },
                      [](Words& w) { w.y.store(1, kRelease), w.b = w.x.load(kAcquire); }},
                     [](Words& w) { both_old = both_old || (w.a == 0 && w.b == 0); });
  expect_holds(found, 4);
  EXPECT_TRUE(both_old) << "store buffering, which x86 permits";
}

TEST(MemoryModel, SequentiallyConsistentAccessesAndFencesForbidThat) {
  constexpr auto not_both_old = [](Words& w) { require(w.a + w.b > 0, "both are old"); };
  expect_holds(
      explore<Words>({[](Words& w) { w.x.store(1, kSequential), w.a = w.y.load(kSequential); },
                      [](Words& w) { w.y.store(1, kSequential), w.b = w.x.load(kSequential); }},
                     not_both_old),
      3);
  expect_holds(explore<Words>({[](Words& w) {
                                 w.x.store(1, kRelaxed), sync::fence(kSequential);
                                 w.a = w.y.load(kRelaxed);
                               },
                               [](Words& w) {
                                 w.y.store(1, kRelaxed), sync::fence(kSequential);
                                 w.b = w.x.load(kRelaxed);
                               }},
                              not_both_old),
               3);
  // One of the two fences only: both may be old.
  EXPECT_THAT(explore<Words>({[](Words& w) {
                                w.x.store(1, kRelaxed), sync::fence(kSequential);
                                w.a = w.y.load(kRelaxed);
                              },
                              [](Words& w) { w.y.store(1, kRelaxed), w.b = w.x.load(kRelaxed); }},
                             not_both_old)
                  .failure,
              HasSubstr("both are old"));
  // A barrier in all threads stands for the other one.
  expect_holds(explore<Words>({[](Words& w) {
                                 w.x.store(1, kRelaxed), sync::fenced_all_threads();
                                 w.a = w.y.load(kRelaxed);
                               },
                               [](Words& w) { w.y.store(1, kRelaxed), w.b = w.x.load(kRelaxed); }},
                              not_both_old),
               3);
}

TEST(MemoryModel, AMessageIsOrderedByReleaseAndAcquireAlone) {
  constexpr auto in_order = [](Words& w) { require(w.a == 0 || w.b == 1, "the message is old"); };
  expect_holds(
      explore<Words>({[](Words& w) { w.x.store(1, kRelaxed), w.y.store(1, kRelease); },
                      [](Words& w) { w.a = w.y.load(kAcquire), w.b = w.x.load(kRelaxed); }},
                     in_order),
      3);
  EXPECT_THAT(explore<Words>({[](Words& w) { w.x.store(1, kRelaxed), w.y.store(1, kRelaxed); },
                              [](Words& w) { w.a = w.y.load(kAcquire), w.b = w.x.load(kRelaxed); }},
                             in_order)
                  .failure,
              HasSubstr("the message is old"));
  EXPECT_THAT(explore<Words>({[](Words& w) { w.x.store(1, kRelaxed), w.y.store(1, kRelease); },
                              [](Words& w) { w.a = w.y.load(kRelaxed), w.b = w.x.load(kRelaxed); }},
                             in_order)
                  .failure,
              HasSubstr("1 stores old"));
  // Fences stand for the orders of the accesses.
  expect_holds(explore<Words>({[](Words& w) {
                                 w.x.store(1, kRelaxed), sync::fence(kRelease);
                                 w.y.store(1, kRelaxed);
                               },
                               [](Words& w) {
                                 w.a = w.y.load(kRelaxed), sync::fence(kAcquire);
                                 w.b = w.x.load(kRelaxed);
                               }},
                              in_order),
               3);
}

TEST(MemoryModel, TwoReadersMaySeeTwoWritersInDifferentOrders) {
  const std::vector<void (*)(Words&)> writers{[](Words& w) { w.x.store(1, kRelease); },
                                              [](Words& w) { w.y.store(1, kRelease); }};
  auto bodies = writers;
  bodies.push_back([](Words& w) { w.a = w.x.load(kAcquire), w.b = w.y.load(kAcquire); });
  bodies.push_back([](Words& w) { w.c = w.y.load(kAcquire), w.d = w.x.load(kAcquire); });
  constexpr auto same_order = [](Words& w) {
    require(!(w.a == 1 && w.b == 0 && w.c == 1 && w.d == 0), "different orders");
  };
  EXPECT_THAT(explore<Words>(bodies, same_order).failure, HasSubstr("different orders"));
}

TEST(MemoryModel, ASequenceOfReleasesGoesThroughOtherThreadsChanges) {
  expect_holds(
      explore<Words>({[](Words& w) { w.x.store(1, kRelaxed), w.y.store(1, kRelease); },
                      [](Words& w) { w.y.fetch_add(1, kRelaxed); },
                      [](Words& w) { w.a = w.y.load(kAcquire), w.b = w.x.load(kRelaxed); }},
                     [](Words& w) { require(w.a != 2 || w.b == 1, "not in order"); }),
      6);
}

TEST(MemoryModel, PlainMemoryThatNothingOrdersIsADataRace) {
  const std::vector<void (*)(Words&)> ordered{
      [](Words& w) { w.plain = 1, sync::written(&w.plain, 4), w.x.store(1, kRelease); },
      [](Words& w) {
        while (w.x.load(kAcquire) == 0) sync::yield();
        sync::read(&w.plain, 4), w.a = w.plain;
      }};
  expect_holds(explore<Words>(ordered, [](Words& w) { require(w.a == 1, "not seen"); }), 1);
  const std::vector<void (*)(Words&)> not_ordered{
      [](Words& w) { w.plain = 1, sync::written(&w.plain, 4), w.x.store(1, kRelaxed); },
      ordered[1]};
  EXPECT_THAT(explore<Words>(not_ordered).failure, HasSubstr("data race"));
}

TEST(MemoryModel, AThreadThatWaitsForNothingIsFound) {
  EXPECT_THAT(explore<Words>({[](Words& w) {
                                while (w.x.load(kAcquire) == 0) sync::yield();
                              },
                              [](Words& w) { w.y.store(1, kRelease); }})
                  .failure,
              HasSubstr("no thread can go on"));
}

}  // namespace
}  // namespace tutti::interleaving
