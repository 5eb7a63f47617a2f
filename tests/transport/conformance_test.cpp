// Tests that every transport fulfils the interface in transport/channel.h, sentence by sentence.
#include <gtest/gtest.h>
#include <poll.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <thread>

#include <tutti/error.hpp>

#include "test_ranks.h"
#include "transport/ring/ring.h"

namespace tutti {
namespace {

constexpr std::size_t kMax = 4096;
constexpr std::array<std::size_t, 13> kSizes{0,  1,  39,  40,   41,   63,  64,
                                             65, 96, 127, 1000, 4095, kMax};

std::byte byte_at(std::uint32_t message, std::size_t i) {
  return static_cast<std::byte>(mix(message * 0x10001ull + i) & 0xff);
}

Header header_of(std::uint32_t message, std::size_t bytes) {
  return {message, message * 7 + 1, static_cast<std::uint32_t>(bytes), 0};
}

// Returns false where the window is full.
bool try_send(SendChannel& channel, std::uint32_t message, std::size_t bytes) {
  const auto span = channel.acquire(bytes);
  if (!span) return false;
  EXPECT_EQ(span->bytes, bytes);
  for (std::size_t i = 0; i < bytes; ++i) span->data[i] = byte_at(message, i);
  channel.post(header_of(message, bytes));
  return true;
}

// Returns false where nothing has arrived. What arrives must be `message`, complete.
bool try_receive(RecvChannel& channel, std::uint32_t message, std::size_t bytes) {
  const auto found = channel.peek();
  if (!found) return false;
  EXPECT_EQ(found->header, header_of(message, bytes)) << "message " << message;
  const std::byte* const data = found->remote ? channel.get({}) : found->data;
  if (found->remote && data == nullptr) return false;  // It is not complete yet.
  for (std::size_t i = 0; i < std::min<std::size_t>(bytes, found->header.length); ++i)
    if (data[i] != byte_at(message, i)) {
      ADD_FAILURE() << "message " << message << " of " << bytes << " bytes differs at " << i;
      break;
    }
  channel.release();
  return true;
}

class Conformance : public testing::TestWithParam<TransportKind> {
 protected:
  static RanksOptions with(int size, std::uint64_t seed = 1) {
    RanksOptions options;
    options.size = size;
    options.seed = seed;
    return options;
  }
};

INSTANTIATE_TEST_SUITE_P(Transports, Conformance, testing::ValuesIn(transport_kinds()),
                         [](const auto& param) { return param.param.name; });

TEST_P(Conformance, MessagesOfEverySizeArriveWholeAndInOrderWithTheirHeaders) {
  TestRanks ranks(GetParam());
  SendChannel& sender = ranks[0].sender(1, 0);
  RecvChannel& receiver = ranks[1].receiver(0, 0);
  EXPECT_EQ(ranks[0].link(1).largest_message, kMax);
  std::uint32_t sent = 0;
  std::uint32_t received = 0;
  const auto size_of_message = [](std::uint32_t n) { return kSizes[n % kSizes.size()]; };
  ASSERT_TRUE(ranks.eventually([&] {
    while (sent < 10 * kSizes.size() && try_send(sender, sent, size_of_message(sent))) ++sent;
    while (received < sent && try_receive(receiver, received, size_of_message(received)))
      ++received;
    return received == 10 * kSizes.size();
  }));
  EXPECT_FALSE(receiver.peek());
}

TEST_P(Conformance, BothDirectionsAndManyChannelsOfManyPeersDoNotDisturbEachOther) {
  constexpr int kRanks = 3;
  constexpr int kChannels = 3;
  constexpr std::uint32_t kMessages = 40;
  TestRanks ranks(GetParam(), with(kRanks));
  struct Flow {
    int from, to, number;
    std::uint32_t sent = 0, received = 0;
    // The numbers start apart, so that a message in the wrong flow is noticed.
    std::uint32_t id(std::uint32_t n) const {
      return static_cast<std::uint32_t>((from * 10 + to) * 10 + number) * 1000 + n;
    }
  };
  std::vector<Flow> flows;
  for (int from = 0; from < kRanks; ++from)
    for (int to = 0; to < kRanks; ++to)
      for (int number = 0; number < kChannels; ++number)
        if (from != to) flows.push_back({from, to, number});
  ASSERT_TRUE(ranks.eventually([&] {
    bool done = true;
    for (Flow& f : flows) {
      const auto bytes = [&](std::uint32_t n) { return kSizes[f.id(n) % kSizes.size()]; };
      if (f.sent < kMessages &&
          try_send(ranks[f.from].sender(f.to, f.number), f.id(f.sent), bytes(f.sent)))
        ++f.sent;
      if (f.received < kMessages &&
          try_receive(ranks[f.to].receiver(f.from, f.number), f.id(f.received), bytes(f.received)))
        ++f.received;
      done &= f.received == kMessages;
    }
    return done;
  }));
}

TEST_P(Conformance, AFullChannelDoesNotStopItsNeighbour) {
  TestRanks ranks(GetParam());
  std::uint32_t stuck = 0;
  ASSERT_TRUE(ranks.eventually([&] {
    while (stuck < 1000 && try_send(ranks[0].sender(1, 0), stuck, kMax)) ++stuck;
    return ranks[1].receiver(0, 0).peek().has_value();
  }));
  ASSERT_LT(stuck, 1000u);
  for (std::uint32_t n = 0; n < 100; ++n) {
    ASSERT_TRUE(ranks.eventually([&] { return try_send(ranks[0].sender(1, 1), n, 200); }));
    ASSERT_TRUE(ranks.eventually([&] { return try_receive(ranks[1].receiver(0, 1), n, 200); }));
  }
}

// The verifier's proofs rely on this: whatever was sent before, there is room for two messages of
// any size as soon as the receiver has released all earlier ones.
TEST_P(Conformance, TwoMessagesOfAnySizeFitWheneverAllBeforeAreReleased) {
  TestRanks ranks(GetParam());
  SendChannel& sender = ranks[0].sender(1, 0);
  RecvChannel& receiver = ranks[1].receiver(0, 0);
  SeededRandom random(11);
  std::uint32_t next = 0;
  for (int round = 0; round < 300; ++round) {
    const std::array<std::size_t, 2> bytes{round % 3 == 0 ? kMax : random.next() % (kMax + 1),
                                           round % 5 == 0 ? kMax : random.next() % (kMax + 1)};
    // Information about releases may be on its way, but no further release may be needed.
    ASSERT_TRUE(ranks.eventually([&] { return try_send(sender, next, bytes[0]); })) << round;
    ASSERT_TRUE(ranks.eventually([&] { return try_send(sender, next + 1, bytes[1]); })) << round;
    for (const std::size_t size : bytes) {
      ASSERT_TRUE(ranks.eventually([&] { return try_receive(receiver, next, size); })) << round;
      ++next;
    }
  }
}

TEST_P(Conformance, AFullWindowRefusesAndGoesOnAfterARelease) {
  TestRanks ranks(GetParam());
  SendChannel& sender = ranks[0].sender(1, 0);
  RecvChannel& receiver = ranks[1].receiver(0, 0);
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{40}, std::size_t{41}, kMax}) {
    std::uint32_t sent = 0;
    EXPECT_TRUE(ranks.eventually([&] {  // credits of the previous size may be on their way
      while (sent < 10'000 && try_send(sender, sent, bytes)) ++sent;
      return sent >= 2;
    }));
    while (sent < 10'000 && try_send(sender, sent, bytes)) ++sent;
    ASSERT_LT(sent, 10'000u) << "the window has no end";
    // These are enough releases for the sender to learn of them.
    std::uint32_t received = 0;
    ASSERT_TRUE(ranks.eventually([&] {
      if (received < sent && try_receive(receiver, received, bytes)) ++received;
      return received == sent;
    }));
    ASSERT_TRUE(ranks.eventually([&] { return sender.acquire(bytes).has_value(); }));
  }
}

TEST_P(Conformance, AcquiringAgainBeforePostGivesTheSameMemory) {
  TestRanks ranks(GetParam());
  SendChannel& sender = ranks[0].sender(1, 0);
  for (const std::size_t bytes : {std::size_t{8}, std::size_t{1000}}) {
    const Span first = sender.acquire(bytes).value();
    const Span again = sender.acquire(bytes).value();
    EXPECT_EQ(first.data, again.data);
    EXPECT_EQ(again.bytes, bytes);
  }
}

TEST_P(Conformance, PeekingTwiceGivesTheSameMessageUntilItIsReleased) {
  TestRanks ranks(GetParam());
  ASSERT_TRUE(try_send(ranks[0].sender(1, 0), 5, 1000));
  ASSERT_TRUE(try_send(ranks[0].sender(1, 0), 6, 8));
  RecvChannel& receiver = ranks[1].receiver(0, 0);
  ASSERT_TRUE(ranks.eventually([&] { return receiver.peek().has_value(); }));
  const Message first = receiver.peek().value();
  const Message again = receiver.peek().value();
  EXPECT_EQ(first.data, again.data);
  EXPECT_EQ(first.header, again.header);
  EXPECT_TRUE(try_receive(receiver, 5, 1000));
  ASSERT_TRUE(ranks.eventually([&] { return try_receive(receiver, 6, 8); }));
}

TEST_P(Conformance, AMessageMayLieWhereItsSenderHasItUntilItIsGivenBack) {
  TestRanks ranks(GetParam());
  SendChannel& sender = ranks[0].sender(1, 0);
  RecvChannel& receiver = ranks[1].receiver(0, 0);
  if (!ranks.eventually([&] { return sender.zero_copy().has(MemoryKind::host); }))
    GTEST_SKIP() << "its channels copy all that they send";
  const bool kernel_takes_it = GetParam().name != "stream";
  std::vector<std::byte> data(2000), copy(2000);
  for (std::uint32_t message = 0; message < 20; ++message) {
    for (std::size_t i = 0; i < data.size(); ++i) data[i] = byte_at(message, i);
    ASSERT_TRUE(ranks.eventually([&] {
      return sender.acquire_zero_copy({data.data(), data.size()});
    }));
    sender.post(header_of(message, data.size()));
    EXPECT_TRUE(kernel_takes_it || !sender.zero_copy_done());
    const Memory to{message % 3 == 0 ? nullptr : copy.data(), copy.size()};
    const std::byte* got = nullptr;
    ASSERT_TRUE(ranks.eventually([&] {
      const auto found = receiver.peek();
      if (found) got = found->remote ? receiver.get(to) : found->data;
      return got != nullptr;
    }));
    EXPECT_TRUE(std::equal(data.begin(), data.end(), got)) << "message " << message;
    receiver.release();
    ASSERT_TRUE(ranks.eventually([&] { return sender.zero_copy_done(); }));
  }
}

TEST_P(Conformance, AMessageMayGoToAPlaceThatIsNamedBeforeItArrives) {
  TestRanks ranks(GetParam());
  SendChannel& sender = ranks[0].sender(1, 0);
  RecvChannel& receiver = ranks[1].receiver(0, 0);
  const std::string& name = GetParam().name;
  const bool takes_places = !GetParam().in_memory && name != "mail" && name != "faulty";
  std::vector<std::byte> place(kMax);
  for (std::uint32_t message = 0; message < 40; ++message) {
    // Some messages are larger than the place, and go elsewhere.
    const std::size_t bytes = 1 + message * 997 % kMax, room = message % 5 == 4 ? bytes - 1 : kMax;
    const bool own = message % 5 == 3;
    for (int again = 0; again < 3; ++again) {
      ASSERT_FALSE(receiver.peek());
      ASSERT_EQ(receiver.get({own ? nullptr : place.data(), room}), nullptr);
    }
    ASSERT_TRUE(ranks.eventually([&] { return try_send(sender, message, bytes); }));
    ASSERT_TRUE(ranks.eventually([&] {
      const auto found = receiver.peek();
      if (found && !found->remote && !own && room == kMax && takes_places) {
        EXPECT_EQ(found->data, place.data()) << "message " << message;
      }
      if (found && room < bytes) {
        EXPECT_NE(found->data, place.data()) << "it is longer";
      }
      return try_receive(receiver, message, bytes);
    }));
  }
}

TEST_P(Conformance, AMessageThatIsLongerThanItsPlaceIsNotBrought) {
  TestRanks ranks(GetParam());
  SendChannel& sender = ranks[0].sender(1, 0);
  RecvChannel& receiver = ranks[1].receiver(0, 0);
  std::vector<std::byte> place(kMax, std::byte{0x5a});
  const std::vector<std::byte> before = place;
  for (std::uint32_t message = 0; message < 4; ++message) {
    ASSERT_TRUE(ranks.eventually([&] { return try_send(sender, message, kMax); }));
    // The receiver has not looked at the message when it names the place.
    for (int turn = 0; turn < 100; ++turn) {
      for (int rank : {0, 1}) ranks[rank].progress();
      const std::byte* const data = receiver.get({place.data(), kMax / 2});
      ASSERT_NE(data, place.data());
      ASSERT_EQ(place, before);
    }
    ASSERT_TRUE(ranks.eventually([&] { return try_receive(receiver, message, kMax); }));
  }
}

TEST_P(Conformance, NothingIsWrittenToAPlaceThatHasBeenRevoked) {
  TestRanks ranks(GetParam());
  SendChannel& sender = ranks[0].sender(1, 0);
  RecvChannel& receiver = ranks[1].receiver(0, 0);
  std::vector<std::byte> place(kMax, std::byte{0x5a});
  const std::vector<std::byte> before = place;
  ASSERT_FALSE(receiver.peek());
  ASSERT_EQ(receiver.get({place.data(), place.size()}), nullptr);
  ranks[1].own_status_page().fail(ErrorKind::timeout, "a test");
  ranks[1].revoke(0);
  ASSERT_TRUE(ranks.eventually([&] { return try_send(sender, 7, kMax); }));
  ASSERT_TRUE(ranks.eventually([&] { return try_receive(receiver, 7, kMax); }));
  EXPECT_EQ(place, before);
}

TEST_P(Conformance, AMessageLargerThanTheLargestIsABugAndSaysSo) {
  TestRanks ranks(GetParam());
  try {
    ranks[0].sender(1, 0).acquire(kMax + 1);
    FAIL() << "it was taken";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::internal);
  }
}

TEST_P(Conformance, AReceiverMayBeAskedForLongBeforeItsSenderIsMade) {
  TestRanks ranks(GetParam());
  RecvChannel& receiver = ranks[1].receiver(0, 4);
  EXPECT_FALSE(receiver.peek());
  for (int turn = 0; turn < 10; ++turn) ranks[1].progress();
  EXPECT_FALSE(receiver.peek());
  ASSERT_TRUE(try_send(ranks[0].sender(1, 4), 1, 100));
  EXPECT_EQ(&receiver, &ranks[1].receiver(0, 4));
  ASSERT_TRUE(ranks.eventually([&] { return try_receive(receiver, 1, 100); }));
}

TEST_P(Conformance, ARingOnceShownStaysTheSame) {
  TestRanks ranks(GetParam());
  SendChannel& sender = ranks[0].sender(1, 0);
  RecvChannel& receiver = ranks[1].receiver(0, 0);
  ASSERT_TRUE(try_send(sender, 0, 100));
  ASSERT_TRUE(ranks.eventually([&] { return receiver.peek().has_value(); }));
  EXPECT_EQ(sender.ring() != nullptr, GetParam().in_memory);
  EXPECT_EQ(receiver.ring() != nullptr, GetParam().in_memory);
  EXPECT_EQ(sender.ring(), ranks[0].sender(1, 0).ring());
  EXPECT_EQ(receiver.ring(), ranks[1].receiver(0, 0).ring());
}

TEST_P(Conformance, MillionsOfBytesOfRandomSizesWrapAroundWithoutALoss) {
  for (std::uint64_t seed = 1; seed <= 3; ++seed) {
    TestRanks ranks(GetParam(), with(2, seed));
    SendChannel& sender = ranks[0].sender(1, 0);
    RecvChannel& receiver = ranks[1].receiver(0, 0);
    SeededRandom random(seed);
    std::deque<std::size_t> on_their_way;
    std::uint32_t sent = 0;
    std::uint32_t received = 0;
    std::size_t next_bytes = 0;
    constexpr std::uint32_t kMessages = 2000;
    ASSERT_TRUE(ranks.eventually([&] {
      for (std::uint64_t burst = random.next() % 20; burst > 0 && sent < kMessages; --burst) {
        if (!try_send(sender, sent, next_bytes)) break;
        on_their_way.push_back(next_bytes);
        next_bytes = random.next() % (random.next() % 3 == 0 ? kMax + 1 : 80);
        ++sent;
      }
      for (std::uint64_t burst = random.next() % 20; burst > 0 && !on_their_way.empty(); --burst) {
        if (!try_receive(receiver, received, on_their_way.front())) break;
        on_their_way.pop_front();
        ++received;
      }
      return received == kMessages;
    })) << "seed "
        << seed << ": " << sent << " sent, " << received << " received";
  }
}

TEST_P(Conformance, ABoardShowsThePeersCalls) {
  TestRanks ranks(GetParam());
  const CallSignature call{Collective::reduce, DataType::bf16, Op::max, 1, 12345, 3};
  ranks[0].own_status_page().record(70, StatusPage::entry_of(call));
  const StatusPage* status_page = nullptr;
  ASSERT_TRUE(ranks.eventually([&] {
    status_page = ranks[1].status_page(0);
    return status_page != nullptr && status_page->call(70).has_value();
  }));
  EXPECT_EQ(status_page->call(70), call);
  EXPECT_EQ(status_page->call(71), std::nullopt);
  EXPECT_EQ(status_page->call(6), std::nullopt) << "overwritten by call 70";
  EXPECT_EQ(status_page->entered.load(), 71u);
}

TEST_P(Conformance, AFailureIsSeenByPeersWithItsKindAndText) {
  TestRanks ranks(GetParam(), with(3));
  EXPECT_EQ(ranks[2].status(0).state, PeerStatus::State::alive);
  ranks[0].own_status_page().fail(ErrorKind::timeout, "rank 1 never came");
  ranks[0].wake(2);
  ASSERT_TRUE(
      ranks.eventually([&] { return ranks[2].status(0).state == PeerStatus::State::failed; }));
  ASSERT_TRUE(ranks.eventually([&] { return ranks[2].status_page(0) != nullptr; }));
  EXPECT_EQ(ranks[2].status_page(0)->failure_text(), "rank 1 never came");
  EXPECT_EQ(ranks[2].status_page(0)->failure_kind.load(),
            static_cast<std::uint32_t>(ErrorKind::timeout));
  EXPECT_EQ(ranks[2].status(1).state, PeerStatus::State::alive);
  ranks.destroy(0);
  ASSERT_TRUE(
      ranks.eventually([&] { return ranks[2].status(0).state == PeerStatus::State::failed; }));
}

TEST_P(Conformance, WhatAPeerSentBeforeItClosedIsReceivedAfterIt) {
  TestRanks ranks(GetParam());
  ASSERT_TRUE(try_send(ranks[0].sender(1, 0), 0, 1000));
  // The receiver has not asked for this ring yet.
  ASSERT_TRUE(try_send(ranks[0].sender(1, 1), 1, 30));
  ranks[0].close();
  ranks[0].close();
  ranks.destroy(0);
  ASSERT_TRUE(
      ranks.eventually([&] { return ranks[1].status(0).state == PeerStatus::State::closed; }));
  EXPECT_TRUE(ranks.eventually([&] { return try_receive(ranks[1].receiver(0, 0), 0, 1000); }));
  EXPECT_TRUE(ranks.eventually([&] { return try_receive(ranks[1].receiver(0, 1), 1, 30); }));
  EXPECT_EQ(ranks[1].status(0).state, PeerStatus::State::closed) << "gone, but in good order";
}

TEST_P(Conformance, SendingToAPeerThatHasClosedDoesNoHarm) {
  TestRanks ranks(GetParam());
  ranks.destroy(0);
  ASSERT_TRUE(
      ranks.eventually([&] { return ranks[1].status(0).state == PeerStatus::State::closed; }));
  for (std::uint32_t n = 0; n < 100; ++n) {
    try_send(ranks[1].sender(0, 0), n, kMax);
    ranks[1].progress();
  }
  ranks[1].wake(0);
  EXPECT_EQ(ranks[1].status(0).state, PeerStatus::State::closed);
}

TEST_P(Conformance, OneRankAloneIsAJobToo) {
  TestRanks ranks(GetParam(), with(1));
  ranks[0].progress();
  EXPECT_EQ(ranks[0].status_page(0), &ranks[0].own_status_page());
  EXPECT_EQ(ranks[0].status(0).state, PeerStatus::State::alive);
  ranks[0].close();
  EXPECT_EQ(ranks[0].status(0).state, PeerStatus::State::closed);
}

// Waits as the runtime does: adds itself to the sleepers, calls the barrier, looks again, and
// sleeps on the doorbell and wait_fds(). Returns false where nothing has woken it within ample
// time.
bool sleep_until(TestRanks& ranks, int rank, const std::function<bool()>& ready) {
  Transport& self = ranks[rank];
  for (;;) {
    self.progress();
    if (ready()) return true;
    self.own_status_page().sleepers.add();
    ranks.bell(rank).sleep_barrier();
    self.arm();
    const bool last_look = ready();
    int woken = 1;
    if (!last_look) {
      std::vector<pollfd> fds{{ranks.bell(rank).fd(), POLLIN, 0}};
      for (const int fd : self.wait_fds()) fds.push_back({fd, POLLIN, 0});
      woken = poll(fds.data(), fds.size(), 20'000);
    }
    self.disarm();
    self.own_status_page().sleepers.remove();
    ranks.bell(rank).clear();
    if (last_look || woken == 0) return last_look;
  }
}

// A rank that has nothing more to wait for still sends what it has posted.
void finish(Transport& transport) {
  while (!transport.all_left()) transport.progress();
  std::vector<pollfd> fds;
  for (const int fd : transport.wait_fds()) fds.push_back({fd, POLLIN, 0});
  while (poll(fds.data(), fds.size(), 0) > 0) transport.progress();
}

TEST_P(Conformance, RanksThatSleepBetweenMessagesAreAlwaysWoken) {
  RanksOptions options = with(2);
  options.bells = true;
  TestRanks ranks(GetParam(), options);
  constexpr std::uint32_t kRounds = 500;
  const auto play = [&](int rank) {
    SendChannel& sender = ranks[rank].sender(1 - rank, 0);
    RecvChannel& receiver = ranks[rank].receiver(1 - rank, 0);
    for (std::uint32_t n = 0; n < kRounds; ++n) {
      // There are two large messages; the second waits for credits while the first has not been
      // released.
      for (std::uint32_t k = 0; k < 2; ++k)
        if (!sleep_until(ranks, rank, [&] { return try_send(sender, 2 * n + k, kMax); }))
          return static_cast<void>(ADD_FAILURE() << "rank " << rank << " overslept a credit");
      for (std::uint32_t k = 0; k < 2; ++k)
        if (!sleep_until(ranks, rank, [&] { return try_receive(receiver, 2 * n + k, kMax); }))
          return static_cast<void>(ADD_FAILURE() << "rank " << rank << " overslept a message");
    }
    finish(ranks[rank]);
  };
  std::thread other(play, 1);
  play(0);
  other.join();
}

TEST_P(Conformance, AGoodbyeAndAFailureWakeASleepingPeer) {
  RanksOptions options = with(3);
  options.bells = true;
  TestRanks ranks(GetParam(), options);
  std::thread closer([&] { ranks[1].close(); });
  EXPECT_TRUE(
      sleep_until(ranks, 0, [&] { return ranks[0].status(1).state == PeerStatus::State::closed; }));
  closer.join();
  std::thread failing([&] {
    ranks[2].own_status_page().fail(ErrorKind::corrupt, "a bit flipped");
    ranks[2].wake(0);
    finish(ranks[2]);
  });
  EXPECT_TRUE(
      sleep_until(ranks, 0, [&] { return ranks[0].status(2).state == PeerStatus::State::failed; }));
  failing.join();
}

}  // namespace
}  // namespace tutti
