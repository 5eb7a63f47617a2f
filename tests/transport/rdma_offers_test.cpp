// Tests what a peer says about messages that devices read: offers and answers that cannot be. Also
// tests the registrations that are kept.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <thread>

#include "rdma_peer.h"

namespace tutti {
namespace {

using qp::Frame;
using qp::FrameKind;
using testing::HasSubstr;

constexpr std::size_t kMax = 100'000;  // several slots, and long enough to be offered

class RdmaOffers : public RdmaPeerTest<SteadyClock, kMax> {
 protected:
  void TearDown() override {
    connection_->remove(*group_);
    group_.reset();
  }
  void offer(std::uint32_t bytes, std::uint16_t number = 0, std::uint64_t address = 4096,
             std::uint32_t key = 1) {
    Frame frame = about(FrameKind::offer, number);
    frame.header.length = bytes;
    const qp::Offer its{address, key, qp::Path::kFirst};
    say(frame, std::as_bytes(std::span(&its, 1)));
  }
  static Frame about(FrameKind kind, std::uint16_t number) {
    Frame frame;
    frame.kind = kind;
    frame.group = 7;
    frame.number = number;
    return frame;
  }
  /// Checks how the connection has ended, and makes the next one.
  void expect_lost(const std::string& why) {
    RdmaPeerTest::expect_lost(why);
    TearDown();
    SetUp();
  }
  RecvChannel& in() { return connection_->channel(*group_, 0).receiver; }
};

TEST_F(RdmaOffers, OfAbsurdLengthsNumbersAndFormsEndTheConnection) {
  offer(kMax + 1);
  expect_lost("which cannot be");
  offer(0);
  expect_lost("was not offered");
  offer(kMax, 1);
  expect_lost("was not offered");
  say(about(FrameKind::offer, 0), std::span(ignored_).first(sizeof(qp::Offer) + 1));
  expect_lost("was not offered");
  std::vector<std::byte> theirs(kMax);
  const auto readable = peer_->add(theirs.data(), kMax, true);
  for (std::uint16_t number = 0; number < qp::kWindow; ++number)
    offer(kMax, number, reinterpret_cast<std::uintptr_t>(theirs.data()), readable->remote_key());
  EXPECT_EQ(connection_->how_ended(), qp::Connection::End::none);
  offer(kMax, qp::kWindow);
  expect_lost("more messages than there was room for");
}

TEST_F(RdmaOffers, OfMemoryThatThePeerDoesNotLetReadEndTheConnection) {
  std::vector<std::byte> theirs(kMax);
  const auto address = reinterpret_cast<std::uintptr_t>(theirs.data());
  const auto secret = peer_->add(theirs.data(), kMax, false);
  const auto readable = peer_->add(theirs.data(), kMax - 1, true);
  for (const std::uint32_t key : {0u, secret->remote_key(), readable->remote_key()}) {
    offer(kMax, 0, address, key);
    EXPECT_EQ(in().get({}), nullptr);
    pump();
    EXPECT_EQ(in().peek()->data, nullptr);
    TearDown();  // keys belong to one peer
    const std::string why = connection_->why_ended();
    EXPECT_THAT(why, HasSubstr("remote access error")) << key;
    connection_.reset();
    SetUp();
  }
}

TEST_F(RdmaOffers, ThatNobodyMadeAreNotAnswered) {
  for (const FrameKind kind : {FrameKind::taken, FrameKind::decline, FrameKind::answer}) {
    say(about(kind, 0));
    expect_lost("was not offered");
  }
  Frame far = about(FrameKind::taken, 0);
  far.channel = -1;
  say(far);
  expect_lost("was not offered");
  offer(kMax);
  Frame early = about(FrameKind::answer, 0);
  early.header.length = kMax;
  say(early, std::span(ignored_).first(qp::kPartBytes));
  expect_lost("was not offered");      // it has not been declined
  say(about(FrameKind::withdraw, 3));  // it may have crossed the answer
  EXPECT_EQ(connection_->how_ended(), qp::Connection::End::none);
}

TEST_F(RdmaOffers, MayLieInMemoryThatAnotherThreadEndsWhileTheConnectionEnds) {
  for (int round = 0; round < 50; ++round) {
    std::vector<std::byte> data(kMax);
    auto held = endpoint_.registrations()->add(data.data(), kMax, true);
    const auto post = [&](int channel, std::uint32_t bytes) {
      SendChannel& out = connection_->channel(*group_, channel).sender;
      ASSERT_TRUE(out.acquire_zero_copy({data.data(), bytes}));
      out.post({1, 2, bytes, 0});
    };
    post(0, kMax);
    for (std::uint32_t n = 1; n < qp::kReceiveSlots; ++n) post(1 + static_cast<int>(n % 2), 1);
    pump();
    say(about(FrameKind::decline, 0));  // The answer waits for room, which the peer does not give.
    ASSERT_TRUE(connection_->has_unsent());
    TearDown();
    std::thread other([&] { held.reset(); });
    connection_.reset();
    other.join();
    SetUp();
  }
}

TEST_F(RdmaOffers, AreAnsweredOnceAndBeforeTheyAreReleased) {
  std::vector<std::byte> data(kMax);
  const auto held = endpoint_.registrations()->add(data.data(), kMax, true);
  const auto post = [&] {
    SendChannel& out = connection_->channel(*group_, 0).sender;
    ASSERT_TRUE(out.acquire_zero_copy({data.data(), kMax}));
    out.post({1, 2, kMax, 0});
    pump();
  };
  post();
  Frame credit = about(FrameKind::credit, 0);
  credit.released = 1;
  say(credit);
  expect_lost("nobody had taken");
  post();
  say(about(FrameKind::taken, 1));
  expect_lost("was not offered");
  post();
  say(about(FrameKind::taken, 0));
  EXPECT_TRUE(connection_->channel(*group_, 0).sender.zero_copy_done());
  say(about(FrameKind::taken, 0));
  expect_lost("was not offered");
}

TEST_F(RdmaOffers, ToACommunicatorThatIsGoneAreGivenBack) {
  connection_->remove(*group_);
  offer(kMax);
  Frame last;
  std::memcpy(&last, ignored_.data(), sizeof last);
  EXPECT_EQ(last.kind, FrameKind::taken);
  EXPECT_EQ(connection_->how_ended(), qp::Connection::End::none);
  connection_->add(*group_);
}

TEST_F(RdmaOffers, ToACommunicatorThatIsDestroyedAreGivenBack) {
  offer(kMax);
  connection_->remove(*group_);
  pump();
  Frame last;
  std::memcpy(&last, ignored_.data(), sizeof last);
  EXPECT_EQ(last.kind, FrameKind::taken);
  connection_->add(*group_);
}

TEST_F(RdmaOffers, MessagesThatHaveNotBeenSentCannotBeReleased) {
  SendChannel& out = connection_->channel(*group_, 0).sender;
  for (std::uint32_t i = 0; i < qp::kWindow; ++i) {  // more than the peer has room for
    const auto span = out.acquire(kMax);
    ASSERT_TRUE(span);
    std::memset(span->data, 1, kMax);
    out.post({1, 2, kMax, 0});
  }
  pump();
  Frame frame = about(FrameKind::credit, 0);
  frame.released = qp::kWindow;
  say(frame);
  expect_lost("that nobody had taken");
}

TEST_F(RdmaOffers, MemoryIsRegisteredApartForThePeerToReadAndForThisRankToReceive) {
  std::vector<std::byte> mine(kMax);
  const auto registrations = endpoint_.registrations();
  const auto held = registrations->add(mine.data(), kMax, true);
  const auto into =
      registrations->use(*connection_, connection_->first_path(), mine.data(), kMax, false);
  auto from = registrations->use(*connection_, connection_->first_path(), mine.data(), kMax, true);
  EXPECT_EQ(registrations->counters().count, 2u);
  EXPECT_NE(into.local_key(), from.local_key());
  registrations->revoke(from);  // A call that sends from it has failed.
  EXPECT_EQ(registrations->counters().count, 1u);
}

TEST(RdmaRegistrations, AreKeptInBoundsAndTheOneUsedLongestAgoMakesRoom) {
  SteadyClock clock;
  qp::fake::Network network;
  qp::Endpoint endpoint{2, clock, {network.make_device()}};
  const auto connection = endpoint.make_connection(), other = endpoint.make_connection();
  std::vector<std::string> refused;
  const auto kept = std::make_shared<qp::Registrations>(
      qp::Registrations::Limits{3, 1000}, [&](const std::string& why) { refused.push_back(why); });
  std::vector<std::byte> memory(4000);
  std::vector<std::shared_ptr<void>> held;
  for (std::size_t i = 0; i < 5; ++i) held.push_back(kept->add(memory.data() + i * 300, 300, true));
  const std::uint64_t before = network.registered_now();
  const auto use = [&](std::size_t i, qp::Connection& by) {
    return kept->use(by, by.first_path(), memory.data() + i * 300 + 10, 290, true);
  };
  EXPECT_FALSE(kept->use(*connection, connection->first_path(), memory.data() + 200, 200, true))
      << "it lies in two";
  EXPECT_FALSE(kept->use(*connection, connection->first_path(), memory.data() + 3000, 1, true));
  for (const std::size_t i : {0, 1, 2, 0, 1, 2}) EXPECT_TRUE(use(i, *connection));
  EXPECT_EQ(kept->counters().made, 3u);
  EXPECT_EQ(kept->counters().hits, 3u);
  EXPECT_EQ(network.registered_now(), before + 900);
  EXPECT_TRUE(use(0, *connection));  // so that 1 is the oldest
  EXPECT_TRUE(use(3, *connection));
  EXPECT_EQ(kept->counters().evicted, 1u);
  EXPECT_TRUE(use(0, *connection));
  EXPECT_EQ(kept->counters().hits, 5u);
  EXPECT_TRUE(use(1, *connection));
  EXPECT_EQ(kept->counters().made, 5u);
  {
    // Those that are in use stay.
    const auto a = use(0, *other), b = use(1, *other), c = use(3, *other);
    EXPECT_TRUE(a && b && c);
    EXPECT_NE(a.remote_key(), b.remote_key());
    EXPECT_FALSE(use(4, *other));
    EXPECT_EQ(refused.size(), 1u);
    EXPECT_EQ(kept->counters().count, 3u);
  }
  EXPECT_TRUE(use(4, *other));
  held[4].reset();
  EXPECT_FALSE(use(4, *other));
  held.clear();
  EXPECT_TRUE(kept->empty());
  EXPECT_EQ(kept->counters().count, 0u);
  EXPECT_EQ(network.registered_now(), before);
  const auto large = kept->add(memory.data(), 1001, true);
  EXPECT_FALSE(kept->use(*connection, connection->first_path(), memory.data(), 1, true));
}

}  // namespace
}  // namespace tutti
