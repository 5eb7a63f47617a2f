// Tests messages over RDMA that the receiver's device reads where they lie, over the queue pairs of
// a fake device.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <deque>
#include <future>
#include <thread>

#include <tutti/error.hpp>

#include "fake_verbs.h"
#include "transport/queue_pair/connection.h"
#include "transport/queue_pair/endpoint.h"
#include "transport/rdma/rdma.h"

namespace tutti {
namespace {

using qp::Frame;
using qp::FrameKind;
using testing::Each;
using testing::HasSubstr;

constexpr std::size_t kMax = 100'000;  // several slots, and long enough to be offered

std::vector<std::byte> pattern(std::size_t bytes, int seed) {
  std::vector<std::byte> data(bytes);
  for (std::size_t i = 0; i < bytes; ++i)
    data[i] = static_cast<std::byte>((i * 31 + i / 251 + static_cast<std::size_t>(seed) * 7) & 255);
  return data;
}

/// Connects two ranks over a fake network; rank 0 sends on channels to rank 1.
class RdmaReads : public testing::Test {
 protected:
  void connect() {
    for (const int rank : {0, 1}) {
      TransportContext context;
      context.rank = rank;
      context.size = 2;
      context.clock = &clock_;
      context.random = &random_;
      context.config = &config_;
      context.log = &log_;
      context.max_message_bytes = context.message_limit = kMax;
      ranks_.push_back(rdma::make_over(context, {network_.make_device()}));
    }
    const std::vector<std::string> addresses{ranks_[0]->address(), ranks_[1]->address()};
    auto other = std::async(std::launch::async, [&] {
      ranks_[1]->connect(addresses, clock_.now() + std::chrono::seconds(30));
    });
    ranks_[0]->connect(addresses, clock_.now() + std::chrono::seconds(30));
    other.get();
  }
  template <typename What>
  bool eventually(What&& what) {
    const TimePoint until = clock_.now() + std::chrono::seconds(30);
    while (clock_.now() < until) {
      if (what()) return true;
      for (const auto& rank : ranks_)
        if (rank != nullptr) rank->progress();
    }
    return false;
  }
  /// Lets all that has been sent arrive.
  void turn() {
    for (int turn = 0; turn < 200; ++turn)
      for (const auto& rank : ranks_) rank->progress();
  }
  SendChannel& out(int channel = 0) { return ranks_[0]->sender(1, channel); }
  RecvChannel& in(int channel = 0) { return ranks_[1]->receiver(0, channel); }
  bool send(std::span<std::byte> data, int channel = 0) {
    if (!out(channel).acquire_zero_copy({data.data(), data.size()})) return false;
    out(channel).post({1, 2, static_cast<std::uint32_t>(data.size()), 0});
    return true;
  }
  /// Sends bytes that are copied.
  bool send_copy(std::span<const std::byte> data, int channel = 0) {
    const auto span = out(channel).acquire(data.size());
    if (!span) return false;
    std::memcpy(span->data, data.data(), data.size());
    out(channel).post({1, 2, static_cast<std::uint32_t>(data.size()), 0});
    return true;
  }
  /// Receives the next message to `place`, or where that is empty to memory of the channel, and
  /// returns it.
  std::optional<std::vector<std::byte>> receive(std::span<std::byte> place, int channel = 0) {
    const auto found = in(channel).peek();
    if (!found) return std::nullopt;
    const std::byte* const data = in(channel).get({place.data(), place.size()});
    if (data == nullptr) return std::nullopt;
    EXPECT_TRUE(place.empty() || data == place.data());
    std::vector<std::byte> copy(data, data + found->header.length);
    in(channel).release();
    return copy;
  }
  std::vector<std::byte> received(std::span<std::byte> place, int channel = 0) {
    std::optional<std::vector<std::byte>> found;
    EXPECT_TRUE(eventually([&] { return (found = receive(place, channel)).has_value(); }));
    return found.value_or(std::vector<std::byte>());
  }
  std::shared_ptr<void> register_at(int rank, std::span<std::byte> data) {
    return ranks_[static_cast<std::size_t>(rank)]->register_memory(data.data(), data.size());
  }
  bool is_lost(int rank) {
    return ranks_[static_cast<std::size_t>(rank)]->status(1 - rank).state ==
           PeerStatus::State::lost;
  }

  SteadyClock clock_;
  SystemRandom random_;
  Config config_;
  std::vector<std::string> said_;
  Log log_{LogLevel::warn, [this](LogLevel, std::string_view text) { said_.emplace_back(text); }};
  qp::fake::Network network_;
  std::vector<std::unique_ptr<Transport>> ranks_;
};

TEST_F(RdmaReads, RegisteredMessagesTouchNoSlot) {
  connect();
  constexpr int kMessages = 42;  // 4 MiB
  auto data = pattern(kMessages * kMax, 1);
  std::vector<std::byte> place(data.size());
  const auto held = register_at(0, data), its = register_at(1, place);
  const std::uint64_t before = network_.sent_bytes();
  int sent = 0, taken = 0;
  ASSERT_TRUE(eventually([&] {
    if (sent < kMessages && send(std::span(data).subspan(sent * kMax, kMax))) ++sent;
    if (taken < kMessages && receive(std::span(place).subspan(taken * kMax, kMax))) ++taken;
    return taken == kMessages && out().zero_copy_done();
  }));
  EXPECT_EQ(place, data);
  EXPECT_EQ(network_.reads(), kMessages);
  EXPECT_EQ(network_.read_bytes(), data.size());
  // Nothing was sent but frames without payloads, and the offers.
  EXPECT_LT(network_.sent_bytes() - before, kMessages * 4 * (sizeof(Frame) + sizeof(qp::Offer)));
}

TEST_F(RdmaReads, GoToThePlaceThatTheReceiverHasNamedBeforeTheyCome) {
  connect();
  auto data = pattern(kMax, 2);
  std::vector<std::byte> place(kMax);
  const auto held = register_at(0, data), its = register_at(1, place);
  EXPECT_EQ(in().get({place.data(), place.size()}), nullptr);
  ASSERT_TRUE(send(data));
  ASSERT_TRUE(eventually([&] { return in().peek() && in().peek()->data != nullptr; }));
  EXPECT_EQ(in().peek()->data, place.data());
  EXPECT_EQ(place, data);
  EXPECT_EQ(network_.read_bytes(), kMax);
}

TEST_F(RdmaReads, OfSeveralMessagesGoOneBehindTheOtherToTheRestOfAPlace) {
  connect();
  auto data = pattern(5 * kMax, 20);
  std::vector<std::byte> place(data.size());
  const auto held = register_at(0, data), its = register_at(1, place);
  for (const bool named_before : {false, true}) {
    std::fill(place.begin(), place.end(), std::byte{0});
    if (named_before) {
      EXPECT_EQ(in().get({place.data(), place.size()}), nullptr);
    }
    const auto part = [&](std::size_t message) {
      return std::span(data).subspan(message * kMax, kMax);
    };
    // The second is copied, and arrives where it belongs, too.
    ASSERT_TRUE(send(part(0)) && send_copy(part(1)) && send(part(2)));
    ASSERT_TRUE(eventually([&] { return in().peek().has_value(); }));
    turn();
    if (!named_before) {
      const std::byte* const first = in().get({place.data(), place.size()});
      EXPECT_TRUE(first == nullptr || first == place.data());  // The device may be quick.
    }
    ASSERT_TRUE(send(part(3)) && send_copy(part(4)));
    turn();
    for (std::size_t message = 0; message < 5; ++message) {
      std::byte* const its_place = place.data() + message * kMax;
      const auto found = in().peek();
      ASSERT_TRUE(found && found->data != nullptr) << message;
      // Without a name, those that had come before the place was named are elsewhere.
      if (named_before || message == 0 || message > 2) {
        EXPECT_EQ(found->data, its_place);
      }
      EXPECT_EQ(in().get({its_place, place.size() - message * kMax}), its_place);
      in().release();
    }
    EXPECT_EQ(place, data);
  }
  EXPECT_EQ(network_.read_bytes(), 6 * kMax);
}

TEST_F(RdmaReads, ComeToMemoryOfTheChannelWhereTheReceiversIsNotRegistered) {
  connect();
  auto data = pattern(kMax, 3);
  std::vector<std::byte> place(kMax);
  const auto held = register_at(0, data);
  for (const bool named : {true, false}) {
    ASSERT_TRUE(send(data));
    EXPECT_EQ(received(named ? std::span(place) : std::span<std::byte>()), data);
  }
  EXPECT_EQ(network_.read_bytes(), 2 * kMax);
}

TEST_F(RdmaReads, AreNotMadeForShortMessagesNorForMemoryThatIsNotRegistered) {
  connect();
  auto data = pattern(kMax, 4), other = pattern(kMax, 5);
  const auto held = register_at(0, data);
  std::vector<std::byte> place(kMax);
  for (const auto& message : {std::span(data).first(qp::kLeastOfferBytes - 1), std::span(other)}) {
    ASSERT_TRUE(send(message));
    EXPECT_TRUE(std::ranges::equal(received(std::span(place).first(message.size())), message));
  }
  EXPECT_EQ(network_.reads(), 0u);
  EXPECT_TRUE(eventually([&] { return out().zero_copy_done(); }));
}

TEST_F(RdmaReads, AreNotMadeWhereADeviceAllowsNone) {
  network_.limit_reads(0);
  connect();
  auto data = pattern(kMax, 6);
  const auto held = register_at(0, data);
  ASSERT_TRUE(send(data));
  EXPECT_EQ(received({}), data);
  EXPECT_EQ(network_.reads(), 0u);
}

TEST_F(RdmaReads, WhereMemoryCannotBeRegisteredMessagesGoThroughSlotsAndTheLogSaysSoOnce) {
  connect();
  network_.limit_registered(network_.registered_now() + kMax - 1);
  auto data = pattern(kMax, 7), more = pattern(kMax, 8);
  const auto held = register_at(0, data), other = register_at(0, more);
  for (auto* const each : {&data, &more, &data}) {
    ASSERT_TRUE(send(*each));
    EXPECT_EQ(received({}), *each);
  }
  EXPECT_EQ(network_.reads(), 0u);
  ASSERT_EQ(said_.size(), 1u);
  EXPECT_THAT(said_[0], HasSubstr("may lock no more memory"));
}

TEST_F(RdmaReads, ThatTheReceiverDeclinesAreSentThroughSlots) {
  connect();
  auto data = pattern(kMax, 9), next = pattern(kMax, 10);
  std::vector<std::byte> place(kMax);
  const auto held = register_at(0, data);
  network_.limit_registered(network_.registered_now() + kMax);  // the sender's is registered first
  for (const bool named : {true, false}) {
    ASSERT_TRUE(send(data));
    ASSERT_TRUE(send_copy(next));  // which arrives before, and stays behind
    EXPECT_EQ(received(named ? std::span(place) : std::span<std::byte>()), data);
    EXPECT_EQ(received({}), next);
    ASSERT_TRUE(eventually([&] { return out().zero_copy_done(); }));
  }
  EXPECT_EQ(network_.reads(), 0u);
  EXPECT_EQ(said_.size(), 1u);
}

TEST_F(RdmaReads, ThatAreLateHoldUpTheirChannelAndNoOther) {
  connect();
  auto data = pattern(kMax, 11);
  const auto shorter = pattern(100, 12);
  const auto held = register_at(0, data);
  network_.hold_reads(true);
  ASSERT_TRUE(send(data));
  ASSERT_TRUE(send_copy(shorter));
  ASSERT_TRUE(send_copy(shorter, 1));
  EXPECT_EQ(received({}, 1), shorter);
  for (int turn = 0; turn < 500; ++turn) {
    for (const auto& rank : ranks_) rank->progress();
    ASSERT_FALSE(receive({}));
    ASSERT_FALSE(out().zero_copy_done());
  }
  network_.hold_reads(false);
  EXPECT_EQ(received({}), data);
  EXPECT_EQ(received({}), shorter);
}

TEST_F(RdmaReads, FromAPeerThatIsGoneLoseItAndWriteNothingMore) {
  connect();
  auto data = pattern(kMax, 13);
  std::vector<std::byte> place(kMax);
  auto held = register_at(0, data);
  const auto its = register_at(1, place);
  network_.hold_reads(true);
  ASSERT_TRUE(send(data));
  ASSERT_TRUE(eventually([&] { return in().peek().has_value(); }));
  ASSERT_EQ(in().get({place.data(), place.size()}), nullptr);
  held.reset();
  ranks_[0].reset();
  network_.hold_reads(false);
  ASSERT_TRUE(eventually([&] { return ranks_[1]->status(0).gone; }));
  ranks_[1]->revoke(0);
  EXPECT_THAT(place, Each(std::byte{0}));
}

TEST_F(RdmaReads, OfMemoryThatEndsBeforeAreSentFromACopy) {
  connect();
  auto data = pattern(kMax, 14);
  const auto right = data;
  auto held = register_at(0, data);
  ASSERT_TRUE(send(data));
  ASSERT_TRUE(eventually([&] { return in().peek().has_value(); }));
  const std::uint64_t with = network_.registered_now();
  held.reset();
  EXPECT_EQ(network_.registered_now(), with - kMax);
  std::fill(data.begin(), data.end(), std::byte{0xee});
  turn();
  EXPECT_EQ(received({}), right);
  EXPECT_FALSE(is_lost(0) || is_lost(1));
  EXPECT_EQ(network_.reads(), 0u);
  EXPECT_TRUE(eventually([&] { return out().zero_copy_done(); }));
}

TEST_F(RdmaReads, ThatComeTooLateForTheMemoryAreRefusedAndItsCopyComesOverAnotherPath) {
  for (const bool call_fails : {false, true}) {
    connect();
    auto data = pattern(kMax, 15);
    const auto right = data;
    std::vector<std::byte> place(kMax);
    auto held = register_at(0, data);
    const auto its = register_at(1, place);
    network_.hold_reads(true);
    ASSERT_TRUE(send(data));
    // The receiver's device has the request, and its program says nothing any more.
    ASSERT_TRUE(eventually([&] { return in().peek().has_value(); }));
    ASSERT_EQ(in().get({place.data(), place.size()}), nullptr);
    if (call_fails)
      ranks_[0]->revoke(1);
    else
      held.reset();
    std::fill(data.begin(), data.end(), std::byte{0xee});
    network_.hold_reads(false);
    const std::uint64_t before = network_.refused_reads();
    if (call_fails) {
      turn();
      EXPECT_FALSE(receive(place).has_value());
      EXPECT_THAT(place, Each(std::byte{0}));
    } else {
      EXPECT_EQ(received(place), right);
    }
    EXPECT_FALSE(is_lost(0) || is_lost(1));
    EXPECT_EQ(network_.refused_reads(), before + 1);
    EXPECT_TRUE(eventually([&] { return said_.size() == 2; }));
    EXPECT_THAT(said_, Each(HasSubstr("has failed: ")));
    said_.clear();
    ranks_.clear();
  }
}

TEST_F(RdmaReads, ThatAreUnderWayWhereTheProgramTakesItsMemoryBackAreWaitedFor) {
  connect();
  auto data = pattern(kMax, 16);
  std::vector<std::byte> place(kMax);
  const auto held = register_at(0, data);
  auto its = register_at(1, place);
  for (const bool ends : {false, true}) {
    network_.hold_reads(true);
    EXPECT_EQ(in().get({place.data(), place.size()}), nullptr);
    ASSERT_TRUE(send(data));
    ASSERT_TRUE(eventually([&] { return in().peek().has_value(); }));
    std::atomic<bool> done{false};
    std::thread other([&] {
      if (ends)
        its.reset();
      else
        ranks_[1]->revoke(0);
      std::fill(place.begin(), place.end(), std::byte{9});
      done = true;
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    EXPECT_FALSE(done);
    network_.hold_reads(false);
    other.join();
    turn();
    EXPECT_THAT(place, Each(std::byte{9}));
    ASSERT_TRUE(eventually([&] { return in().peek() && in().peek()->data != nullptr; }));
    in().release();
  }
}

TEST_F(RdmaReads, OfACallThatHasFailedDoNotArriveAndLeaveTheConnectionAsItIs) {
  connect();
  auto data = pattern(kMax, 17);
  std::vector<std::unique_ptr<Transport>> parts;
  for (const int rank : {0, 1})
    parts.push_back(ranks_[rank]->split({{0, 1}, rank, {1, 1}, 4096, kMax, {}}));
  ASSERT_TRUE(eventually([&] {
    const bool first = parts[0]->join().empty();
    return parts[1]->join().empty() && first;
  }));
  const auto held = register_at(0, data);
  SendChannel& failing = parts[0]->sender(1, 0);
  ASSERT_TRUE(failing.acquire_zero_copy({data.data(), data.size()}));
  failing.post({1, 2, kMax, 0});
  ASSERT_TRUE(eventually([&] { return parts[1]->receiver(0, 0).peek().has_value(); }));
  parts[0]->revoke(1);
  EXPECT_TRUE(failing.zero_copy_done());
  std::fill(data.begin(), data.end(), std::byte{0xee});
  for (int turn = 0; turn < 500; ++turn) {
    for (const auto& rank : ranks_) rank->progress();
    ASSERT_EQ(parts[1]->receiver(0, 0).get({}), nullptr);
  }
  // What other communicators send from the same memory arrives.
  ASSERT_TRUE(send(data));
  EXPECT_EQ(received({}), data);
}

TEST_F(RdmaReads, KeepTheOrderOfMixedMessagesOnAllChannelsAndBothWays) {
  connect();
  SeededRandom random(7);
  constexpr int kChannels = 3, kMessages = 300;
  auto memory = pattern(3 * kMax, 18), place = pattern(kMax, 19);
  const auto first = register_at(0, std::span(memory).first(kMax + 5000));
  const auto second = register_at(0, std::span(memory).subspan(kMax, kMax));  // which overlaps
  const auto its = register_at(1, std::span(place).first(place.size() / 2));
  std::array<std::deque<std::span<std::byte>>, kChannels> under_way;
  std::array<int, kChannels> sent{}, taken{};
  ASSERT_TRUE(eventually([&] {
    bool all = true;
    for (int channel = 0; channel < kChannels; ++channel) {
      const auto at = static_cast<std::size_t>(channel);
      if (sent[at] < kMessages) {
        const std::size_t bytes = 1 + random.next() % (random.next() % 3 == 0 ? 500 : kMax);
        const auto part = std::span(memory).subspan(random.next() % (2 * kMax), bytes);
        if (random.next() % 4 == 0 ? send_copy(part, channel) : send(part, channel)) {
          under_way[at].push_back(part);
          ++sent[at];
        }
      }
      if (!under_way[at].empty() && random.next() % 3 != 0) {
        const auto& next = under_way[at].front();
        // Only one channel may have the place.
        const auto to = channel == 0 ? std::span(place).first(next.size()) : std::span<std::byte>();
        if (const auto found = receive(to, channel)) {
          EXPECT_TRUE(std::ranges::equal(*found, next));
          under_way[at].pop_front();
          ++taken[at];
        }
      }
      all = all && taken[at] == kMessages;
    }
    return all || HasFailure();
  }));
  EXPECT_GT(network_.reads(), 50u);
  EXPECT_EQ(network_.overruns(), 0u);
}

}  // namespace
}  // namespace tutti
