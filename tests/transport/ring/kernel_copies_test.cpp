#include "transport/ring/kernel_copies.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include <tutti/error.hpp>

#include "test_ring.h"
#include "transport/ring/memory_channel.h"

namespace tutti {
namespace {

constexpr int kClass = 4;  // 128 KiB
constexpr std::size_t kBytes = CopyClass::kLeastBytes << (kClass - 1);

// A pair of ranks whose copies of 16 KiB take the given ticks.
struct Pair {
  std::uint32_t in, out, kernel;
  bool both_ways = false;
  KernelCopies copies = {};
  ReadTimes reader = {};

  // Makes a call, and returns whether the kernel copied.
  bool call() {
    const KernelCopies::Choice choice =
        copies.choose(kClass, both_ways, [&] { return ReadTimes::unpacked(reader.packed()); });
    if (!choice.timed) return choice.by_kernel;
    if (choice.by_kernel) {
      reader.kernel.record(kClass, std::uint64_t{kernel} * kBytes >> 14, kBytes);
    } else {
      copies.record_write(kClass, std::uint64_t{in} * kBytes >> 14, kBytes);
      reader.ring.record(kClass, std::uint64_t{out} * kBytes >> 14, kBytes);
    }
    return choice.by_kernel;
  }
  int by_kernel(int calls) {
    int count = 0;
    for (int i = 0; i < calls; ++i) count += call() ? 1 : 0;
    return count;
  }
};

TEST(CopyClass, OfABlockDependsOnItsBytesAlone) {
  EXPECT_EQ(CopyClass::of(0), 0);
  EXPECT_EQ(CopyClass::of(kBytes), kClass);
  EXPECT_EQ(CopyClass::of(2 * kBytes - 1), kClass);
  EXPECT_EQ(CopyClass::of(2 * kBytes), kClass + 1);
  EXPECT_EQ(CopyClass::of(CopyClass::kEndBytes), 0);
  EXPECT_EQ(CopyClass::of(SIZE_MAX), 0);
}

TEST(CopyTime, FollowsWhatIsRecordedAndStaysInItsRange) {
  CopyTime time;
  EXPECT_EQ(time.ticks(), 0u);
  time.record(kClass, 8 * 2000, kBytes);
  EXPECT_EQ(time.ticks(), 2000u);
  for (int call = 0; call < 20; ++call) time.record(kClass, 8 * 100, kBytes);
  EXPECT_NEAR(time.ticks(), 100, 1);
  time.record(kClass, ~std::uint64_t{0} >> 14, 1);
  EXPECT_GT(time.ticks(), 100u);
  EXPECT_LE(time.ticks(), 0xffffu);
  for (int call = 0; call < 40; ++call) time.record(kClass, 0, kBytes);
  EXPECT_LE(time.ticks(), 2u);
  EXPECT_GT(time.ticks(), 0u) << "0 stands for a time that is not known";
}

TEST(KernelCopies, AreTriedAndTakenUpWhereBuffersRest) {
  Pair pair{2000, 2200, 1600};
  EXPECT_EQ(pair.by_kernel(KernelCopies::kBeforeKernel), 0);
  // All others, but for a trial of the ring.
  EXPECT_EQ(pair.by_kernel(1000), 1000 - KernelCopies::kTrial);
}

TEST(KernelCopies, AreTriedEverLessWhereTheRingIsFaster) {
  Pair pair{2000, 2200, 3700};
  const int first = pair.by_kernel(100);
  EXPECT_EQ(first, 2 * KernelCopies::kTrial);
  const int later = pair.by_kernel(100'000);
  EXPECT_GE(later, 100'000 / (KernelCopies::kMostBetween + KernelCopies::kTrial));
  EXPECT_LE(later, 100'000 / KernelCopies::kMostBetween * KernelCopies::kTrial + 100);
}

TEST(KernelCopies, EndAtOnceWhenTheProgramBeginsToWriteItsBuffers) {
  Pair pair{2000, 2200, 1600};
  pair.by_kernel(100);
  ASSERT_TRUE(pair.call());
  pair.kernel = 3700;
  EXPECT_LE(pair.by_kernel(KernelCopies::kBeforeKernel), 3);
  // It is tried again, and is taken up once the buffers rest again.
  pair.kernel = 1600;
  EXPECT_GE(pair.by_kernel(200), 100);
}

TEST(KernelCopies, OfLinesThatWereWrittenAreNotTakenUpThoughBothCopiesOfARingTakeLonger) {
  Pair pair{2000, 2200, 3700, true};
  pair.by_kernel(1000);
  EXPECT_FALSE(pair.call());
  pair = {500, 2600, 2650, true};  // slower than either copy of a ring, and faster than both
  pair.by_kernel(100);
  EXPECT_TRUE(pair.call());
  pair.both_ways = false;
  pair.by_kernel(100);
  EXPECT_FALSE(pair.call());
}

TEST(KernelCopies, OfBuffersThatAreWrittenInPartOrEverySecondTimeAreNotTakenUp) {
  Pair partly{2000, 2200, 2500, true};
  EXPECT_LE(partly.by_kernel(10'000), 12 * KernelCopies::kTrial);
  Pair by_turns{2000, 2200, 1900, true};
  int by_kernel = 0;
  for (int k = 0; k < 10'000; ++k) {
    by_turns.kernel = k % 2 == 0 ? 1900 : 3700;
    by_kernel += by_turns.call() ? 1 : 0;
  }
  EXPECT_LE(by_kernel, 1000);
}

TEST(KernelCopies, OfDifferentClassesAreApart) {
  Pair pair{2000, 2200, 1600};
  pair.by_kernel(100);
  ASSERT_TRUE(pair.call());
  const auto none = [] { return ReadTimes(); };
  EXPECT_FALSE(pair.copies.choose(kClass + 1, false, none).by_kernel);
  EXPECT_FALSE(pair.copies.choose(kClass - 1, false, none).by_kernel);
  EXPECT_TRUE(pair.call());
}

TEST(KernelCopies, NeedNoTimesOfTheReaderButAtTheEndOfATrial) {
  KernelCopies copies;
  int looks = 0;
  for (int call = 0; call < 10'000; ++call)
    copies.choose(kClass, false, [&] {
      ++looks;
      return ReadTimes();
    });
  EXPECT_GT(looks, 3);
  EXPECT_LT(looks, 20);
}

// A ring whose reader may have the kernel copy memory of this process.
class RemoteMessages : public testing::Test {
 protected:
  RemoteMessages() {
    OutsideMemory outside;
    outside.all = &memory_;
    outside.peers = &segments_;
    channel_.attach(ring_.memory, 3 * 64, {}, 0, outside);
    for (std::size_t i = 0; i < source_.size(); ++i) source_[i] = static_cast<std::byte>(i % 251);
  }
  void post(std::size_t from, std::size_t bytes) {
    ASSERT_TRUE(ring_.sender.acquire_at(at_address(source_.data() + from)));
    ring_.sender.post(of_length(bytes));
  }
  // Takes a message to the front of `room` bytes at `to`. Returns whether it is what was sent.
  bool take(std::size_t from, std::size_t bytes, std::size_t to, std::size_t room) {
    const auto message = channel_.peek();
    if (!message || !message->remote || message->header.length != bytes) return false;
    const bool right = channel_.get({place_.data() + to, room}) == place_.data() + to &&
                       std::memcmp(place_.data() + to, source_.data() + from, bytes) == 0;
    channel_.release();
    return right;
  }
  bool is_written(std::size_t at) const { return place_[at] != kNothing; }

  static constexpr std::byte kNothing{0xff};
  std::vector<std::byte> source_ = std::vector<std::byte>(10'000);
  std::vector<std::byte> place_ = std::vector<std::byte>(10'000, kNothing);
  PeerMemory memory_{getpid(), -1};
  Segments segments_;
  TestRing ring_{3 * 64};
  MemoryRecvChannel channel_;
};

TEST_F(RemoteMessages, ThatLieOneAfterTheOtherAreCopiedTogether) {
  for (const std::size_t from : {0, 1000, 2000}) post(from, 1000);
  ASSERT_TRUE(take(0, 1000, 0, 3000));
  EXPECT_TRUE(is_written(2999));
  source_[1000] = source_[2999] = kNothing;  // what is here already is not copied again
  std::vector<std::byte> before(place_.begin() + 1000, place_.begin() + 3000);
  ASSERT_TRUE(channel_.peek());
  EXPECT_EQ(channel_.get({place_.data() + 1000, 2000}), place_.data() + 1000);
  channel_.release();
  ASSERT_TRUE(channel_.peek());
  EXPECT_EQ(channel_.get({place_.data() + 2000, 1000}), place_.data() + 2000);
  channel_.release();
  EXPECT_EQ(std::memcmp(before.data(), place_.data() + 1000, 2000), 0);
  EXPECT_FALSE(channel_.peek());
}

TEST_F(RemoteMessages, AreNotCopiedBeyondTheRoomNorAcrossAGapNorOutOfOrder) {
  for (const std::size_t from : {0, 1000, 2000}) post(from, 1000);
  ASSERT_TRUE(take(0, 1000, 0, 2999));
  EXPECT_TRUE(is_written(1999));
  EXPECT_FALSE(is_written(2000));
  ASSERT_TRUE(take(1000, 1000, 1000, 1000));
  ASSERT_TRUE(take(2000, 1000, 2000, 1000));
  post(4000, 1000);
  post(5001, 999);
  post(3001, 999);
  ASSERT_TRUE(take(4000, 1000, 4000, 6000));
  EXPECT_FALSE(is_written(5000));
  ASSERT_TRUE(take(5001, 999, 5000, 5000));
  EXPECT_FALSE(is_written(5999));
  ASSERT_TRUE(take(3001, 999, 6000, 4000));
}

TEST_F(RemoteMessages, AreCopiedAnewWhereTheyAreWantedInAnotherPlace) {
  post(0, 1000);
  post(1000, 1000);
  ASSERT_TRUE(take(0, 1000, 0, 2000));
  ASSERT_TRUE(take(1000, 1000, 5000, 1000));
  post(2000, 500);
  ASSERT_TRUE(take(2000, 500, 2000, 500));
}

TEST_F(RemoteMessages, BehindAMessageOfTheRingAreNotTakenForItsNeighbours) {
  post(0, 1000);
  std::byte* const slot = ring_.sender.acquire(64);
  ASSERT_NE(slot, nullptr);
  std::memset(slot, 7, 64);
  ring_.sender.post(of_length(64));
  post(1000, 1000);
  ASSERT_TRUE(take(0, 1000, 0, 9000));
  EXPECT_FALSE(is_written(1000));
  const auto message = channel_.peek();
  ASSERT_TRUE(message);
  EXPECT_EQ(message->data[63], std::byte{7});
  channel_.release();
  EXPECT_TRUE(take(1000, 1000, 1000, 1000));
}

TEST_F(RemoteMessages, ThatTheWriterDoesNotHaveAreCorruptAndThoseBeforeThemAreNot) {
  constexpr std::size_t kPage = 4096;
  auto* const pages = static_cast<std::byte*>(
      mmap(nullptr, 2 * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  ASSERT_NE(pages, MAP_FAILED);
  std::memset(pages, 5, kPage);
  ASSERT_EQ(munmap(pages + kPage, kPage), 0);
  for (const std::size_t from : {std::size_t{0}, kPage}) {
    ASSERT_TRUE(ring_.sender.acquire_at(at_address(pages + from)));
    ring_.sender.post(of_length(kPage));
  }
  ASSERT_TRUE(channel_.peek());
  EXPECT_EQ(channel_.get({place_.data(), 2 * kPage}), place_.data());
  EXPECT_EQ(place_[kPage - 1], std::byte{5});
  channel_.release();
  ASSERT_TRUE(channel_.peek());
  try {
    channel_.get({place_.data() + kPage, kPage});
    FAIL() << "it was found";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::corrupt);
  }
  munmap(pages, kPage);
}

TEST(ReadableMemory, IsAllThatTheKernelCopiesForOthers) {
  ReadableMemory readable;
  std::vector<std::byte> ordinary(100'000);
  for (int k = 0; k < 200; ++k) EXPECT_TRUE(readable.holds(ordinary.data(), ordinary.size()));
  EXPECT_TRUE(readable.holds(nullptr, 0));
  void* const none = mmap(nullptr, 8192, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(none, MAP_FAILED);
  EXPECT_FALSE(readable.holds(static_cast<std::byte*>(none), 8192));
  EXPECT_FALSE(readable.holds(static_cast<std::byte*>(none), 8192));
  ASSERT_EQ(mprotect(none, 4096, PROT_READ), 0);
  EXPECT_FALSE(readable.holds(static_cast<std::byte*>(none), 8192)) << "its end is not";
  EXPECT_TRUE(readable.holds(static_cast<std::byte*>(none), 4096));
  munmap(none, 8192);
}

TEST_F(RemoteMessages, ShowTheWriterHowLongTheyTookWhereItAsks) {
  post(0, 1000);
  ASSERT_TRUE(take(0, 1000, 0, 1000));
  for (const auto& word : ring_.memory->read_times) EXPECT_EQ(word.load(), 0u);
  ring_.sender.set_copy_class(2);
  post(0, 1000);
  ASSERT_TRUE(take(0, 1000, 0, 1000));
  const auto times = ReadTimes::unpacked(ring_.memory->read_times[1].load());
  EXPECT_GT(times.kernel.ticks(), 0u);
  EXPECT_EQ(times.ring.ticks(), 0u);
}

}  // namespace
}  // namespace tutti
