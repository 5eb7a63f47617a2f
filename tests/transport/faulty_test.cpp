// Tests of the faults that transport/faulty adds, over the local transport and with a clock that
// the test sets.
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <memory>
#include <vector>

#include "transport/context.h"
#include "transport/faulty/faulty.h"
#include "transport/local/local.h"

namespace tutti::faulty {
namespace {

using namespace std::chrono_literals;
using State = PeerStatus::State;

class TestClock final : public Clock {
 public:
  TimePoint now() const override { return now_; }
  void advance(Nanoseconds by) { now_ += by; }

 private:
  TimePoint now_{};
};

class Faulty : public testing::Test {
 protected:
  void make(int size, const Faults& faults) {
    const auto hub = std::make_shared<local::Hub>(size);
    for (int rank = 0; rank < size; ++rank) {
      TransportContext context;
      context.rank = rank;
      context.size = size;
      context.clock = &clock_;
      context.data_bytes = 4096;
      context.max_message_bytes = 1024;
      context.hub = hub;
      ranks_.push_back(faulty::make(local::entry().make(context), rank, size, clock_, faults));
    }
    for (const auto& rank : ranks_) rank->connect({}, TimePoint());
  }
  void send(int from, int to, int number, std::uint32_t value) {
    SendChannel& channel = ranks_[from]->sender(to, number);
    std::optional<Span> span;
    for (int tries = 0; !span && tries < 1000; ++tries) {
      span = channel.acquire(sizeof value);
      if (!span) clock_.advance(1us);
    }
    ASSERT_TRUE(span);
    std::memcpy(span->data, &value, sizeof value);
    channel.post({value, 1, sizeof value, 0});
  }
  // Returns the message's value, or -1 where none is visible.
  std::int64_t take(int at, int from, int number) {
    RecvChannel& channel = ranks_[at]->receiver(from, number);
    const auto message = channel.peek();
    if (!message) return -1;
    std::uint32_t value = 0;
    std::memcpy(&value, message->data, sizeof value);
    channel.release();
    return value;
  }

  TestClock clock_;
  std::vector<std::unique_ptr<Transport>> ranks_;
};

TEST_F(Faulty, DelayedMessagesKeepTheOrderOfTheirChannelAndAllArrive) {
  Faults faults;
  faults.delayed_percent = 60;
  faults.longest_delay = 50us;
  make(2, faults);
  bool overtaken = false;
  for (std::uint32_t value = 0; value < 100; ++value) {
    send(0, 1, 0, value);
    send(0, 1, 1, value);
    std::int64_t first = -1, second = -1;
    for (int turn = 0; turn < 200 && (first < 0 || second < 0); ++turn, clock_.advance(1us)) {
      if (first < 0) first = take(1, 0, 0);
      if (second < 0) second = take(1, 0, 1);
      overtaken = overtaken || (second >= 0 && first < 0);
    }
    EXPECT_EQ(first, value);
    EXPECT_EQ(second, value);
  }
  EXPECT_TRUE(overtaken) << "a channel never overtakes another one";
}

TEST_F(Faulty, AChannelIsFullForATimeAndNotForEver) {
  Faults faults;
  faults.full_percent = 100;
  faults.longest_full = 100us;
  make(2, faults);
  EXPECT_FALSE(ranks_[0]->sender(1, 0).acquire(4));
  clock_.advance(101us);
  EXPECT_TRUE(ranks_[0]->sender(1, 0).acquire(4));
}

TEST_F(Faulty, ACutConnectionIsLostAtBothEndsAndToNobodyElse) {
  Faults faults;
  faults.events = {{Event::Kind::cut, TimePoint(10us), 0, 1, 5us}};
  make(3, faults);
  send(0, 1, 0, 7);
  EXPECT_EQ(take(1, 0, 0), 7);
  clock_.advance(10us);
  send(0, 1, 0, 8);
  send(2, 1, 0, 9);
  EXPECT_EQ(take(1, 0, 0), -1);
  EXPECT_EQ(take(1, 2, 0), 9);
  EXPECT_EQ(ranks_[1]->status(0).state, State::alive) << "it is noticed later";
  clock_.advance(5us);
  for (const int end : {0, 1}) {
    EXPECT_EQ(ranks_[end]->status(1 - end).state, State::lost);
    EXPECT_TRUE(ranks_[end]->status(1 - end).gone);
    EXPECT_EQ(ranks_[end]->status(2).state, State::alive);
    EXPECT_EQ(ranks_[2]->status(end).state, State::alive);
  }
}

TEST_F(Faulty, AKilledRankIsLostToAllAndThatHoldsForWhatIsSplitOff) {
  Faults faults;
  faults.events = {{Event::Kind::cut, TimePoint(10us), 2, Event::kAllPeers, {}}};
  make(3, faults);
  Subset subset{{2, 1}, 0, {1, 1}, 4096, 1024};
  const auto killed = ranks_[2]->split(subset);
  subset.rank = 1;
  const auto other = ranks_[1]->split(subset);
  EXPECT_EQ(other->join(), std::vector<int>());
  EXPECT_EQ(other->status(0).state, State::alive);
  clock_.advance(10us);
  EXPECT_EQ(other->status(0).state, State::lost);
  EXPECT_EQ(ranks_[0]->status(2).state, State::lost);
  EXPECT_EQ(ranks_[0]->status(1).state, State::alive);
}

TEST_F(Faulty, AfterASilenceAllArrivesAndNobodyIsLost) {
  Faults faults;
  faults.events = {{Event::Kind::silence, TimePoint(), 0, Event::kAllPeers, 20us}};
  make(2, faults);
  send(0, 1, 0, 5);
  EXPECT_EQ(take(1, 0, 0), -1);
  EXPECT_EQ(ranks_[1]->status_page(0), nullptr);
  EXPECT_EQ(ranks_[1]->status(0).state, State::alive);
  clock_.advance(20us);
  EXPECT_EQ(take(1, 0, 0), 5);
  EXPECT_NE(ranks_[1]->status_page(0), nullptr);
}

TEST_F(Faulty, DamageThatAChecksumFindsIsCorruptAtTheReceiverAlone) {
  Faults faults;
  faults.events = {{Event::Kind::damage, TimePoint(), 0, 1, {}}};
  make(2, faults);
  send(0, 1, 0, 5);
  EXPECT_EQ(take(1, 0, 0), -1);
  EXPECT_EQ(ranks_[1]->status(0).state, State::corrupt);
  EXPECT_EQ(ranks_[0]->status(1).state, State::alive);
}

TEST_F(Faulty, AFlipChangesOneBitOfOneMessageInItsHeaderOrItsPayload) {
  int in_header = 0, in_payload = 0;
  for (std::uint64_t seed = 0; seed < 30; ++seed) {
    ranks_.clear();
    Faults faults;
    faults.seed = seed;
    faults.events = {{Event::Kind::flip, TimePoint(), 0, 1, {}}};
    make(2, faults);
    const Header sent{9, 1, 4, 0};
    for (int message = 0; message < 2; ++message) {
      send(0, 1, 0, 9);
      RecvChannel& channel = ranks_[1]->receiver(0, 0);
      const auto found = channel.peek();
      ASSERT_TRUE(found);
      std::uint32_t value = 0;
      std::memcpy(&value, found->data, sizeof value);
      const bool header_changed = found->header != sent;
      EXPECT_EQ(header_changed + (value != 9), message == 0) << "seed " << seed;
      in_header += header_changed;
      in_payload += value != 9;
      channel.release();
    }
  }
  EXPECT_GT(in_header, 0);
  EXPECT_GT(in_payload, 0);
}

TEST_F(Faulty, NewsOfAPeerAreOldButItsEndIsToldOnlyWithWhatItSentBefore) {
  Faults faults;
  faults.oldest_news = 100us;
  faults.delayed_percent = 100;
  faults.longest_delay = 10s;
  make(2, faults);
  EXPECT_EQ(ranks_[1]->status(0).state, State::alive);
  send(0, 1, 0, 5);
  EXPECT_EQ(take(1, 0, 0), -1);
  ranks_[0]->close();
  clock_.advance(101us);
  EXPECT_EQ(ranks_[1]->status(0).state, State::closed);
  EXPECT_EQ(take(1, 0, 0), 5);
}

TEST_F(Faulty, WhatAPeerSentBeforeAnEndThatIsKnownArrivesAlthoughItsConnectionIsCutLater) {
  Faults faults;
  faults.events = {{Event::Kind::cut, TimePoint(1ms), 0, 1, 0us}};
  make(2, faults);
  send(0, 1, 0, 5);
  send(0, 1, 1, 6);
  ranks_[0]->close();
  EXPECT_EQ(ranks_[1]->status(0).state, State::closed);
  clock_.advance(2ms);
  EXPECT_EQ(ranks_[1]->status(0).state, State::closed);
  EXPECT_EQ(take(1, 0, 0), 5);
  EXPECT_EQ(take(1, 0, 1), 6);
}

}  // namespace
}  // namespace tutti::faulty
