// Tests connections over several paths, and what happens when paths fail, over the queue pairs of a
// fake device.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <deque>
#include <thread>

#include <tutti/error.hpp>

#include "connect_ranks.h"
#include "fake_verbs.h"
#include "transport/queue_pair/frame.h"
#include "transport/rdma/rdma.h"

namespace tutti {
namespace {

constexpr std::size_t kMax = 100'000;  // several slots, and long enough to be offered

/// A clock that goes on by a millisecond with each look, unless it stands still.
struct TickingClock final : Clock {
  TimePoint now() const override {
    const std::int64_t time = stands ? looks.load() : ++looks;
    return TimePoint() + std::chrono::hours(1) + std::chrono::milliseconds(time);
  }
  mutable std::atomic<std::int64_t> looks{0};
  bool stands = false;
};

std::vector<std::byte> pattern(std::size_t bytes, std::uint64_t seed) {
  std::vector<std::byte> data(bytes);
  for (std::size_t i = 0; i < bytes; ++i)
    data[i] = static_cast<std::byte>((i * 31 + i / 251 + seed * 7) & 255);
  return data;
}

/// Ranks over a fake network, each with several ports.
class RdmaPaths : public testing::Test {
 protected:
  /// `at_once` says to how many peers each rank in turn makes queue pairs at the start.
  void connect(int size, std::vector<int> ports, int paths = 0, std::uint64_t seed = 1,
               std::vector<int> at_once = {rdma::kPeersAtOnce}) {
    network_ = std::make_unique<qp::fake::Network>(seed);
    config_.rdma_paths = paths;
    said_.resize(static_cast<std::size_t>(size));
    for (int rank = 0; rank < size; ++rank) {
      auto& said = said_[static_cast<std::size_t>(rank)];
      logs_.push_back(
          std::make_unique<Log>(LogLevel::info, [&said](LogLevel level, std::string_view text) {
            said.push_back((level == LogLevel::warn ? "warn " : "info ") + std::string(text));
          }));
      TransportContext context;
      context.rank = rank;
      context.size = size;
      context.clock = &clock_;
      context.random = &random_;
      context.config = &config_;
      context.log = logs_.back().get();
      context.max_message_bytes = context.message_limit = kMax;
      std::vector<std::shared_ptr<qp::Device>> devices;
      for (int port = 0; port < ports[static_cast<std::size_t>(rank) % ports.size()]; ++port)
        devices.push_back(network_->make_device());
      ranks_.push_back(rdma::make_over(context, std::move(devices),
                                       at_once[static_cast<std::size_t>(rank) % at_once.size()]));
    }
    clock_.stands = true;  // A thread that gets no core is not taken for a path that does not work.
    connect_ranks(ranks_, clock_.now() + std::chrono::hours(1));
    clock_.stands = false;
  }
  template <typename What>
  bool eventually(What&& what) {
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (std::chrono::steady_clock::now() < until) {
      if (what()) return true;
      for (const auto& rank : ranks_) rank->progress();
    }
    return false;
  }
  void turn(int turns = 300) {
    for (int turn = 0; turn < turns; ++turn)
      for (const auto& rank : ranks_) rank->progress();
  }
  bool has_said(int rank, const std::string& text) const {
    const auto& said = said_[static_cast<std::size_t>(rank)];
    return std::any_of(said.begin(), said.end(), [&](const std::string& line) {
      return line.find(text) != std::string::npos;
    });
  }
  bool send(int from, int to, std::span<const std::byte> data, int channel = 0) {
    SendChannel& out = ranks_[static_cast<std::size_t>(from)]->sender(to, channel);
    const auto span = out.acquire(data.size());
    if (!span) return false;
    std::memcpy(span->data, data.data(), data.size());
    out.post({1, 2, static_cast<std::uint32_t>(data.size()), 0});
    return true;
  }
  bool offer(int from, int to, std::span<std::byte> data, int channel = 0) {
    SendChannel& out = ranks_[static_cast<std::size_t>(from)]->sender(to, channel);
    if (!out.acquire_zero_copy({data.data(), data.size()})) return false;
    out.post({1, 2, static_cast<std::uint32_t>(data.size()), 0});
    return true;
  }
  std::optional<std::vector<std::byte>> receive(int at, int from, std::span<std::byte> place = {},
                                                int channel = 0) {
    RecvChannel& in = ranks_[static_cast<std::size_t>(at)]->receiver(from, channel);
    const auto found = in.peek();
    if (!found) return std::nullopt;
    const std::byte* const data = in.get({place.data(), place.size()});
    if (data == nullptr) return std::nullopt;
    std::vector<std::byte> copy(data, data + found->header.length);
    in.release();
    return copy;
  }
  std::vector<std::byte> received(int at, int from, std::span<std::byte> place = {}) {
    std::optional<std::vector<std::byte>> found;
    EXPECT_TRUE(eventually([&] { return (found = receive(at, from, place)).has_value(); }));
    return found.value_or(std::vector<std::byte>());
  }
  bool is_lost(int rank, int peer) {
    return ranks_[static_cast<std::size_t>(rank)]->status(peer).state == PeerStatus::State::lost;
  }
  /// Sends both ways between the first two ranks, in copies and from registered memory, while
  /// `disturb` is called again and again, and checks that each message arrives once and in order.
  template <typename Disturb>
  void exchange(int messages, std::uint64_t seed, Disturb&& disturb);

  TickingClock clock_;
  SystemRandom random_;
  Config config_;
  std::vector<std::vector<std::string>> said_;
  std::vector<std::unique_ptr<Log>> logs_;
  std::unique_ptr<qp::fake::Network> network_;
  std::vector<std::unique_ptr<Transport>> ranks_;
};

template <typename Disturb>
void RdmaPaths::exchange(int messages, std::uint64_t seed, Disturb&& disturb) {
  constexpr int kChannels = 2;
  SeededRandom random(seed);
  struct Way {
    std::vector<std::byte> memory = pattern(3 * kMax, 18), place = pattern(kMax, 19);
    std::shared_ptr<void> sends, receives;
    std::array<std::deque<std::span<std::byte>>, kChannels> under_way;
    std::array<int, kChannels> sent{}, taken{};
  };
  std::array<Way, 2> ways;
  for (const int from : {0, 1}) {
    Way& way = ways[static_cast<std::size_t>(from)];
    way.sends =
        ranks_[static_cast<std::size_t>(from)]->register_memory(way.memory.data(), 2 * kMax);
    way.receives = ranks_[static_cast<std::size_t>(1 - from)]->register_memory(way.place.data(),
                                                                               way.place.size());
  }
  ASSERT_TRUE(eventually([&] {
    bool all = true;
    for (const int from : {0, 1})
      for (int channel = 0; channel < kChannels; ++channel) {
        Way& way = ways[static_cast<std::size_t>(from)];
        const auto at = static_cast<std::size_t>(channel);
        if (way.sent[at] < messages) {
          const std::size_t bytes = 1 + random.next() % (random.next() % 3 == 0 ? 500 : kMax);
          const auto part = std::span(way.memory).subspan(random.next() % (2 * kMax), bytes);
          if (random.next() % 3 == 0 ? send(from, 1 - from, part, channel)
                                     : offer(from, 1 - from, part, channel)) {
            way.under_way[at].push_back(part);
            ++way.sent[at];
          }
        }
        if (!way.under_way[at].empty() && random.next() % 3 != 0) {
          const auto next = way.under_way[at].front();
          const auto to =
              channel == 0 ? std::span(way.place).first(next.size()) : std::span<std::byte>();
          if (const auto found = receive(1 - from, from, to, channel)) {
            EXPECT_TRUE(std::ranges::equal(*found, next))
                << "message " << way.taken[at] << " from " << from << " on channel " << channel;
            way.under_way[at].pop_front();
            ++way.taken[at];
          }
        }
        all = all && way.taken[at] == messages;
      }
    disturb(random);
    return all || HasFailure() || is_lost(0, 1) || is_lost(1, 0);
  })) << "seed "
      << seed << ": " << ways[0].taken[0] << ' ' << ways[0].taken[1] << ' ' << ways[1].taken[0]
      << ' ' << ways[1].taken[1] << " received";
  EXPECT_FALSE(is_lost(0, 1)) << "seed " << seed << ": " << ranks_[0]->status(1).why;
  EXPECT_FALSE(is_lost(1, 0)) << "seed " << seed << ": " << ranks_[1]->status(0).why;
  EXPECT_TRUE(eventually([&] {
    return ranks_[0]->sender(1, 0).zero_copy_done() && ranks_[1]->sender(0, 0).zero_copy_done();
  }));
}

TEST_F(RdmaPaths, AreMadeOverAllPortsOfBothRanksInTheLimitOfMemory) {
  connect(2, {2});
  ASSERT_TRUE(eventually([&] {
    return has_said(0, "over fake0, fake1 now") && has_said(1, "over fake2, fake3 now");
  }));
  EXPECT_LE(network_->registered_bytes(), 2 * (512u << 10));
  const auto data = pattern(kMax, 1);
  for (int n = 0; n < 8; ++n) ASSERT_TRUE(send(0, 1, data));
  for (int n = 0; n < 8; ++n) EXPECT_EQ(received(1, 0), data);
  EXPECT_EQ(network_->overruns(), 0u);
}

TEST_F(RdmaPaths, AreAsManyAsTheSettingSaysWhateverThePorts) {
  connect(2, {1, 3}, 5);
  ASSERT_TRUE(eventually([&] {
    return has_said(0, "over fake0, fake0, fake0, fake0, fake0 now") && has_said(1, "now");
  }));
  exchange(200, 3, [](SeededRandom&) {});
}

TEST_F(RdmaPaths, OfThreePortsAndOneAreOneForEachPortAndKeepTheOrder) {
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    connect(2, {3, 1}, 0, seed);
    exchange(150, seed, [](SeededRandom&) {});
    EXPECT_TRUE(has_said(0, "over fake0, fake1, fake2 now"));
    EXPECT_LE(network_->overruns(), 0u);
    ranks_.clear();
  }
}

TEST_F(RdmaPaths, ThatFailLeaveTheOthersAndAreMadeAnew) {
  connect(2, {2});
  ASSERT_TRUE(eventually([&] { return has_said(0, "fake0, fake1 now"); }));
  network_->set_port(0, false);
  const auto data = pattern(kMax, 1);
  for (int n = 0; n < 4; ++n) ASSERT_TRUE(send(0, 1, data));
  for (int n = 0; n < 4; ++n) EXPECT_EQ(received(1, 0), data);
  network_->set_port(0, true);
  EXPECT_TRUE(eventually([&] {
    return has_said(0, "the path to rank 1 over fake0 has failed: ") &&
           has_said(1, "the path to rank 0 over fake2 has failed: ");
  }));
  EXPECT_TRUE(eventually([&] { return has_said(0, "over fake1, fake0 now"); }));
}

TEST_F(RdmaPaths, ThatFailAtAnyMomentLoseRepeatAndReorderNothing) {
  std::uint64_t failures = 0;
  for (std::uint64_t seed = 1; seed <= 24; ++seed) {
    connect(2, {1 + static_cast<int>(seed % 3), 1 + static_cast<int>(seed % 2)}, 0, seed);
    exchange(150, seed, [&](SeededRandom& random) {
      if (random.next() % (seed % 4 == 0 ? 5 : 60) != 0) return;
      network_->fail_any();
      ++failures;
    });
    EXPECT_EQ(network_->overruns(), 0u);
    ranks_.clear();
    if (HasFailure()) return;
  }
  EXPECT_GT(failures, 60u);
}

TEST_F(RdmaPaths, WhoseQueuePairsTakeNoRequestsOnceTheyHaveFailedLoseNothing) {
  for (std::uint64_t seed = 1; seed <= 24; ++seed) {
    connect(2, {1 + static_cast<int>(seed % 3), 1 + static_cast<int>(seed % 2)}, 0, seed);
    network_->refuse_requests();
    exchange(150, seed, [&](SeededRandom& random) {
      if (random.next() % (seed % 4 == 0 ? 5 : 60) == 0) network_->fail_any();
    });
    EXPECT_EQ(network_->overruns(), 0u);
    ranks_.clear();
    if (HasFailure()) return;
  }
}

TEST_F(RdmaPaths, WhoseQueuePairCannotBeAskedForWhatItHasDoneEndTheConnection) {
  connect(2, {2});
  ASSERT_TRUE(eventually([&] { return has_said(0, "fake0, fake1 now"); }));
  network_->hide_completions(5);  // of the first rank, on the second path
  ASSERT_TRUE(eventually([&] { return is_lost(0, 1) && is_lost(1, 0); }));
  EXPECT_THAT(ranks_[0]->status(1).why, testing::HasSubstr("cannot be polled"));
}

TEST_F(RdmaPaths, WhoseDeviceGivesUpWhileTheRankEndsLoseNothing) {
  connect(2, {2});
  ASSERT_TRUE(eventually([&] { return has_said(0, "fake0, fake1 now"); }));
  turn();
  network_->swallow(5);  // of the first rank, on the second path
  const auto data = pattern(kMax, 1);
  ASSERT_TRUE(send(0, 1, data));
  clock_.stands = true;  // Only the device notices that the path fails.
  std::atomic<bool> ended{false};
  std::thread device([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(2500));
    EXPECT_FALSE(ended) << "the rank did not wait for its device";
    network_->fail_pair(5);
  });
  std::thread first([&] {
    ranks_[0].reset();
    ended = true;
  });
  std::optional<std::vector<std::byte>> found;
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!found && std::chrono::steady_clock::now() < until) {
    ranks_[1]->progress();
    found = receive(1, 0);
  }
  EXPECT_EQ(found, data);
  device.join();
  first.join();
}

TEST_F(RdmaPaths, WhoseSlotsAllHoldFramesThatWaitForAFailedPathMakeRoomForThose) {
  for (const bool late : {false, true}) {
    connect(2, {2});
    ASSERT_TRUE(eventually([&] { return has_said(0, "fake0, fake1 now"); }));
    turn();
    network_->swallow(5);  // of the first rank, on the second path
    const auto data = pattern(kMax, 1);
    for (int n = 0; n < 8; ++n) ASSERT_TRUE(send(0, 1, data));
    const auto sees_failure = [&] {
      ranks_[0]->progress();
      return has_said(0, "has failed: ");
    };
    if (!late) turn();  // The frames come before the news.
    for (int looks = 0; looks < 100'000 && !sees_failure(); ++looks) {
    }
    ASSERT_TRUE(has_said(0, "acknowledged nothing"));
    clock_.stands = true;  // No path is made in its place.
    ranks_[1]->progress();
    for (int n = 0; n < 8; ++n) EXPECT_EQ(received(1, 0), data);
    clock_.stands = false;
    ranks_.clear();
    said_.clear();
    logs_.clear();
  }
}

TEST_F(RdmaPaths, OfANetworkThatIsCutGoOverTheControlConnection) {
  connect(2, {1});
  network_->cut();
  exchange(30, 1, [](SeededRandom&) {});
  for (const int rank : {0, 1}) {
    EXPECT_TRUE(has_said(rank, "has failed: "));
    EXPECT_TRUE(has_said(rank, "over TCP now"));
  }
}

TEST_F(RdmaPaths, OverAPortThatGoesDownAndComesUpAreFoundAgain) {
  connect(2, {1});
  network_->set_port(0, false);
  exchange(10, 1, [](SeededRandom&) {});
  EXPECT_TRUE(has_said(0, "over TCP now"));
  network_->set_port(0, true);
  EXPECT_TRUE(eventually([&] {
    return has_said(0, "rank 1 is reached over fake0 now") &&
           has_said(1, "rank 0 is reached over fake1 now");
  }));
  const std::uint64_t before = network_->sent_bytes();
  exchange(10, 2, [](SeededRandom&) {});
  EXPECT_GT(network_->sent_bytes(), before + kMax);
}

/// One of two ranks, with a thread of its own, that sends the other messages of many lengths, and
/// now and then takes the registration of their memory back.
struct Talker {
  static constexpr int kMessages = 300, kPlaces = 8;

  static std::size_t length(int from, int message) {
    SeededRandom random(static_cast<std::uint64_t>(from * 100'000 + message));
    const bool is_short = random.next() % 3 == 0;
    return 1 + random.next() % (is_short ? 500 : kMax);
  }
  bool done() const { return sent == kMessages && received == kMessages; }
  void send();
  void receive();

  Transport& transport;
  const int rank;
  SeededRandom random;
  std::vector<std::byte> memory = std::vector<std::byte>(kPlaces * kMax);
  std::vector<std::byte> place = std::vector<std::byte>(kMax);
  std::shared_ptr<void> sends = transport.register_memory(memory.data(), memory.size());
  std::shared_ptr<void> receives = transport.register_memory(place.data(), place.size());
  int sent = 0, received = 0, next_place = 0;
};

void Talker::send() {
  SendChannel& out = transport.sender(1 - rank, 0);
  if (next_place == kPlaces) {
    if (random.next() % 8 == 0) {
      sends.reset();
      sends = transport.register_memory(memory.data(), memory.size());
    }
    if (!out.zero_copy_done()) return;
    next_place = 0;
  }
  if (sent == kMessages) return;
  const auto message = pattern(length(rank, sent), static_cast<std::uint64_t>(sent));
  std::byte* const its = memory.data() + static_cast<std::size_t>(next_place) * kMax;
  std::memcpy(its, message.data(), message.size());
  if (random.next() % 3 == 0) {
    const auto span = out.acquire(message.size());
    if (!span) return;
    std::memcpy(span->data, message.data(), message.size());
  } else if (!out.acquire_zero_copy({its, message.size()})) {
    return;
  }
  ++next_place;
  ++sent;
  out.post({1, 2, static_cast<std::uint32_t>(message.size()), 0});
}

void Talker::receive() {
  RecvChannel& in = transport.receiver(1 - rank, 0);
  const auto found = in.peek();
  if (!found) return;
  const auto right = pattern(length(1 - rank, received), static_cast<std::uint64_t>(received));
  ASSERT_EQ(found->header.length, right.size()) << "message " << received;
  const bool named = random.next() % 2 == 0;
  const std::byte* const data =
      in.get(named ? Memory{place.data(), right.size()} : Memory{nullptr, 0});
  if (data == nullptr) {
    if (random.next() % 100 != 0) return;
    receives.reset();
    receives = transport.register_memory(place.data(), place.size());
    return;
  }
  EXPECT_EQ(std::memcmp(data, right.data(), right.size()), 0) << "message " << received;
  in.release();
  ++received;
}

TEST_F(RdmaPaths, OfThreadsThatSendReceiveAndTakeMemoryBackMayFailAtAnyMoment) {
  for (std::uint64_t seed = 1; seed <= 6 && !HasFailure(); ++seed) {
    const std::uint64_t ports = 1 + seed % 3;
    connect(2, {static_cast<int>(ports)}, static_cast<int>(seed % 4), seed);
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(40);
    std::atomic<int> done{0};
    const auto talk = [&](int rank) {
      Talker talker{*ranks_[static_cast<std::size_t>(rank)], rank, SeededRandom(seed)};
      for (bool was_done = false; done < 2;) {
        talker.transport.progress();
        talker.send();
        if (talker.received < Talker::kMessages) talker.receive();
        if (!was_done && (was_done = talker.done())) ++done;
        if (is_lost(rank, 1 - rank) || std::chrono::steady_clock::now() > until || HasFailure()) {
          ADD_FAILURE() << "seed " << seed << ", rank " << rank << ": " << talker.sent << " sent, "
                        << talker.received << " received";
          done = 2;
        }
      }
      while (!HasFailure() && !ranks_[static_cast<std::size_t>(rank)]->all_left())
        talker.transport.progress();
    };
    std::thread first(talk, 0), second(talk, 1);
    for (SeededRandom random(seed); done < 2;) {
      std::this_thread::sleep_for(std::chrono::microseconds(200 + random.next() % 3000));
      if (random.next() % 3 != 0) network_->fail_any();
      if (random.next() % 8 == 0)
        network_->set_port(random.next() % (2 * ports), random.next() % 2);
      if (random.next() % 4 == 0) network_->hold_reads(random.next() % 2 != 0);
    }
    network_->hold_reads(false);
    first.join();
    second.join();
    EXPECT_EQ(network_->overruns(), 0u);
    ranks_.clear();
  }
}

// Reads take eight times as long over one of the two ports of the rank that reads. Messages of one
// channel end in their order, so the share of that port does not become that small.
TEST_F(RdmaPaths, GetSharesOfLongMessagesByTheirBandwidths) {
  connect(2, {2});
  ASSERT_TRUE(eventually([&] { return has_said(0, "over fake0, fake1 now"); }));
  network_->slow_reads(2, 10);
  network_->slow_reads(3, 80);
  exchange(300, 5, [](auto&) {});
  EXPECT_GT(network_->read_bytes(3), 0u);
  EXPECT_GT(network_->read_bytes(2), network_->read_bytes(3) * 5 / 4);
}

// Ranks 0 and 2 are two apart, and only the nearest are connected at the start.
TEST_F(RdmaPaths, AreMadeWhenThereIsAMessageBetweenRanksThatAreFarApart) {
  for (const int sender : {0, 2}) {
    connect(5, {1}, 0, 1, {2});
    const std::uint64_t before = network_->last_pair();
    const std::uint64_t memory = network_->registered_now();
    EXPECT_EQ(memory, 10 * qp::slot_bytes_of(1)) << "two peers of each of five ranks";
    turn();
    EXPECT_EQ(network_->last_pair(), before) << "nobody has sent anything";
    const auto data = pattern(kMax, 3);
    ASSERT_TRUE(send(sender, 2 - sender, data));
    EXPECT_EQ(received(2 - sender, sender), data);
    ASSERT_TRUE(eventually([&] {
      return has_said(0, "rank 2 is reached over fake0 now") &&
             has_said(2, "rank 0 is reached over fake2 now");
    }));
    EXPECT_EQ(network_->last_pair(), before + 2);
    const std::uint64_t sent = network_->sent_bytes();
    ASSERT_TRUE(send(2 - sender, sender, data));
    EXPECT_EQ(received(sender, 2 - sender), data);
    EXPECT_GE(network_->sent_bytes() - sent, data.size()) << "it does not go over the devices";
    ranks_.clear();
    said_.clear();
  }
}

TEST_F(RdmaPaths, AreMadeWhenNeededWhereOneOfTheTwoRanksAsksForThat) {
  connect(2, {2}, 0, 1, {2, 0});
  EXPECT_EQ(network_->registered_now(), 0u);
  const auto data = pattern(1000, 3);
  ASSERT_TRUE(send(0, 1, data));
  EXPECT_EQ(received(1, 0), data);
  ASSERT_TRUE(eventually([&] {
    return has_said(0, "over fake0, fake1 now") && has_said(1, "over fake2, fake3 now");
  }));
}

TEST_F(RdmaPaths, ThatCannotBeMadeWhenNeededLeaveMessagesToTheControlConnection) {
  connect(2, {1}, 0, 1, {0});
  network_->refuse();
  exchange(50, 4, [](auto&) {});
  EXPECT_EQ(network_->sent_bytes(), 0u);
}

TEST_F(RdmaPaths, LoseNothingWhereTheyAreMadeWhenNeededAndFail) {
  for (std::uint64_t seed = 1; seed <= 30; ++seed) {
    connect(2, {2, 1}, 0, seed, {0});
    exchange(60, seed, [&](SeededRandom& random) {
      if (random.next() % 400 == 0) network_->fail_any();
    });
    ranks_.clear();
    said_.clear();
    if (HasFailure()) return;
  }
}

// Each rank sends one message and ends while the first one computes: it looks seldom.
TEST_F(RdmaPaths, OfManyRanksThatEndLoseNothingThatTheySaidOverTheControlConnection) {
  constexpr int kRanks = 40;
  connect(kRanks, {1}, 0, 1, {0});
  for (int rank = 1; rank < kRanks; ++rank)
    ASSERT_TRUE(send(rank, 0, pattern(100, static_cast<std::uint64_t>(rank))));
  std::vector<std::thread> ends;
  for (int rank = 1; rank < kRanks; ++rank)
    ends.emplace_back([&, rank] { ranks_[static_cast<std::size_t>(rank)].reset(); });
  for (std::thread& each : ends) each.join();
  ranks_.resize(1);
  std::this_thread::sleep_for(std::chrono::milliseconds(200));  // The ends have been noticed.
  turn(200);
  for (int rank = 1; rank < kRanks; ++rank)
    EXPECT_EQ(receive(0, rank), pattern(100, static_cast<std::uint64_t>(rank))) << "from " << rank;
}

// One of two ranks is frozen for half an hour while their paths are being made.
TEST_F(RdmaPaths, ThatAreMadeWhenNeededAreNotAtOddsWhereARankIsFrozenMeanwhile) {
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    connect(2, {4}, 0, seed, {0});
    SeededRandom random(seed);
    const auto data = pattern(1000, seed);
    ASSERT_TRUE(send(0, 1, data));
    turn(static_cast<int>(random.next() % 20));
    const std::size_t awake = random.next() % 4 == 0 ? 1 : 0;
    for (const auto from = clock_.looks.load(); clock_.looks < from + 30 * 60 * 1000;) {
      clock_.looks += 500;
      ranks_[awake]->progress();
    }
    EXPECT_TRUE(eventually([&] {
      const auto is_over_four = [](const std::string& line) {
        return line.find("is reached over") != line.npos && std::ranges::count(line, ',') == 3;
      };
      return std::ranges::all_of(
                 said_,
                 [&](const auto& said) { return std::ranges::any_of(said, is_over_four); }) ||
             is_lost(1, 0) || is_lost(0, 1);
    }));
    EXPECT_FALSE(is_lost(1, 0)) << "seed " << seed << ": " << ranks_[1]->status(0).why;
    EXPECT_FALSE(is_lost(0, 1)) << "seed " << seed << ": " << ranks_[0]->status(1).why;
    EXPECT_EQ(receive(1, 0), data);
    ranks_.clear();
    said_.clear();
    logs_.clear();
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace tutti
