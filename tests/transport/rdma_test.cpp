// Tests what is particular to the transport over RDMA, over queue pairs of a fake device.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>

#include <tutti/error.hpp>

#include "connect_ranks.h"
#include "rdma_peer.h"
#include "transport/queue_pair/connection.h"
#include "transport/queue_pair/endpoint.h"
#include "transport/queue_pair/ports.h"
#include "transport/rdma/rdma.h"

namespace tutti {
namespace {

using qp::Frame;
using qp::FrameKind;
using testing::HasSubstr;

constexpr std::size_t kMax = 100'000;  // several slots

/// A clock that stands still unless a test moves it.
struct StandingClock final : Clock {
  TimePoint now() const override { return time; }
  TimePoint time = TimePoint() + std::chrono::hours(1);
};

/// Ranks over a fake network, each of which a thread of its own connects.
class RdmaRanks : public testing::Test {
 protected:
  void connect(int size) {
    for (int rank = 0; rank < size; ++rank) {
      TransportContext context;
      context.rank = rank;
      context.size = size;
      context.clock = &clock_;
      context.random = &random_;
      context.config = &config_;
      context.max_message_bytes = context.message_limit = kMax;
      ranks_.push_back(rdma::make_over(context, {network_.make_device()}));
    }
    connect_ranks(ranks_, clock_.now() + std::chrono::seconds(30));
  }
  template <typename What>
  bool eventually(What&& what) {
    const TimePoint until = clock_.now() + std::chrono::seconds(30);
    while (clock_.now() < until) {
      if (what()) return true;
      for (const auto& rank : ranks_) rank->progress();
    }
    return false;
  }
  bool send(int from, int to, std::size_t bytes) {
    SendChannel& channel = ranks_[from]->sender(to, 0);
    const auto span = channel.acquire(bytes);
    if (!span) return false;
    std::memset(span->data, from + 1, bytes);
    channel.post({1, 2, static_cast<std::uint32_t>(bytes), 0});
    return true;
  }
  bool receive(int at, int from, std::size_t bytes) {
    RecvChannel& channel = ranks_[at]->receiver(from, 0);
    const auto found = channel.peek();
    if (!found || found->remote) return false;
    EXPECT_EQ(found->header.length, bytes);
    for (std::size_t i = 0; i < bytes; ++i)
      if (found->data[i] != static_cast<std::byte>(from + 1)) return ADD_FAILURE(), false;
    channel.release();
    return true;
  }

  SteadyClock clock_;
  SystemRandom random_;
  Config config_;
  qp::fake::Network network_;
  std::vector<std::unique_ptr<Transport>> ranks_;
};

TEST_F(RdmaRanks, NoFrameFindsItsPeerUnreadyHoweverLateCompletionsAre) {
  connect(2);
  SeededRandom random(5);
  std::array<int, 2> sent{}, received{};
  std::array<std::deque<std::size_t>, 2> under_way;
  ASSERT_TRUE(eventually([&] {
    for (const int from : {0, 1}) {
      for (std::uint64_t burst = random.next() % 8; burst > 0 && sent[from] < 2000; --burst) {
        const std::size_t bytes =
            random.next() % 4 == 0 ? random.next() % kMax : random.next() % 99;
        if (!send(from, 1 - from, bytes)) break;
        under_way[from].push_back(bytes);
        ++sent[from];
      }
      while (!under_way[from].empty() && random.next() % 4 != 0 &&
             receive(1 - from, from, under_way[from].front())) {
        under_way[from].pop_front();
        ++received[from];
      }
    }
    return received[0] == 2000 && received[1] == 2000;
  })) << received[0]
      << " and " << received[1] << " received";
  EXPECT_EQ(network_.overruns(), 0u);
}

TEST_F(RdmaRanks, APeerBehindACutNetworkIsReachedOverItsControlConnectionUntilThatEnds) {
  connect(2);
  network_.cut();
  ASSERT_TRUE(send(0, 1, 10));
  ASSERT_TRUE(eventually([&] { return receive(1, 0, 10); }));
  EXPECT_EQ(ranks_[0]->status(1).state, PeerStatus::State::alive);
  ranks_.pop_back();
  ASSERT_TRUE(eventually([&] { return ranks_[0]->status(1).gone; }));
  // Messages that are posted from now on harm nobody.
  for (int n = 0; n < 20; ++n) send(0, 1, kMax);
  EXPECT_TRUE(ranks_[0]->all_left());
}

TEST_F(RdmaRanks, APairWhoseQueuePairsCannotBeConnectedIsReportedAtBothEnds) {
  network_.refuse();
  connect(3);
  for (const int rank : {0, 1, 2})
    for (const int peer : {0, 1, 2})
      EXPECT_EQ(ranks_[rank]->why_unconnected(peer).empty(), rank == peer) << rank << peer;
  EXPECT_THAT(ranks_[0]->why_unconnected(1), HasSubstr("the fake network refuses"));
}

TEST_F(RdmaRanks, RegisterAtMostHalfAMebibyteForAPeerOfManyCommunicators) {
  connect(2);
  std::vector<std::unique_ptr<Transport>> parts;
  for (std::uint32_t number = 1; number <= 20; ++number)
    for (const int rank : {0, 1}) {
      Subset subset{{0, 1}, rank, {number, number}, 4096, 4096, {}};
      parts.push_back(ranks_[rank]->split(subset));
    }
  ASSERT_TRUE(eventually([&] {
    bool joined = true;
    for (const auto& part : parts) joined = part->join().empty() && joined;
    return joined;
  }));
  EXPECT_LE(network_.registered_bytes(), 2 * (512u << 10));
  EXPECT_GT(ranks_[0]->memory_bytes(), network_.registered_bytes() / 2);
}

TEST_F(RdmaRanks, WithTlsAreUnavailableBecauseRdmaDoesNotEncrypt) {
  config_.tls = true;
  TransportContext context;
  context.config = &config_;
  try {
    rdma::entry().make(context);
    FAIL() << "it was made";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::unavailable);
    EXPECT_THAT(error.what(), HasSubstr("TUTTI_TLS"));
  }
}

class RdmaPeer : public RdmaPeerTest<StandingClock, kMax> {
 protected:
  static Frame message(std::uint32_t bytes) {
    Frame frame;
    frame.group = 7;
    frame.header.length = bytes;
    return frame;
  }
};

TEST_F(RdmaPeer, IsHeardWhileItSpeaksSense) {
  say(message(10), 10);
  say(message(qp::kPartBytes + 1), qp::kPartBytes);
  Frame more = message(0);
  more.kind = FrameKind::more;
  say(more, 1);
  RecvChannel& channel = connection_->channel(*group_, 0).receiver;
  EXPECT_EQ(channel.peek()->header.length, 10u);
  channel.release();
  EXPECT_EQ(channel.peek()->header.length, qp::kPartBytes + 1);
  EXPECT_EQ(connection_->how_ended(), qp::Connection::End::none);
}

TEST_F(RdmaPeer, WhoseFramesOvertakeEachOtherAndComeTwiceIsHeardInOrderAndOnce) {
  for (const std::uint16_t number : std::array<std::uint16_t, 8>{2, 1, 2, 0, 0, 2, 4, 3}) {
    next_ = number;
    say(message(number + 1u), number + 1u);
  }
  RecvChannel& channel = connection_->channel(*group_, 0).receiver;
  for (std::uint32_t number = 0; number < 5; ++number) {
    ASSERT_TRUE(channel.peek());
    EXPECT_EQ(channel.peek()->header.length, number + 1);
    channel.release();
  }
  EXPECT_FALSE(channel.peek());
  EXPECT_EQ(connection_->how_ended(), qp::Connection::End::none);
}

TEST_F(RdmaPeer, WhoseFramesAreFurtherAheadThanThereCanBeIsLost) {
  next_ = qp::kMostAhead - 1;
  say(message(1), 1);
  EXPECT_EQ(connection_->how_ended(), qp::Connection::End::none);
  next_ = qp::kMostAhead;
  say(message(1), 1);
  expect_lost("makes no sense");
}

TEST_F(RdmaPeer, ThatSpeaksNoSenseIsLost) {
  for (const int kind : {0, 12, 999}) {
    SetUp();
    Frame frame = message(0);
    frame.kind = static_cast<FrameKind>(kind);
    say(frame);
    expect_lost("makes no sense");
  }
  SetUp();
  std::vector<std::byte> shorter(sizeof(Frame) - 1);
  say(shorter);
  expect_lost("makes no sense");
}

TEST_F(RdmaPeer, WhosePartsDoNotAddUpToAMessageIsLost) {
  say(message(10), 11);
  expect_lost("makes no sense");
  SetUp();
  say(message(kMax), 100);  // A part that does not fill its slot is the last.
  expect_lost("makes no sense");
  SetUp();
  Frame more = message(5);
  more.kind = FrameKind::more;
  say(more, 5);
  expect_lost("makes no sense");
  SetUp();
  say(message(kMax), qp::kPartBytes);
  say(message(5), 5);  // in the middle of the other
  expect_lost("makes no sense");
}

TEST_F(RdmaPeer, WhoseMessageIsLongerOrOnAnotherChannelThanThereAreIsLost) {
  say(message(kMax + 1), qp::kPartBytes);
  expect_lost("which cannot be");
  for (const std::int32_t channel : {-1, std::numeric_limits<std::int32_t>::max()}) {
    SetUp();
    Frame frame = message(0);
    frame.channel = channel;
    say(frame);
    expect_lost("which cannot be");
  }
}

TEST_F(RdmaPeer, ThatSendsMoreThanAWindowIsLost) {
  for (std::uint32_t n = 0; n <= qp::kWindow; ++n) say(message(1), 1);
  expect_lost("more messages than there was room for");
}

TEST_F(RdmaPeer, ThatGivesBackWhatNobodyHadTakenIsLost) {
  Frame frame = message(0);
  frame.kind = FrameKind::credit;
  frame.room = 1;
  say(frame);
  expect_lost("nobody had taken");
  SetUp();
  frame.room = 0;
  frame.released = 1;
  say(frame);
  expect_lost("nobody had taken");
}

TEST_F(RdmaPeer, ThatAsksForTheStatusPageAndTakesNoneHasOneWaiting) {
  Frame frame = message(0);
  frame.kind = FrameKind::status_page_request;
  // It gives no room back, so that after as many pages as it has slots the others wait.
  for (std::uint32_t n = 0; n < 3 * qp::kReceiveSlots; ++n) say(frame);
  EXPECT_EQ(connection_->how_ended(), qp::Connection::End::none);
  EXPECT_TRUE(connection_->has_unsent());
  EXPECT_EQ(connection_->unfinished(), 1u);
}

TEST_F(RdmaPeer, ThatAcknowledgesNothingAndSendsMoreThanItHasRoomForIsLost) {
  network_.swallow(1);
  Frame frame = message(0);
  frame.kind = FrameKind::credit;
  for (int n = 0; n < 100 && connection_->how_ended() == qp::Connection::End::none; ++n) say(frame);
  expect_lost("more frames than it had room for");
}

TEST_F(RdmaPeer, WhoseDeviceAcknowledgesNothingForLongIsLost) {
  network_.swallow(1);
  connection_->put_status_page(*group_);
  connection_->pump();
  clock_.time += std::chrono::seconds(24);
  connection_->pump();
  EXPECT_EQ(connection_->how_ended(), qp::Connection::End::none);
  clock_.time += std::chrono::seconds(2);
  connection_->pump();
  expect_lost("acknowledged nothing");
}

TEST_F(RdmaPeer, HasTimeToAcknowledgeAfterAPauseInWhichNobodyLooked) {
  connection_->pump();
  network_.swallow(1);
  clock_.time += std::chrono::seconds(26);
  connection_->put_status_page(*group_);
  connection_->pump();
  EXPECT_EQ(connection_->how_ended(), qp::Connection::End::none);
  clock_.time += std::chrono::seconds(26);
  connection_->pump();
  expect_lost("acknowledged nothing");
}

TEST_F(RdmaPeer, IsGivenRoomThoughNothingCouldBeSentWhenItWasDue) {
  network_.hold_acknowledgements(1);
  SendChannel& channel = connection_->channel(*group_, 0).sender;
  for (std::uint32_t n = 0; n < qp::kSendSlots; ++n) {
    ASSERT_TRUE(channel.acquire(1));
    channel.post({1, 2, 1, 0});
  }
  Frame credit = message(0);
  credit.kind = FrameKind::credit;
  for (std::uint32_t n = 0; n < qp::kReceiveSlots; ++n) say(credit);
  network_.hold_acknowledgements(0);
  std::array<qp::Completion, 8> completions;
  for (int turn = 0; turn < 200; ++turn) {
    connection_->pump();
    peer_->poll(completions);
  }
  Frame last;
  std::memcpy(&last, ignored_.data(), sizeof last);
  EXPECT_EQ(last.kind, FrameKind::room);
  EXPECT_EQ(last.room, qp::kReceiveSlots);
}

TEST_F(RdmaPeer, ThatGivesBackNoRoomAgainAndAgainIsLost) {
  Frame frame = message(0);
  frame.kind = FrameKind::room;
  say(frame);  // A probe.
  EXPECT_EQ(connection_->how_ended(), qp::Connection::End::none);
  say(frame);
  expect_lost("makes no sense");
}

TEST_F(RdmaPeer, MessagesThatAreRevokedHalfReceivedLeaveTheProgramsMemory) {
  RecvChannel& channel = connection_->channel(*group_, 0).receiver;
  std::vector<std::byte> program(kMax);
  EXPECT_EQ(channel.get({program.data(), program.size()}), nullptr);
  say(message(qp::kPartBytes + 1), qp::kPartBytes);
  connection_->revoke(*group_);
  std::fill(program.begin(), program.end(), std::byte{9});
  Frame more = message(0);
  more.kind = FrameKind::more;
  say(more, 1);
  const auto found = channel.peek();
  ASSERT_TRUE(found && !found->remote);
  EXPECT_EQ(found->data[0], std::byte{0});
  EXPECT_TRUE(std::all_of(program.begin(), program.end(),
                          [](std::byte each) { return each == std::byte{9}; }));
}

TEST(RdmaPorts, AreThoseThatAreUpOfDevicesThatTheSettingAllows) {
  const std::filesystem::path folder = testing::TempDir() + "rdma_ports";
  std::filesystem::remove_all(folder);
  const auto write = [&](const char* path, const char* text) {
    std::filesystem::create_directories((folder / path).parent_path());
    std::ofstream(folder / path) << text << '\n';
  };
  for (const char* device : {"mlx5_1", "mlx5_0", "iwarp0", "down0"}) {
    const std::string base = device;
    write((base + "/node_type").c_str(), base == "iwarp0" ? "4: RNIC" : "1: CA");
    write((base + "/ports/1/state").c_str(), base == "down0" ? "1: DOWN" : "4: ACTIVE");
    write((base + "/ports/1/link_layer").c_str(), base == "mlx5_0" ? "InfiniBand" : "Ethernet");
    write((base + "/ports/1/rate").c_str(), base == "mlx5_0" ? "100 Gb/sec (4X EDR)" : "nonsense");
  }
  const auto ports = qp::active_ports("auto", folder);
  ASSERT_EQ(ports.size(), 2u);
  EXPECT_EQ(ports[0].device, "mlx5_0");
  EXPECT_FALSE(ports[0].ethernet);
  EXPECT_EQ(ports[0].gigabits, 100);
  EXPECT_EQ(ports[1].device, "mlx5_1");
  EXPECT_TRUE(ports[1].ethernet);
  EXPECT_EQ(qp::active_ports("^mlx5_0", folder).size(), 1u);
  EXPECT_TRUE(qp::active_ports("auto", folder / "none").empty());
}

}  // namespace
}  // namespace tutti
