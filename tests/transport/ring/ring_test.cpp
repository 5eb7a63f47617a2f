#include "transport/ring/ring.h"

#include <gtest/gtest.h>
#include <poll.h>

#include <array>
#include <cstring>
#include <deque>
#include <memory>
#include <new>
#include <thread>
#include <vector>

#include <tutti/error.hpp>

#include "common/random.h"
#include "test_ring.h"
#include "transport/doorbell.h"
#include "transport/ring/memory_channel.h"

namespace tutti {
namespace {

// Takes the oldest message, and releases it.
void drop(RecvRing& ring) {
  ASSERT_TRUE(ring.peek());
  ring.release();
}

// The proof by hand: let data_bytes be D and the largest message m <= D / 3. A payload that does
// not fit before the end skips less than m bytes; after a skip it starts at 0, where two fit. Two
// payloads therefore use less than 3 m.
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

// A model of the ring, which knows which of its bytes belong to messages that are not released.
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
        drop(ring.receiver);
      }
      for (int message = 0; message < 2; ++message) {
        ASSERT_NE(ring.sender.acquire(most), nullptr) << "seed " << seed << ", round " << round;
        ring.sender.post(of_length(most));
      }
      drop(ring.receiver);
      drop(ring.receiver);
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
  for (std::uint64_t n = 1; n < kCreditEvery; ++n) drop(ring.receiver);
  EXPECT_EQ(ring.memory->released.load(), 0u);
  EXPECT_EQ(ring.sender.acquire(0), nullptr);
  drop(ring.receiver);
  EXPECT_EQ(ring.memory->released.load(), kCreditEvery);
  EXPECT_NE(ring.sender.acquire(0), nullptr);
}

TEST(Ring, ALargeMessageGivesBackTheSmallOnesBeforeIt) {
  TestRing ring(192);
  for (const std::size_t bytes : {1, 2, 64}) {
    ASSERT_NE(ring.sender.acquire(bytes), nullptr);
    ring.sender.post(of_length(bytes));
  }
  for (int n = 0; n < 3; ++n) drop(ring.receiver);
  EXPECT_EQ(ring.memory->released.load(), 3u);
}

TEST(Ring, OneThatIsNotAttachedFindsNothing) {
  RecvRing nowhere;
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

// A peer that is hostile, or whose memory is damaged, changes a message at the worst moment.
TEST(Ring, AMessageIsWhatItWasWhenItWasFirstSeenWhateverItsSenderWritesThen) {
  constexpr std::size_t kBytes = 64 * 6;
  TestRing ring(kBytes);
  MemoryRecvChannel channel;
  channel.attach(ring.memory, kBytes, {});
  Line& line = ring.memory->lines[0];
  ASSERT_NE(ring.sender.acquire(100), nullptr);
  ring.sender.post(of_length(100));
  ASSERT_TRUE(channel.peek());
  line.header.length = ~std::uint32_t{0};
  const Origin answer{1, 0, 7};  // It claims to answer a message on a channel that does not exist.
  std::memcpy(line.payload, &answer, sizeof answer);
  line.sequence.store(0);
  const auto message = channel.peek();
  ASSERT_TRUE(message);
  EXPECT_EQ(message->header.length, 100u);
  EXPECT_EQ(message->data, ring.memory->data());
  EXPECT_EQ(channel.get({}), ring.memory->data());
  channel.release();
  EXPECT_EQ(ring.memory->released.load(), 1u);
  EXPECT_EQ(channel.ring()->view().position, kCacheLine * 2);
}

TEST(Ring, ASmallMessageIsNotTakenForOneThatIsAwayWhateverItHolds) {
  TestRing ring(192);
  MemoryRecvChannel channel;
  channel.attach(ring.memory, 192, {});
  const Origin away = at_address(&ring);
  std::byte* const slot = ring.sender.acquire(sizeof away);
  ASSERT_NE(slot, nullptr);
  std::memcpy(slot, &away, sizeof away);
  ring.sender.post(of_length(sizeof away));
  ASSERT_TRUE(channel.peek());
  std::array<std::byte, sizeof away> place;
  EXPECT_EQ(channel.get({place.data(), place.size()}), ring.memory->lines[0].payload);
}

TEST(Ring, MoreReleasedThanWasSentIsCorruptAndNoRoom) {
  TestRing ring(192);
  for (std::uint64_t n = 0; n < kLines; ++n) {
    ASSERT_NE(ring.sender.acquire(8), nullptr);
    ring.sender.post(of_length(8));
  }
  ring.memory->released.store(kLines + 1);
  try {
    ring.sender.acquire(8);
    FAIL() << "it was believed";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::corrupt);
  }
}

TEST(Ring, RingsTheBellOnlyForWhoIsCountedAsleep) {
  const Doorbell bell;
  Sleepers sleepers;
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
  drop(ring.receiver);
  EXPECT_FALSE(rung());
  sleepers.add();
  send(64);
  EXPECT_TRUE(rung());
  bell.clear();
  EXPECT_FALSE(rung());
  drop(ring.receiver);
  EXPECT_TRUE(rung()) << "a writer may wait for the credit";
}

TEST(Ring, RingsTheBellOnceForEachSleep) {
  const Doorbell bell;
  Sleepers sleepers;
  TestRing ring(192, PeerBell{&sleepers, bell.fd(), !bell.membarrier()});
  const auto rings_for_a_message = [&] {
    EXPECT_NE(ring.sender.acquire(8), nullptr);
    ring.sender.post(of_length(8));
    drop(ring.receiver);
    pollfd fd{bell.fd(), POLLIN, 0};
    const bool rung = poll(&fd, 1, 0) == 1;
    bell.clear();
    return rung;
  };
  sleepers.add();
  EXPECT_TRUE(rings_for_a_message());
  EXPECT_FALSE(rings_for_a_message()) << "who sleeps has been woken";
  sleepers.add();
  EXPECT_TRUE(rings_for_a_message()) << "another thread has fallen asleep since";
  sleepers.remove();
  EXPECT_FALSE(rings_for_a_message()) << "no other sleep has begun";
  sleepers.remove();
  sleepers.add();
  EXPECT_TRUE(rings_for_a_message()) << "a thread sleeps again";
}

// Two rings between ranks a and b, one for each direction. On `back`, b answers what arrives on
// `there`.
struct AnsweredRings {
  explicit AnsweredRings(std::size_t data_bytes) : there(data_bytes), back(data_bytes) {
    back.receiver = RecvRing(back.memory, data_bytes, {}, 1, {.back = &a_sends});
    there.receiver = RecvRing(there.memory, data_bytes, {}, 0, {.back = &b_sends});
  }

  // Lets b answer: writes `with` over the whole message that b has peeked. Returns false where no
  // line is free.
  bool answer(std::byte with) {
    EXPECT_TRUE(there.receiver.peek());
    const Header header = there.receiver.header();
    std::byte* data = there.receiver.answer_data();
    EXPECT_EQ(data, there.receiver.data());
    if (!back.sender.acquire_at(there.receiver.place_for_answer())) return false;
    std::fill_n(data, header.length, with);
    back.sender.post(header);
    there.receiver.release_answered();
    return true;
  }

  TestRing there;
  TestRing back;
  const SendRings a_sends{{0, &there.sender}};
  const SendRings b_sends{{1, &back.sender}};
};

TEST(RingAnswers, LieWhereTheMessageLay) {
  AnsweredRings rings(64 * 6);
  std::byte* data = rings.there.sender.acquire(100);
  ASSERT_NE(data, nullptr);
  rings.there.sender.post(of_length(100, 7));
  ASSERT_TRUE(rings.there.receiver.peek());
  ASSERT_TRUE(rings.answer(std::byte{9}));
  ASSERT_TRUE(rings.back.receiver.peek());
  EXPECT_EQ(rings.back.receiver.data(), data);
  EXPECT_EQ(data[99], std::byte{9});
  EXPECT_EQ(rings.back.receiver.answer_data(), nullptr) << "an answer is not answered in its place";
  rings.back.receiver.release();
}

TEST(RingAnswers, HoldTheirMemoryUntilTheyAreReleased) {
  AnsweredRings rings(64 * 6);  // room for two of the largest messages and for skipped ends
  const std::size_t most = SendRing::max_message_bytes(64 * 6);
  const auto send_all = [&] {
    int sent = 0;
    for (; rings.there.sender.acquire(most) != nullptr; ++sent)
      rings.there.sender.post(of_length(most));
    return sent;
  };
  const int window = send_all();
  ASSERT_GE(window, 2);
  for (int n = 0; n < window; ++n) ASSERT_TRUE(rings.answer(std::byte{1}));
  EXPECT_EQ(send_all(), 0) << "no answer has been read";
  for (int n = 0; n < window; ++n) {
    drop(rings.back.receiver);
    EXPECT_EQ(send_all(), 1);
  }
}

TEST(RingAnswers, ToWhatWasNeverSentAreCorrupt) {
  for (const Origin& origin : {Origin{1, 0, 0}, Origin{1, 0, 5}, Origin{1, 64 * 6, 0}}) {
    AnsweredRings rings(64 * 6);
    ASSERT_TRUE(rings.back.sender.acquire_at(origin));
    rings.back.sender.post(of_length(100));
    ASSERT_TRUE(rings.back.receiver.peek());
    EXPECT_THROW(rings.back.receiver.data(), Error);
  }
}

// Extends AnsweredRings: rank a has 1000 bytes of registered memory for zero-copy messages.
struct ZeroCopyRings : AnsweredRings {
  ZeroCopyRings() : AnsweredRings(64 * 6) {
    there.receiver =
        RecvRing(there.memory, 64 * 6, {}, 0, {&b_sends, &peer_segments, nullptr, &status_page});
    back.receiver =
        RecvRing(back.memory, 64 * 6, {}, 1, {&a_sends, nullptr, &own_segments, nullptr});
    own_segments.add(segment());
  }
  Segment segment() {
    return {{memory.data(), [](std::byte*) {}}, memory.size()};
  }

  void send_zero_copy(const Extent& extent, std::size_t bytes, const Extent& answer = {}) {
    ASSERT_TRUE(there.sender.acquire_at({0, extent.offset, 0, extent.segment, answer}));
    there.sender.post(of_length(bytes));
    ASSERT_TRUE(there.receiver.peek());
  }

  std::vector<std::byte> memory{1000};
  Segments own_segments;     // the memory as a knows it
  Segments peer_segments;    // the memory as b knows it, which learns of segments later
  StatusPage status_page{};  // a's
};

TEST(RingZeroCopy, AreReadWhereTheyLieOnceTheirSegmentIsKnown) {
  ZeroCopyRings rings;
  rings.send_zero_copy({1, 100}, 200);
  bool zero_copy = false;
  EXPECT_EQ(rings.there.receiver.data(zero_copy), nullptr) << "not here yet";
  rings.peer_segments.add(1, rings.segment());
  EXPECT_EQ(rings.there.receiver.data(zero_copy), rings.memory.data() + 100);
  EXPECT_TRUE(zero_copy);
  EXPECT_EQ(rings.there.receiver.answer_data(), nullptr) << "it offers no place";
  EXPECT_FALSE(rings.there.sender.released(1));
  rings.there.receiver.release();
  EXPECT_TRUE(rings.there.sender.released(1));
}

TEST(RingZeroCopy, TakeNoRoomInTheRing) {
  ZeroCopyRings rings;
  rings.peer_segments.add(1, rings.segment());
  for (int n = 0; n < 20; ++n) rings.send_zero_copy({1, 0}, 900);
  for (int n = 0; n < 20; ++n) drop(rings.there.receiver);
}

TEST(RingZeroCopy, AreAnsweredWhereTheirSenderSays) {
  ZeroCopyRings rings;
  rings.peer_segments.add(1, rings.segment());
  rings.send_zero_copy({1, 0}, 200, {1, 500});
  RecvRing& receiver = rings.there.receiver;
  EXPECT_EQ(receiver.answer_data(), rings.memory.data() + 500);
  ASSERT_TRUE(rings.back.sender.acquire_at(receiver.place_for_answer()));
  rings.back.sender.post(of_length(200));
  receiver.release_answered();
  EXPECT_TRUE(rings.there.sender.released(1));
  ASSERT_TRUE(rings.back.receiver.peek());
  bool zero_copy = false;
  EXPECT_EQ(rings.back.receiver.data(zero_copy), rings.memory.data() + 500);
  EXPECT_FALSE(zero_copy) << "it is the reader's own";
  EXPECT_EQ(rings.back.receiver.answer_data(), nullptr);
  rings.back.receiver.release();
}

TEST(RingZeroCopy, BeyondTheirSegmentAreCorrupt) {
  for (const auto& [extent, answer] :
       {std::pair{Extent{1, 801}, Extent{1, 0}}, std::pair{Extent{1, ~0ull}, Extent{1, 0}},
        std::pair{Extent{1, 0}, Extent{1, 801}}}) {
    ZeroCopyRings rings;
    rings.peer_segments.add(1, rings.segment());
    rings.send_zero_copy(extent, 200, answer);
    const auto both = [&] {
      rings.there.receiver.data();
      rings.there.receiver.answer_data();
    };
    EXPECT_THROW(both(), Error);
  }
}

TEST(RingZeroCopy, EndWithTheFailureOfTheirLender) {
  ZeroCopyRings rings;
  rings.peer_segments.add(1, rings.segment());
  rings.send_zero_copy({1, 0}, 200);
  EXPECT_TRUE(rings.there.receiver.still_valid());
  rings.status_page.fail(ErrorKind::timeout, "too late");
  EXPECT_FALSE(rings.there.receiver.still_valid());
}

TEST(RingZeroCopy, KeepTheMemoryThatIsReadWhenItIsTakenBack) {
  ZeroCopyRings rings;
  auto memory = std::make_shared<std::vector<std::byte>>(300);
  const std::weak_ptr<std::vector<std::byte>> alive = memory;
  rings.peer_segments.add(2, {{memory, memory->data()}, 300});
  memory.reset();
  rings.send_zero_copy({2, 0}, 300);
  EXPECT_NE(rings.there.receiver.data(), nullptr);
  rings.peer_segments.remove(2);
  EXPECT_FALSE(alive.expired());
  EXPECT_TRUE(rings.peer_segments.empty());
}

// Runs at full speed, as the next test does; some messages are answered, and others (the small
// ones) are not.
TEST(RingAnswers, TwoThreadsAnswerRandomSizesAtFullSpeed) {
  constexpr std::uint32_t kMessages = 50'000;
  for (const std::size_t data_bytes : {std::size_t{192}, std::size_t{64 * 100}}) {
    const std::size_t most = SendRing::max_message_bytes(data_bytes);
    const auto size_of_message = [&](std::uint32_t n) {
      return mix(n) % (n % 4 == 0 ? most + 1 : kInlineBytes + 9);
    };
    AnsweredRings rings(data_bytes);
    std::uint32_t wrong_there = 0;
    std::thread answerer([&] {
      for (std::uint32_t n = 0; n < kMessages; ++n) {
        while (!rings.there.receiver.peek()) std::this_thread::yield();
        const Header header = rings.there.receiver.header();
        const std::byte* data = rings.there.receiver.data();
        wrong_there += std::any_of(data, data + header.length,
                                   [n](std::byte b) { return b != static_cast<std::byte>(n); });
        if (header.length > kInlineBytes) {
          while (!rings.answer(static_cast<std::byte>(n + 1))) std::this_thread::yield();
          continue;
        }
        std::byte* answer = nullptr;
        while ((answer = rings.back.sender.acquire(header.length)) == nullptr)
          std::this_thread::yield();
        std::fill_n(answer, header.length, static_cast<std::byte>(n + 1));
        rings.back.sender.post(header);
        rings.there.receiver.release();
      }
    });
    std::uint32_t wrong = 0;
    std::uint32_t sent = 0;
    for (std::uint32_t read = 0; read < kMessages;) {
      const std::size_t bytes = size_of_message(sent);
      std::byte* data = sent < kMessages ? rings.there.sender.acquire(bytes) : nullptr;
      if (data != nullptr) {
        std::fill_n(data, bytes, static_cast<std::byte>(sent));
        rings.there.sender.post(of_length(bytes, sent++));
      } else if (rings.back.receiver.peek()) {
        const Header& header = rings.back.receiver.header();
        const std::byte* answer = rings.back.receiver.data();
        wrong += header.operation != read ||
                 std::any_of(answer, answer + header.length,
                             [read](std::byte b) { return b != static_cast<std::byte>(read + 1); });
        rings.back.receiver.release();
        ++read;
      } else {
        std::this_thread::yield();
      }
    }
    answerer.join();
    EXPECT_EQ(wrong + wrong_there, 0u);
  }
}

// Tests the memory order at full speed and checks every byte of every message. Under
// ThreadSanitizer it proves that payloads need no synchronisation but the sequence and the credits.
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
