#include "transport/ring.h"

#include <gtest/gtest.h>
#include <poll.h>

#include <deque>
#include <memory>
#include <new>
#include <thread>
#include <vector>

#include <tutti/error.hpp>

#include "common/random.h"
#include "transport/doorbell.h"
#include "transport/memory_channel.h"

namespace tutti {
namespace {

// A ring of its own, both ends.
struct TestRing {
  explicit TestRing(std::size_t data_bytes, PeerBell bell = {})
      : storage(new (std::align_val_t(alignof(RingMemory)))
                    std::byte[RingMemory::bytes(data_bytes)]),
        memory(new (storage.get()) RingMemory()),
        sender(memory, data_bytes, bell),
        receiver(memory, data_bytes, bell) {}

  struct Free {
    void operator()(std::byte* bytes) const {
      ::operator delete[](bytes, std::align_val_t(alignof(RingMemory)));
    }
  };
  std::unique_ptr<std::byte[], Free> storage;
  RingMemory* memory;
  SendRing sender;
  RecvRing receiver;
};

Header of_length(std::size_t bytes, std::uint32_t operation = 0) {
  return {operation, 0, static_cast<std::uint32_t>(bytes), 0};
}

// By hand: data_bytes D, largest message m <= D / 3. A payload that does not fit before the end
// skips less than m bytes; after a skip it starts at 0, where two fit. So two use less than 3 m.
TEST(RingPlaces, TwoLargestMessagesFitFromEveryOffsetOfEverySmallRing) {
  for (std::size_t data_bytes = 192; data_bytes <= 64 * 16; data_bytes += 64) {
    const std::size_t most = SendRing::max_message_bytes(data_bytes);
    ASSERT_GE(most, 64u);
    for (std::uint64_t start = 5 * data_bytes; start < 6 * data_bytes; start += 64)
      for (std::size_t a = 1; a <= most; a += a % 64 == 1 ? 62 : 1)
        for (std::size_t b = 1; b <= most; b += b % 64 == 1 ? 62 : 1) {
          const std::uint64_t first = place(start, a, data_bytes);
          const std::uint64_t second = place(first + padded(a), b, data_bytes);
          ASSERT_LE(second + padded(b) - start, data_bytes)
              << a << " and " << b << " bytes from " << start << " of " << data_bytes;
        }
  }
}

TEST(RingPlaces, APayloadLiesWholeAlignedAndNotBeforeItsPosition) {
  for (std::size_t data_bytes = 192; data_bytes <= 64 * 12; data_bytes += 64)
    for (std::uint64_t position = 0; position < 3 * data_bytes; position += 64)
      for (std::size_t bytes = 1; bytes <= data_bytes; ++bytes) {
        const std::uint64_t at = place(position, bytes, data_bytes);
        ASSERT_GE(at, position);
        ASSERT_LT(at - position, data_bytes);
        ASSERT_EQ(at % 64, 0u);
        ASSERT_LE(at % data_bytes + padded(bytes), data_bytes);
      }
}

// The model beside the ring: which bytes of it belong to messages that are not released.
TEST(Ring, PayloadsThatAreNotReleasedNeverOverlap) {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    SeededRandom random(seed);
    const std::size_t data_bytes = 64 * (3 + random.next() % 30);
    const std::size_t most = SendRing::max_message_bytes(data_bytes);
    TestRing ring(data_bytes);
    struct Held {
      std::size_t begin, end;
      std::uint32_t number;
    };
    std::deque<Held> held;
    std::uint32_t posted = 0;
    for (int turn = 0; turn < 3000; ++turn) {
      const std::size_t bytes = random.next() % (random.next() % 2 == 0 ? most + 1 : 60);
      std::byte* data = random.next() % 3 != 0 ? ring.sender.acquire(bytes) : nullptr;
      if (data != nullptr) {
        ASSERT_EQ(data, ring.sender.acquire(bytes));
        Held mine{0, 0, posted};
        if (bytes > kInlineBytes) {
          mine.begin = static_cast<std::size_t>(data - ring.memory->data());
          mine.end = mine.begin + bytes;
          ASSERT_LE(mine.end, data_bytes) << "seed " << seed;
        }
        for (const Held& other : held)
          ASSERT_TRUE(mine.end <= other.begin || other.end <= mine.begin) << "seed " << seed;
        held.push_back(mine);
        ring.sender.post(of_length(bytes, posted++));
      } else if (!held.empty()) {
        ASSERT_TRUE(ring.receiver.peek());
        ASSERT_TRUE(ring.receiver.plausible());
        ASSERT_EQ(ring.receiver.header().operation, held.front().number) << "seed " << seed;
        if (held.front().end != 0) {
          ASSERT_EQ(ring.receiver.data(), ring.memory->data() + held.front().begin);
        }
        ring.receiver.release();
        held.pop_front();
      }
    }
  }
}

TEST(Ring, TwoOfTheLargestFitWhereverItStandsOnceAllIsReleased) {
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    SeededRandom random(seed);
    const std::size_t data_bytes = 64 * (3 + random.next() % 30);
    const std::size_t most = SendRing::max_message_bytes(data_bytes);
    TestRing ring(data_bytes);
    for (int round = 0; round < 500; ++round) {
      for (std::uint64_t before = random.next() % 40; before > 0; --before) {
        const std::size_t bytes = random.next() % (most + 1);
        ASSERT_NE(ring.sender.acquire(bytes), nullptr);
        ring.sender.post(of_length(bytes));
        ring.receiver.release();
      }
      for (int message = 0; message < 2; ++message) {
        ASSERT_NE(ring.sender.acquire(most), nullptr) << "seed " << seed << ", round " << round;
        ring.sender.post(of_length(most));
      }
      ring.receiver.release();
      ring.receiver.release();
    }
  }
}

TEST(Ring, SmallMessagesAreGivenBackInSixteensAndAllLinesAreUsed) {
  TestRing ring(192);
  for (std::uint64_t n = 0; n < kLines; ++n) {
    ASSERT_NE(ring.sender.acquire(kInlineBytes), nullptr);
    ring.sender.post(of_length(kInlineBytes));
  }
  EXPECT_EQ(ring.sender.acquire(0), nullptr);
  for (std::uint64_t n = 1; n < kCreditEvery; ++n) ring.receiver.release();
  EXPECT_EQ(ring.memory->released.load(), 0u);
  EXPECT_EQ(ring.sender.acquire(0), nullptr);
  ring.receiver.release();
  EXPECT_EQ(ring.memory->released.load(), kCreditEvery);
  EXPECT_NE(ring.sender.acquire(0), nullptr);
}

TEST(Ring, ALargeMessageGivesBackTheSmallOnesBeforeIt) {
  TestRing ring(192);
  for (const std::size_t bytes : {1, 2, 64}) {
    ASSERT_NE(ring.sender.acquire(bytes), nullptr);
    ring.sender.post(of_length(bytes));
  }
  for (int n = 0; n < 3; ++n) ring.receiver.release();
  EXPECT_EQ(ring.memory->released.load(), 3u);
}

TEST(Ring, OneThatIsNotAttachedFindsNothing) {
  const RecvRing nowhere;
  EXPECT_FALSE(nowhere.peek());
}

TEST(Ring, ALengthThatCannotBeIsCorruptAndNotRead) {
  TestRing ring(192);
  MemoryRecvChannel channel;
  EXPECT_EQ(channel.ring(), nullptr);
  channel.attach(ring.memory, 192, {});
  ring.memory->lines[0].header.length = 65;  // the largest is 64
  ring.memory->lines[0].sequence.store(1);
  try {
    channel.peek();
    FAIL() << "it was taken";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::corrupt);
  }
}

TEST(Ring, RingsTheBellOnlyForWhoIsCountedAsleep) {
  const Doorbell bell;
  std::atomic<std::uint32_t> sleepers = 0;
  TestRing ring(192, PeerBell{&sleepers, bell.fd(), !bell.membarrier()});
  const auto rung = [&] {
    pollfd fd{bell.fd(), POLLIN, 0};
    return poll(&fd, 1, 0) == 1;
  };
  const auto send = [&](std::size_t bytes) {
    EXPECT_NE(ring.sender.acquire(bytes), nullptr);
    ring.sender.post(of_length(bytes));
  };
  send(64);
  ring.receiver.release();
  EXPECT_FALSE(rung());
  sleepers = 1;
  send(64);
  EXPECT_TRUE(rung());
  bell.clear();
  EXPECT_FALSE(rung());
  ring.receiver.release();
  EXPECT_TRUE(rung()) << "a writer may wait for the credit";
}

// The order of memory, at full speed: every byte of every message checked. Under ThreadSanitizer
// this is the proof that payloads need no more than the sequence and the credits.
TEST(Ring, TwoThreadsExchangeRandomSizesAtFullSpeed) {
  constexpr std::uint32_t kMessages = 100'000;
  for (const std::size_t data_bytes : {std::size_t{192}, std::size_t{64 * 100}}) {
    const std::size_t most = SendRing::max_message_bytes(data_bytes);
    const auto size_of_message = [&](std::uint32_t n) {
      return mix(n) % (n % 4 == 0 ? most + 1 : kInlineBytes + 9);
    };
    TestRing ring(data_bytes);
    std::thread writer([&] {
      for (std::uint32_t n = 0; n < kMessages; ++n) {
        const std::size_t bytes = size_of_message(n);
        std::byte* data = nullptr;
        while ((data = ring.sender.acquire(bytes)) == nullptr) std::this_thread::yield();
        std::fill_n(data, bytes, static_cast<std::byte>(n));
        ring.sender.post(of_length(bytes, n));
      }
    });
    std::uint32_t wrong = 0;
    for (std::uint32_t n = 0; n < kMessages; ++n) {
      while (!ring.receiver.peek()) std::this_thread::yield();
      const Header& header = ring.receiver.header();
      wrong += header.operation != n || header.length != size_of_message(n);
      const std::byte* data = ring.receiver.data();
      wrong += std::any_of(data, data + std::min<std::size_t>(header.length, most),
                           [n](std::byte b) { return b != static_cast<std::byte>(n); });
      ring.receiver.release();
    }
    writer.join();
    EXPECT_EQ(wrong, 0u);
  }
}

}  // namespace
}  // namespace tutti
