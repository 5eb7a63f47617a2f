// Tests of what is particular to TCP: who can connect, what strangers can do, and how the end of a
// peer is noticed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <future>
#include <limits>

#include <tutti/error.hpp>

#include "common/bytes.h"
#include "net/authentication.h"
#include "net/tcp_socket.h"
#include "tcp_ranks.h"
#include "tests/common/errors.h"
#include "transport/doorbell.h"
#include "transport/mesh/join.h"
#include "transport/tcp/channels.h"
#include "transport/tcp/frame.h"
#include "transport/tcp/group.h"

namespace tutti {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

TEST(TcpAddress, ReadsWhatItWrites) {
  mesh::Address address;
  address.identity = 0x0123456789abcdef;
  address.host = "machine/7";
  address.secret = Secret("of this job alone");
  address.places = {{"10.0.0.1", 4000}, {"fe80::1", 4000}, {"127.0.0.1", 4000}};
  const auto read = mesh::Address::parse(address.to_string());
  ASSERT_TRUE(read);
  EXPECT_EQ(read->identity, address.identity);
  EXPECT_EQ(read->host, address.host);
  EXPECT_EQ(read->secret.bytes(), address.secret.bytes());
  EXPECT_EQ(read->places, address.places);
  address.secret = {};
  EXPECT_FALSE(mesh::Address::parse(address.to_string())->secret);
}

TEST(TcpAddress, RefusesWhatItDidNotWrite) {
  const std::string head = "tutti tcp 1\n0123456789abcdef\nhost\n-\n";
  EXPECT_TRUE(mesh::Address::parse(head));
  std::string many = head;
  for (int i = 0; i < 33; ++i) many += "10.0.0.1:1\n";
  for (const std::string& text :
       {std::string(), std::string("tutti tcp 2\n0123456789abcdef\nhost\n-\n"),
        std::string("tutti tcp 1\n0123456789abcdeg\nhost\n-\n"),
        std::string("tutti tcp 1\n0123\nhost\n-\n"),
        std::string("tutti tcp 1\n0123456789abcdef\n\n-\n"), head + "nowhere\n",
        head + "10.0.0.1:70000\n", many})
    EXPECT_FALSE(mesh::Address::parse(text)) << text;
}

TEST(TcpAddress, InterfacesAreChosenByTheStartOfTheirNames) {
  EXPECT_TRUE(mesh::allows("auto", "eth0"));
  EXPECT_TRUE(mesh::allows("eth,ib", "ib0"));
  EXPECT_FALSE(mesh::allows("eth0,ib", "eth1"));
  EXPECT_FALSE(mesh::allows("^docker,lo", "lo"));
  EXPECT_FALSE(mesh::allows("^docker,lo", "docker0"));
  EXPECT_TRUE(mesh::allows("^docker,lo", "eth0"));
  EXPECT_THAT(mesh::own_hosts("lo"), testing::Contains("127.0.0.1"));
  EXPECT_THAT(mesh::own_hosts("^lo"), testing::Not(testing::Contains("127.0.0.1")));
  EXPECT_TRUE(mesh::own_hosts("nothing-has-this-name").empty());
}

TEST(TcpAddress, InterfacesThatCannotBeListedAreNotTakenForNone) {
  const Error error = error_without_descriptors([] { mesh::own_hosts("auto"); });
  EXPECT_EQ(error.kind(), ErrorKind::unavailable);
  EXPECT_THAT(error.what(), testing::HasSubstr("Too many open files"));
}

TEST(TcpAddress, LoopbackIsMeantForTheOwnMachineAlone) {
  mesh::Address peer;
  peer.host = "there";
  peer.places = {{"10.0.0.1", 1}, {"127.0.0.1", 1}};
  mesh::reach_from("there", peer);
  EXPECT_THAT(peer.places,
              ElementsAre(SocketAddress{"127.0.0.1", 1}, SocketAddress{"10.0.0.1", 1}));
  mesh::reach_from("here", peer);
  EXPECT_THAT(peer.places, ElementsAre(SocketAddress{"10.0.0.1", 1}));
}

TEST_F(TcpTransport, StrangersAtThePortKeepNobodyOutAndTheListenerIsClosedBehindTheLast) {
  auto ranks = make(3);
  const SocketAddress listener = place_of(*ranks[0]);
  std::vector<Fd> strangers;  // They stay connected, silent or after garbage.
  for (int i = 0; i < 200; ++i) {
    strangers.push_back(call(listener));
    if (i % 4 == 1) say(strangers.back(), "GET / HTTP/1.1\r\nHost: you\r\n\r\n");
    if (i % 4 == 2) say(strangers.back(), std::string(100'000, 'x'));
    if (i % 4 == 3)
      say(strangers.back(), std::string(bytes_of(net::AuthHello{})) + std::string(500, 0));
  }
  EXPECT_THAT(connect(ranks), ElementsAre("", "", ""));
  EXPECT_FALSE(call(listener)) << "somebody still listens";
  SendChannel& sender = ranks[2]->sender(0, 0);
  sender.acquire(8);
  sender.post({1, 2, 8, 0});
  EXPECT_TRUE(eventually(*ranks[0], [&] { return ranks[0]->receiver(2, 0).peek().has_value(); }));
}

/// A clock that stands still until a thread sets it.
struct SetClock final : Clock {
  TimePoint now() const override { return TimePoint(Nanoseconds(at)); }
  void advance(Nanoseconds by) { at += by.count(); }
  std::atomic<Nanoseconds::rep> at = std::chrono::steady_clock::now().time_since_epoch().count();
};

TEST_F(TcpTransport, AFloodTakesABoundedNumberOfPlacesWhileRanksWaitForTheLast) {
  // Time stands still for rank 0, at whose port the strangers call, so that nobody is cut for being
  // slow.
  SetClock standing;
  std::vector<std::unique_ptr<Transport>> ranks;
  std::vector<std::string> addresses;
  for (int rank = 0; rank < 3; ++rank) {
    TransportContext still = context(rank, 3);
    if (rank == 0) still.clock = &standing;
    ranks.push_back(tcp::entry().make(still));
    addresses.push_back(ranks.back()->address());
  }
  const auto connected = [&](int rank) {
    return std::async(std::launch::async, [&, rank] {
      ranks[static_cast<std::size_t>(rank)]->connect(addresses, clock_.now() + kLong);
    });
  };
  auto first = connected(0), second = connected(1);
  // All strangers stay; most begin a handshake and send a byte of it now and then.
  std::vector<Fd> flood;
  const std::string hello(bytes_of(net::AuthHello{}));
  for (int i = 0; i < 600; ++i) {
    Fd stranger = call(place_of(*ranks[0]));
    ASSERT_TRUE(stranger);
    say(stranger, hello.substr(0, static_cast<std::size_t>(i) % hello.size()));
    flood.push_back(std::move(stranger));
    if (i % 10 == 0)
      for (const Fd& slow : flood) say(slow, "\x75");
  }
  const auto cut = [&] {
    return std::count_if(flood.begin(), flood.end(), [](const Fd& stranger) {
      char bytes[100];
      ssize_t got = 0;
      do got = recv(stranger.get(), bytes, sizeof bytes, MSG_DONTWAIT);
      while (got > 0);
      return got == 0 || errno != EAGAIN;
    });
  };
  // There are 64 places, and two for each rank.
  EXPECT_TRUE(eventually(*ranks[2], [&] { return cut() >= 600 - 64 - 6; })) << cut();
  auto third = connected(2);
  EXPECT_NO_THROW(second.get());
  EXPECT_NO_THROW(third.get());
  if (first.wait_for(kLong) != std::future_status::ready) standing.advance(std::chrono::hours(1));
  EXPECT_NO_THROW(first.get());
}

TEST_F(TcpTransport, WhoKnowsAnotherSecretIsRefusedAndTold) {
  std::vector<std::unique_ptr<Transport>> ranks;
  ranks.push_back(tcp::entry().make(context(0, 2)));
  ranks.push_back(tcp::entry().make(context(1, 2, "another job's secret")));
  const auto ends = connect(ranks, std::chrono::seconds(1));
  EXPECT_THAT(ends[0], AllOf(HasSubstr("timeout"), HasSubstr("rank 1 never called")));
  EXPECT_THAT(ends[1],
              AllOf(HasSubstr("mismatch"), HasSubstr("another secret"), HasSubstr("rank 0")));
}

TEST_F(TcpTransport, ARankThatCanAcceptNobodyForWantOfDescriptorsSaysSo) {
  const auto here = tcp::entry().make(context(0, 2)), never = tcp::entry().make(context(1, 2));
  const Fd caller = call(place_of(*here));
  const pid_t child = fork();
  if (child == 0) {
    const auto next = static_cast<rlim_t>(Fd(dup(0)).get());
    const rlimit none{next, next};
    std::string said;
    try {
      if (setrlimit(RLIMIT_NOFILE, &none) == 0)
        here->connect(std::vector<std::string>{here->address(), never->address()},
                      clock_.now() + std::chrono::milliseconds(50));
    } catch (const Error& error) {
      said = error.what();
    }
    const auto says = [&](const char* text) { return said.find(text) != std::string::npos; };
    _exit((says("rank 1 never called") ? 0 : 1) + (says("raise the limit (ulimit -n)") ? 0 : 2));
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

TEST_F(TcpTransport, BetweenMachinesASecretIsNeededOrANetworkThatIsTrusted) {
  for (const bool trust : {false, true}) {
    config_.trust_network = trust;
    std::vector<std::unique_ptr<Transport>> ranks;
    std::vector<std::string> addresses;
    for (int rank = 0; rank < 2; ++rank) {
      ranks.push_back(tcp::entry().make(context(rank, 2, "")));
      addresses.push_back(ranks.back()->address());
    }
    // This acts as if rank 1 were on another machine, which rank 0's loopback reaches.
    auto other = mesh::Address::parse(addresses[1]);
    other->host = "another machine";
    addresses[1] = other->to_string();
    const auto ends = connect(ranks, kLong, addresses);
    const auto refused = AllOf(HasSubstr("usage"), HasSubstr("TUTTI_SECRET_FILE"));
    EXPECT_EQ(testing::Matches(refused)(ends[0]), !trust) << ends[0];
  }
}

TEST_F(TcpTransport, RanksOfOneMachineMakeASecretOfTheirOwn) {
  std::vector<std::unique_ptr<Transport>> ranks;
  for (int rank = 0; rank < 2; ++rank) ranks.push_back(tcp::entry().make(context(rank, 2, "")));
  EXPECT_TRUE(mesh::Address::parse(ranks[0]->address()).value().secret);
  EXPECT_TRUE(mesh::Address::parse(ranks[1]->address()).value().secret);
  EXPECT_THAT(connect(ranks), ElementsAre("", ""));
}

TEST_F(TcpTransport, ARankThatNeverComesIsNamedByTheDeadline) {
  auto ranks = make(3);
  std::vector<std::string> addresses;
  for (const auto& rank : ranks) addresses.push_back(rank->address());
  ranks.erase(ranks.begin());
  const auto ends = connect(ranks, std::chrono::milliseconds(200), addresses);
  EXPECT_THAT(ends[0], AllOf(HasSubstr("timeout"), HasSubstr("rank 0 is not reached"),
                             HasSubstr("TUTTI_INTERFACES")));
}

// Communicators and the background thread share the sockets, and whichever finds room writes.
TEST_F(TcpTransport, WhoSleepsUntilAMessageHasLeftIsWokenByWhoeverWritesIt) {
  const auto bell = std::make_shared<const Doorbell>();
  std::vector<std::unique_ptr<Transport>> ranks;
  for (int rank = 0; rank < 2; ++rank) {
    TransportContext large = context(rank, 2);
    large.max_message_bytes = 1 << 20;
    if (rank == 0) large.doorbell = bell;
    ranks.push_back(tcp::entry().make(large));
  }
  ASSERT_THAT(connect(ranks), ElementsAre("", ""));
  std::vector<std::byte> data(1 << 20);
  for (int number = 0; ranks[0]->all_left(); ++number) {
    SendChannel& sender = ranks[0]->sender(1, number);
    ASSERT_TRUE(sender.acquire_zero_copy({data.data(), data.size()}));
    sender.post({1, 2, 1 << 20, 0});
  }
  ranks[0]->own_status_page().sleepers.add();
  const auto rung = [&] {
    pollfd readable{bell->fd(), POLLIN, 0};
    return poll(&readable, 1, 0) == 1;
  };
  EXPECT_FALSE(rung());
  EXPECT_TRUE(eventually(*ranks[1], [&] {
    ranks[0]->background_progress();
    return rung();
  }));
}

TEST_F(TcpTransport, OnlyTheCommunicatorWhoseMessagesWaitForAFrozenPeerWaits) {
  constexpr std::uint32_t kBytes = 1 << 20;
  std::vector<std::byte> data(kBytes);
  std::vector<std::unique_ptr<Transport>> ranks;
  for (int rank = 0; rank < 3; ++rank) {
    TransportContext large = context(rank, 3);
    large.max_message_bytes = kBytes;
    ranks.push_back(tcp::entry().make(large));
  }
  ASSERT_THAT(connect(ranks), ElementsAre("", "", ""));
  std::vector<std::unique_ptr<Transport>> parts;  // those of rank 0 and of the other, twice
  for (const int other : {1, 2}) {
    Subset subset;
    subset.members = {0, other};
    subset.numbers = {static_cast<std::uint32_t>(other), 1};
    subset.max_message_bytes = kBytes;
    std::vector<std::unique_ptr<Transport>> pair;
    for (subset.rank = 0; subset.rank < 2; ++subset.rank)
      pair.push_back(ranks[static_cast<std::size_t>(subset.members[subset.rank])]->split(subset));
    ASSERT_TRUE(eventually(*pair[0], [&] {
      pair[1]->progress();
      const std::vector<int> missing = pair[1]->join();
      return pair[0]->join().empty() && missing.empty();
    }));
    std::move(pair.begin(), pair.end(), std::back_inserter(parts));
  }
  const auto post = [&](Transport& from, int to, int number) {
    SendChannel& sender = from.sender(to, number);
    ASSERT_TRUE(sender.acquire_zero_copy({data.data(), kBytes}));
    sender.post({1, 2, kBytes, 0});
  };
  // Rank 2 reads no more. What the kernel may still take is less than what follows.
  int number = 0;
  for (; ranks[0]->all_left(); ++number) post(*ranks[0], 2, number);
  for (const int enough = number + 64; number < enough; ++number) post(*ranks[0], 2, number);
  Transport &apart = *parts[0], &frozen_too = *parts[2];
  EXPECT_TRUE(apart.all_left());
  EXPECT_TRUE(frozen_too.all_left()) << "nothing of it is on its way";
  post(apart, 1, 0);
  EXPECT_TRUE(eventually(*ranks[1], [&] { return apart.all_left(); }));
  post(frozen_too, 1, 0);
  EXPECT_FALSE(frozen_too.all_left());
  EXPECT_FALSE(ranks[0]->all_left());
  EXPECT_TRUE(eventually(*ranks[2], [&] { return frozen_too.all_left() && ranks[0]->all_left(); }));
}

/// Rank 1, played by the test; rank 0 is real.
class TcpCaller : public TcpTransport {
 protected:
  /// Authenticates as rank 1 and sends nothing more.
  Fd prove() {
    const auto own = mesh::Address::parse(rank_->address());
    Fd socket = call(place_of(*rank_));
    net::AuthInitiator proof(Secret("the secret of this job"),
                             {net::Claim::Purpose::data, 1, 0, own->identity}, random_);
    std::string heard;
    EXPECT_TRUE(socket);
    for (auto state = net::AuthInitiator::State::begin;;) {
      std::string output;
      std::string_view input = heard;
      state = proof.advance(input, output);
      heard.erase(0, heard.size() - input.size());
      say(socket, output);
      EXPECT_NE(state, net::AuthInitiator::State::failed);
      if (state == net::AuthInitiator::State::done || state == net::AuthInitiator::State::failed)
        break;
      pollfd readable{socket.get(), POLLIN, 0};
      EXPECT_GT(poll(&readable, 1, 10'000), 0);
      char byte = 0;
      if (recv(socket.get(), &byte, 1, 0) == 1) heard += byte;
    }
    return socket;
  }
  static void say_open(const Fd& socket, mesh::Use use) {
    say(socket, bytes_of(mesh::Opening{.use = use}));
  }
  Fd join(mesh::Use use) {
    Fd socket = prove();
    say_open(socket, use);
    return socket;
  }
  /// Reads and discards what has arrived.
  static bool is_cut(const Fd& socket) {
    char bytes[100];
    ssize_t got = 0;
    do got = recv(socket.get(), bytes, sizeof bytes, MSG_DONTWAIT);
    while (got > 0);
    return got == 0 || errno != EAGAIN;
  }

  SetClock hands_;
  std::unique_ptr<Transport> rank_;
};

// A rank whose proof has been accepted counts itself as joined and never calls again, but it may be
// slow to send its first frame.
TEST_F(TcpCaller, ThatHasProvedWhoItIsIsNotCutForAFloodNorForBeingSlow) {
  for (const bool flooded : {true, false}) {
    TransportContext by_hand = context(0, 2);
    by_hand.clock = &hands_;
    rank_ = tcp::entry().make(by_hand);
    const auto other = tcp::entry().make(context(1, 2));
    const std::vector<std::string> addresses{rank_->address(), other->address()};
    const TimePoint deadline = hands_.now() + std::chrono::hours(1);
    auto connected = std::async(std::launch::async, [&] { rank_->connect(addresses, deadline); });
    const Fd data = prove(), lifeline = prove();
    std::vector<Fd> flood;  // 64 places, and two for each rank
    for (int i = 0; i < (flooded ? 200 : 1); ++i) flood.push_back(call(place_of(*rank_)));
    if (!flooded) {
      // Its answer arrives before the time is up.
      say(flood.front(), bytes_of(net::AuthHello{}));
      pollfd readable{flood.front().get(), POLLIN, 0};
      EXPECT_EQ(poll(&readable, 1, 30'000), 1);
      hands_.advance(std::chrono::seconds(10));
    }
    const std::size_t cut = flooded ? 100 : 1;
    EXPECT_TRUE(eventually(*other, [&] {
      return std::all_of(flood.begin(), flood.begin() + static_cast<std::ptrdiff_t>(cut), is_cut);
    }));
    EXPECT_FALSE(is_cut(data));
    EXPECT_FALSE(is_cut(lifeline));
    say_open(data, mesh::Use::data);
    say_open(lifeline, mesh::Use::lifeline);
    if (connected.wait_for(kLong) != std::future_status::ready) {
      ADD_FAILURE() << "rank 0 still waits for rank 1, which takes itself for joined";
      hands_.advance(std::chrono::hours(2));
    }
    EXPECT_NO_THROW(connected.get());
  }
}

/// Rank 1, which has proved that it knows the secret and now sends whatever the test wants.
class TcpPeer : public TcpCaller {
 protected:
  void SetUp() override { join_rank_0(context(0, 2)); }

  void join_rank_0(const TransportContext& its) {
    rank_ = tcp::entry().make(its);
    const std::vector<std::string> addresses{rank_->address(), make(2)[1]->address()};
    auto connected = std::async(std::launch::async,
                                [&] { rank_->connect(addresses, its.clock->now() + kLong); });
    socket_ = join(mesh::Use::data);
    lifeline_ = join(mesh::Use::lifeline);
    connected.get();
  }

  void say_frame(const tcp::Frame& frame) { say(socket_, bytes_of(frame)); }
  static tcp::Frame message(std::uint32_t bytes) {
    tcp::Frame frame;
    frame.header = {1, 2, bytes, 0};
    return frame;
  }
  void expect_lost(std::string_view why) {
    EXPECT_TRUE(
        eventually(*rank_, [&] { return rank_->status(1).state == PeerStatus::State::lost; }));
    EXPECT_THAT(rank_->status(1).why, HasSubstr(std::string(why)));
    EXPECT_FALSE(rank_->receiver(1, 0).peek());
  }

  Fd socket_, lifeline_;
};

// Another thread may be writing the text until the state says that it is there.
TEST(TcpStatusPage, IsSentWithTheTextOfAFailureOnceItIsWholeAndIsConstantFromThenOn) {
  const auto text_of = [](const StatusPage& page) { return std::string(page.failure_text()); };
  StatusPage own{}, seen{};
  own.failure.fill('x');
  const StatusPageBytes early = read_status_page(own);
  EXPECT_EQ(std::count(early.end() - StatusPage::kFailureBytes, early.end(), std::byte{'x'}), 0);
  write_status_page(seen, early);
  own.fail(ErrorKind::timeout, "it was late");
  write_status_page(seen, read_status_page(own));
  EXPECT_EQ(seen.state.load(), StatusPageState::failed);
  EXPECT_EQ(text_of(seen), "it was late");
  StatusPage other{};
  other.fail(ErrorKind::timeout, "never mind");
  write_status_page(seen, read_status_page(other));
  EXPECT_EQ(text_of(seen), "it was late") << "another thread may be reading it";
}

// At 100 Mb/s and a round-trip time of 100 ms, 20 messages of 64 KiB are in flight.
TEST(TcpWindow, FillsALongLineAndStaysInTheCachesOverAShortOne) {
  EXPECT_GE(tcp::window_for(std::chrono::milliseconds(100)), 40u);
  EXPECT_LE(tcp::window_for(std::chrono::microseconds(50)), 8u);
  EXPECT_LE(tcp::window_for(std::chrono::hours(1)), tcp::kWindow);
}

TEST_F(TcpPeer, ThatEndsIsLostAndWhatItSentBeforeIsReceived) {
  say_frame(message(3));
  say(socket_, "abc");
  socket_.reset();
  EXPECT_TRUE(
      eventually(*rank_, [&] { return rank_->status(1).state == PeerStatus::State::lost; }));
  ASSERT_TRUE(rank_->receiver(1, 0).peek());
  EXPECT_EQ(rank_->receiver(1, 0).peek()->header.length, 3u);
}

// Only the lifeline shows the end, as after the death of a process whose forked child lives.
TEST_F(TcpPeer, WhoseLifelineEndsIsLostAndWhatItSentBeforeIsReceived) {
  say_frame(message(3));
  say(socket_, "abc");
  lifeline_.reset();
  EXPECT_TRUE(
      eventually(*rank_, [&] { return rank_->status(1).state == PeerStatus::State::lost; }));
  EXPECT_THAT(rank_->status(1).why, HasSubstr("its process has ended"));
  ASSERT_TRUE(rank_->receiver(1, 0).peek());
  EXPECT_EQ(rank_->receiver(1, 0).peek()->header.length, 3u);
}

// Rank 0 had no room for more when the process ended: the rest lies in the sender's machine, and
// has been silent for long. It is sent as soon as rank 0 reads.
TEST_F(TcpPeer, WhoseLifelineEndsIsHeardToTheEndThoughItWasSilentForWantOfRoom) {
  TransportContext by_hand = context(0, 2);
  by_hand.clock = &hands_;
  join_rank_0(by_hand);
  say_frame(message(0));
  poll(nullptr, 0, 400);
  lifeline_.reset();
  for (int look = 0; look < 50; ++look) {
    rank_->progress();
    hands_.advance(std::chrono::milliseconds(3));
    poll(nullptr, 0, 1);
  }
  ASSERT_EQ(rank_->status(1).state, PeerStatus::State::alive);
  say_frame(message(3));
  say(socket_, "abc");
  int received = 0;
  EXPECT_TRUE(eventually(*rank_, [&] {
    for (RecvChannel& channel = rank_->receiver(1, 0); channel.peek(); channel.release())
      ++received;
    return received == 2;
  }));
  EXPECT_TRUE(eventually(*rank_, [&] {
    hands_.advance(std::chrono::milliseconds(50));
    return rank_->status(1).state == PeerStatus::State::lost;
  }));
}

TEST_F(TcpPeer, IsStillWatchedAfterAForkedChildHasDestroyedItsCopy) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);
    rank_.reset();
    _exit(0);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  say_frame(message(0));
  EXPECT_TRUE(eventually(*rank_, [&] { return rank_->receiver(1, 0).peek().has_value(); }));
  EXPECT_EQ(rank_->status(1).state, PeerStatus::State::alive);
  rank_->receiver(1, 0).release();
  lifeline_.reset();
  expect_lost("its process has ended");
}

TEST_F(TcpPeer, ThatClaimsALongerMessageThanThereCanBeIsLost) {
  say_frame(message(4097));
  expect_lost("4097 bytes");
}

// No machine has the memory for a message of this size.
TEST_F(TcpPeer, WhoseMessageThereIsNoMemoryForIsNotLostAndHearsOfIt) {
  TransportContext large = context(0, 2);
  large.max_message_bytes = large.message_limit = std::size_t{1} << 46;
  join_rank_0(large);
  say_frame(message(3));
  say(socket_, "abc");
  const auto unheard = [&] { return rank_->status(1).state == PeerStatus::State::no_memory; };
  EXPECT_TRUE(eventually(*rank_, unheard));
  EXPECT_THAT(rank_->status(1).why, HasSubstr("no memory"));
  EXPECT_FALSE(rank_->status(1).gone);
  rank_->own_status_page().fail(ErrorKind::unavailable, "no memory");
  rank_->wake(1);
  tcp::Frame frame;
  ASSERT_EQ(recv(socket_.get(), &frame, sizeof frame, MSG_WAITALL), ssize_t{sizeof frame});
  EXPECT_EQ(frame.kind, tcp::FrameKind::status_page);
}

TEST_F(TcpPeer, ThatSendsBeyondItsWindowIsLost) {
  for (int i = 0; i <= static_cast<int>(tcp::kWindow); ++i) say_frame(message(0));
  EXPECT_TRUE(
      eventually(*rank_, [&] { return rank_->status(1).state == PeerStatus::State::lost; }));
  EXPECT_THAT(rank_->status(1).why, HasSubstr("room"));
}

TEST_F(TcpPeer, ThatGivesBackRoomThatNobodyTookIsLost) {
  tcp::Frame frame;
  frame.kind = tcp::FrameKind::credit;
  frame.credits = 1;
  say_frame(frame);
  expect_lost("gives back");
}

TEST_F(TcpPeer, ThatNamesAChannelThatCannotBeIsLost) {
  tcp::Frame frame = message(0);
  frame.channel = -1;
  say_frame(frame);
  expect_lost("channel -1");
}

TEST_F(TcpPeer, ThatNamesAChannelBeyondAllThatThereAreIsLost) {
  tcp::Frame frame = message(0);
  frame.channel = std::numeric_limits<std::int32_t>::max();
  say_frame(frame);
  expect_lost("channel 2147483647");
}

TEST_F(TcpPeer, ThatSpeaksNoSenseIsLost) {
  for (const int kind : {0, 5, 999}) {
    SetUp();
    tcp::Frame frame;
    frame.kind = static_cast<tcp::FrameKind>(kind);
    say_frame(frame);
    expect_lost("makes no sense");
  }
}

TEST_F(TcpPeer, OfACommunicatorThatIsNotHereIsNotListenedTo) {
  tcp::Frame other =
      message(50'000);  // larger than what one read takes in, and than a message may be
  other.group = 77;
  say_frame(other);
  say(socket_, std::string(50'000, 'x'));
  say_frame(message(0));
  EXPECT_TRUE(eventually(*rank_, [&] { return rank_->receiver(1, 0).peek().has_value(); }));
  EXPECT_EQ(rank_->status(1).state, PeerStatus::State::alive);
}

}  // namespace
}  // namespace tutti
