// Tests how shm joins ranks and what it does when something is wrong, with all ranks in one
// process.
#include "transport/shm/shm.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <thread>

#include <tutti/error.hpp>

#include "transport/ring/ring.h"
#include "transport/shm/address.h"
#include "transport/shm/join.h"
#include "transport/shm/packet.h"

namespace tutti::shm {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

std::ptrdiff_t entries(const char* folder) {
  return std::distance(std::filesystem::directory_iterator(folder), {});
}

class ShmTransport : public testing::Test {
 protected:
  // Holds the error that a rank has thrown, or one without a text.
  struct Outcome {
    ErrorKind kind{};
    std::string text;
  };

  std::unique_ptr<Transport> make_rank(int rank, int size) {
    TransportContext context;
    context.doorbell = bell_;
    context.rank = rank;
    context.size = size;
    context.clock = &clock_;
    context.random = &random_;
    context.data_bytes = 192;
    context.max_message_bytes = 64;
    return entry().make(context);
  }

  Outcome connect(Transport& transport, const std::vector<std::string>& addresses,
                  milliseconds limit) {
    try {
      transport.connect(addresses, clock_.now() + limit);
    } catch (const Error& error) {
      return {error.kind(), error.what()};
    }
    return {};
  }

  std::vector<std::unique_ptr<Transport>> connected(int size) {
    std::vector<std::unique_ptr<Transport>> ranks;
    std::vector<std::string> addresses;
    for (int rank = 0; rank < size; ++rank) {
      ranks.push_back(make_rank(rank, size));
      addresses.push_back(ranks.back()->address());
    }
    std::vector<std::thread> threads;
    for (auto& rank : ranks)
      threads.emplace_back([&] { EXPECT_EQ(connect(*rank, addresses, seconds(60)).text, ""); });
    for (std::thread& thread : threads) thread.join();
    return ranks;
  }

  SteadyClock clock_;
  SystemRandom random_;
  // The doorbell of ranks that are made from now on; null if they never sleep.
  std::shared_ptr<const Doorbell> bell_;
};

bool has(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

// Returns the subset of both of two ranks, as `rank` describes it.
Subset both(int rank, std::uint32_t id) {
  Subset subset;
  subset.members = {0, 1};
  subset.rank = rank;
  subset.numbers = {id, id};
  subset.data_bytes = 192;
  subset.max_message_bytes = 64;
  return subset;
}

// Returns the socket of a stranger that has connected to `address`.
Fd call(const std::string& address) {
  const std::string name = Address::parse(address)->socket_name();
  sockaddr_un to{};
  to.sun_family = AF_UNIX;
  std::memcpy(to.sun_path + 1, name.data(), name.size());
  Fd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  const auto bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  EXPECT_EQ(::connect(socket.get(), reinterpret_cast<const sockaddr*>(&to), bytes), 0);
  return socket;
}

TEST_F(ShmTransport, SixteenRanksJoinAndLeaveNothingBehind) {
  const std::ptrdiff_t files = entries("/proc/self/fd");
  const std::ptrdiff_t shared = entries("/dev/shm");
  {
    const auto ranks = connected(16);
    ranks[3]->sender(9, 0);
    ranks[9]->progress();
    EXPECT_TRUE(ranks[9]->receiver(3, 0).ring() != nullptr);
  }
  EXPECT_EQ(entries("/proc/self/fd"), files);
  EXPECT_EQ(entries("/dev/shm"), shared);
}

TEST_F(ShmTransport, AnEndedJoinNamesTheRanksThatNeverCameAndLeavesNothingBehind) {
  const std::ptrdiff_t files = entries("/proc/self/fd");
  {
    const auto here = make_rank(1, 4);
    const auto frozen = make_rank(0, 4);  // listens, but nobody advances it
    const auto late = make_rank(2, 4);
    const auto never = make_rank(3, 4);
    const Outcome outcome =
        connect(*here, {frozen->address(), here->address(), late->address(), never->address()},
                milliseconds(50));
    EXPECT_EQ(outcome.kind, ErrorKind::timeout);
    EXPECT_TRUE(has(outcome.text, "rank 1 of 4")) << outcome.text;
    for (const char* missing : {"rank 0 (process", "rank 2 (process", "rank 3 (process"})
      EXPECT_TRUE(has(outcome.text, missing)) << outcome.text;
  }
  EXPECT_EQ(entries("/proc/self/fd"), files);
}

TEST_F(ShmTransport, ARankThatHasLeftBeforeTheJoinIsLostForLowerAndHigherRanks) {
  for (const int here : {0, 1}) {
    const auto rank = make_rank(here, 2);
    std::vector<std::string> addresses(2);
    addresses[here] = rank->address();
    addresses[1 - here] = make_rank(1 - here, 2)->address();
    const Outcome outcome = connect(*rank, addresses, seconds(60));
    EXPECT_EQ(outcome.kind, ErrorKind::peer_lost);
    EXPECT_TRUE(has(outcome.text, here == 0 ? "rank 1 (process" : "rank 0 (process"))
        << outcome.text;
  }
}

TEST_F(ShmTransport, StrangersGarbageAndHalfOpenCallsDoNotDisturbTheJoin) {
  std::vector<std::unique_ptr<Transport>> ranks;
  std::vector<std::string> addresses;
  for (int rank = 0; rank < 2; ++rank) {
    ranks.push_back(make_rank(rank, 2));
    addresses.push_back(ranks.back()->address());
  }
  std::vector<Fd> strangers;
  for (int n = 0; n < 100; ++n) {
    strangers.push_back(call(addresses[n % 2]));
    const std::string garbage(static_cast<std::size_t>(n * 50), 'x');
    if (n % 3 == 0) send(strangers.back().get(), garbage.data(), garbage.size(), MSG_NOSIGNAL);
    if (n % 3 == 1) strangers.back().reset();
  }
  // It has the size of a greeting and carries a descriptor, as a greeting does.
  const std::array<std::uint64_t, 8> forged{};
  const int descriptor = eventfd(0, EFD_CLOEXEC);
  EXPECT_EQ(send_packet(strangers.front(), forged, std::span(&descriptor, 1)), Sent::done);
  close(descriptor);

  std::thread other([&] { EXPECT_EQ(connect(*ranks[1], addresses, seconds(60)).text, ""); });
  EXPECT_EQ(connect(*ranks[0], addresses, seconds(60)).text, "");
  other.join();
  EXPECT_EQ(ranks[0]->status(1).state, PeerStatus::State::alive);
  EXPECT_EQ(ranks[1]->status(0).state, PeerStatus::State::alive);
}

// Rank 1 calls while rank 0 is busy. Before rank 0 looks, more callers have arrived than its list
// of unauthenticated callers holds.
TEST_F(ShmTransport, ACallThatHasGreetedIsHeardBeforeItIsCutForThoseWhoCameAfterIt) {
  struct CountingClock final : Clock {
    TimePoint now() const override {
      ++looks;
      return std::chrono::steady_clock::now();
    }
    mutable std::atomic<int> looks{0};
  } of_rank_1;
  const auto first = make_rank(0, 2);
  TransportContext context;
  context.rank = 1;
  context.size = 2;
  context.clock = &of_rank_1;
  context.random = &random_;
  const auto second = entry().make(context);
  const std::vector<std::string> addresses{first->address(), second->address()};
  std::thread other([&] { EXPECT_EQ(connect(*second, addresses, seconds(60)).text, ""); });
  // The rank reads the clock, calls, and reads the clock again to find out how long to wait.
  while (of_rank_1.looks < 3) std::this_thread::yield();
  std::vector<Fd> flood;
  for (int n = 0; n < 200; ++n) flood.push_back(call(addresses[0]));
  EXPECT_EQ(connect(*first, addresses, seconds(20)).text, "");
  other.join();
}

/// An address that belongs to no rank; the test itself listens there.
struct PlayedRank {
  explicit PlayedRank(Random& random)
      : address(own_address(random)), listener(listen_at(address)) {}
  /// Returns none where nobody calls in time.
  Fd accept_call() const {
    pollfd readable{listener.get(), POLLIN, 0};
    return Fd(poll(&readable, 1, 30'000) == 1
                  ? accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC)
                  : -1);
  }
  Address address;
  Fd listener;
};

TEST_F(ShmTransport, ACallThatIsCutUnansweredIsMadeAgainUntilNobodyListensThere) {
  PlayedRank busy(random_);
  const auto rank = make_rank(1, 2);
  std::thread other([&] {
    const Outcome outcome =
        connect(*rank, {busy.address.to_string(), rank->address()}, seconds(60));
    EXPECT_EQ(outcome.kind, ErrorKind::peer_lost) << outcome.text;
    EXPECT_TRUE(has(outcome.text, "rank 0 (process")) << outcome.text;
  });
  int calls = 0;
  while (calls < 5 && busy.accept_call()) ++calls;
  EXPECT_EQ(calls, 5);
  busy.listener.reset();
  other.join();
}

// A rank checks whether others are still there by calling them, which costs the others time, too.
// When all ranks checked all others at once, hundreds of ranks had no time left to join.
TEST_F(ShmTransport, AFewOfTheMissingRanksAreLookedAtAtATimeAndInTheEndAll) {
  struct HurryingClock final : Clock {  // reading it takes longer than ranks wait
    TimePoint now() const override { return at += milliseconds(1100); }
    mutable TimePoint at = std::chrono::steady_clock::now();
  } hurrying;
  constexpr int kOthers = 40, kSeconds = 60;
  TransportContext context;
  context.size = 1 + kOthers;
  context.clock = &hurrying;
  context.random = &random_;
  const auto rank = entry().make(context);
  std::vector<std::string> addresses{rank->address()};
  std::vector<PlayedRank> missing;
  for (int n = 0; n < kOthers; ++n) {
    missing.emplace_back(random_);
    addresses.push_back(missing.back().address.to_string());
  }
  try {
    rank->connect(addresses, hurrying.at + seconds(kSeconds));
    FAIL() << "it joined nobody";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::timeout) << error.what();
  }
  int looks = 0, not_looked_at = 0;
  for (const PlayedRank& one : missing) {
    int here = 0;
    while (Fd(accept4(one.listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK))) ++here;
    looks += here;
    not_looked_at += here == 0 ? 1 : 0;
  }
  EXPECT_EQ(not_looked_at, 0);
  EXPECT_LE(looks, 5 * kSeconds);
}

TEST_F(ShmTransport, AddressesThatCannotBeReachedSayWhy) {
  const auto here = make_rank(0, 2);
  const Address there = Address::parse(make_rank(1, 2)->address()).value();
  EXPECT_EQ(Address::parse(there.to_string()), there);
  const auto outcome_with = [&](const std::string& address) {
    return connect(*here, {here->address(), address}, seconds(60));
  };
  const auto changed = [&](const auto& change) {
    Address address = there;
    change(address);
    return outcome_with(address.to_string());
  };
  Outcome outcome = changed([](Address& a) { a.place.machine = "elsewhere"; });
  EXPECT_EQ(outcome.kind, ErrorKind::unavailable);
  EXPECT_TRUE(has(outcome.text, "rank 1: it runs on another machine (boot id elsewhere"))
      << outcome.text;
  outcome = changed([](Address& a) { a.place.network += 1; });
  EXPECT_EQ(outcome.kind, ErrorKind::unavailable);
  EXPECT_TRUE(has(outcome.text, "network namespace")) << outcome.text;
  outcome = changed([](Address& a) { a.place.user += 1; });
  EXPECT_EQ(outcome.kind, ErrorKind::unavailable);
  EXPECT_TRUE(has(outcome.text, "as one user")) << outcome.text;
  for (const char* garbage : {"stream", "shm/2 1 2 m 3 4 5", "shm/1 1 2 m 3 4 5 6", "shm/1 x"})
    EXPECT_EQ(outcome_with(garbage).kind, ErrorKind::mismatch) << garbage;
}

TEST_F(ShmTransport, TwoProcessesThatCallThemselvesTheSameRankAreToldSo) {
  const auto first = make_rank(0, 2);
  const auto second = make_rank(0, 2);
  const auto other = make_rank(1, 2);
  const Outcome outcome = connect(*first, {second->address(), other->address()}, seconds(60));
  EXPECT_EQ(outcome.kind, ErrorKind::usage);
  EXPECT_TRUE(has(outcome.text, "both call themselves rank 0")) << outcome.text;
}

// Hands over more than the socket has room for. The rest waits for the peer, and wait_fds() says
// when to continue.
TEST_F(ShmTransport, HundredsOfRingsAreHandedOverToAPeerThatIsBusy) {
  constexpr int kRings = 700;
  const std::ptrdiff_t files = entries("/proc/self/fd");
  const auto ranks = connected(2);
  const std::ptrdiff_t joined = entries("/proc/self/fd");
  for (int number = 0; number < kRings; ++number) {
    SendChannel& channel = ranks[0]->sender(1, number);
    ASSERT_TRUE(channel.acquire(0));
    channel.post({static_cast<std::uint32_t>(number), 0, 0, 0});
  }
  const std::ptrdiff_t waiting = entries("/proc/self/fd") - joined;
  EXPECT_GT(waiting, 0) << "the socket took all: this test proves nothing";
  for (bool more = true; more;) {
    ranks[1]->progress();
    ranks[0]->progress();
    pollfd fd{ranks[1]->wait_fds().front(), POLLIN, 0};
    more = poll(&fd, 1, 0) != 0;
  }
  for (int number = 0; number < kRings; ++number) {
    const auto message = ranks[1]->receiver(0, number).peek();
    ASSERT_TRUE(message) << number;
    EXPECT_EQ(message->header.operation, static_cast<std::uint32_t>(number));
  }
  pollfd fd{ranks[0]->wait_fds().front(), POLLIN, 0};
  EXPECT_EQ(poll(&fd, 1, 0), 0) << "nothing is left to do";
  EXPECT_EQ(entries("/proc/self/fd"), joined);
  EXPECT_GT(joined, files);
}

TEST_F(ShmTransport, RingsAreTakenWhereThisProcessHasNoDescriptorsLeft) {
  constexpr int kRings = 20;
  auto ranks = connected(2);
  for (int number = 0; number < kRings; ++number) ranks[1]->sender(0, number);
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const int next = dup(0);
  close(next);
  const rlimit none{static_cast<rlim_t>(next), before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  EXPECT_NO_THROW(ranks[0]->progress());
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  for (int number = 0; number < kRings; ++number)
    EXPECT_NE(ranks[0]->receiver(1, number).ring(), nullptr) << number;
}

TEST_F(ShmTransport, AGoodbyeWaitsForAPeerThatTakesItsRingsLate) {
  auto ranks = connected(2);
  constexpr int kRings = 700;
  for (int number = 0; number < kRings; ++number) {
    SendChannel& channel = ranks[0]->sender(1, number);
    ASSERT_TRUE(channel.acquire(0));
    channel.post({});
  }
  std::thread leaving([&] { ranks[0].reset(); });
  int received = 0;
  for (int turn = 0; turn < 1'000'000 && received < kRings; ++turn) {
    ranks[1]->progress();
    while (received < kRings && ranks[1]->receiver(0, received).peek()) ++received;
  }
  leaving.join();
  EXPECT_EQ(received, kRings);
  EXPECT_EQ(ranks[1]->status(0).state, PeerStatus::State::closed);
}

TEST_F(ShmTransport, LackOfMemoryForARingIsAnErrorThatLeavesTheRestUsable) {
  TransportContext context;
  context.size = 2;
  context.clock = &clock_;
  context.random = &random_;
  context.data_bytes = std::size_t{1} << 40;
  context.max_message_bytes = 4096;
  const auto first = entry().make(context);
  context.rank = 1;
  const auto second = entry().make(context);
  const std::vector<std::string> addresses{first->address(), second->address()};
  std::thread other([&] { EXPECT_EQ(connect(*second, addresses, seconds(60)).text, ""); });
  EXPECT_EQ(connect(*first, addresses, seconds(60)).text, "");
  other.join();
  for (int attempt = 0; attempt < 2; ++attempt) try {
      first->sender(1, 0);
      FAIL() << "a tebibyte was had";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::unavailable);
      EXPECT_TRUE(has(error.what(), "a ring from rank 0 to rank 1")) << error.what();
    }
  second->progress();
  EXPECT_EQ(second->status(0).state, PeerStatus::State::alive);
}

// Threads that split communicators at the same time make their groups in any order, and handle each
// other's events.
TEST_F(ShmTransport, ABoardThatComesWhileItsGroupIsBeingMadeIsKeptWhateverTheGroupsId) {
  const auto ranks = connected(2);
  std::vector<std::unique_ptr<Transport>> parts;
  for (const std::uint32_t id : {7u, 3u, 4'000'000'000u}) {
    parts.push_back(ranks[1]->split(both(1, id)));
    Transport& theirs = *parts.back();
    EXPECT_EQ(theirs.join(), std::vector<int>{0});
    parts.push_back(ranks[0]->split(both(0, id)));
    pollfd news{ranks[0]->wait_fds().front(), POLLIN, 0};
    EXPECT_EQ(poll(&news, 1, 10'000), 1);
    ranks[0]->progress();  // A thread of another communicator does this.
    EXPECT_EQ(parts.back()->join(), std::vector<int>()) << "group " << id;
    theirs.progress();
    EXPECT_EQ(theirs.join(), std::vector<int>());
    SendChannel& channel = parts.back()->sender(1, 0);
    ASSERT_TRUE(channel.acquire(0));
    channel.post({id, 0, 0, 0});
    ranks[1]->progress();
    const auto message = parts[parts.size() - 2]->receiver(0, 0).peek();
    ASSERT_TRUE(message);
    EXPECT_EQ(message->header.operation, id);
  }
}

// Sleeps as a thread of one communicator does: on the process's doorbell and on the connections
// that all communicators share. Both wake it once for each event.
class Sleep {
 public:
  Sleep(const Doorbell& bell, const Transport& transport) {
    for (const int fd : {bell.fd(), transport.wait_fds().front()}) {
      epoll_event event{};
      event.events = EPOLLIN | EPOLLET;
      EXPECT_EQ(epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event), 0);
    }
  }
  bool ends_within(milliseconds limit) {
    epoll_event event{};
    return epoll_wait(epoll_.get(), &event, 1, static_cast<int>(limit.count())) == 1;
  }

 private:
  const Fd epoll_{epoll_create1(EPOLL_CLOEXEC)};
};

TEST_F(ShmTransport, WhoeverTakesNewsOfAPeerWakesTheThreadsOfAllCommunicators) {
  bell_ = std::make_shared<const Doorbell>();
  auto ranks = connected(2);
  auto part = ranks[0]->split(both(0, 1)), peers_part = ranks[1]->split(both(1, 1));
  EXPECT_EQ(part->join(), std::vector<int>{1});
  EXPECT_EQ(peers_part->join(), std::vector<int>{0});
  for (Transport* each : {part.get(), peers_part.get()}) {
    each->progress();
    EXPECT_EQ(each->join(), std::vector<int>());
  }

  Sleep sleep(*bell_,
              *part);  // The first communicator's threads look first and take what there is.
  const auto wakes_it = [&](auto&& happens) {
    while (sleep.ends_within(milliseconds(0))) ranks[0]->progress();
    happens();
    ranks[0]->progress();
    return sleep.ends_within(milliseconds(0));
  };
  EXPECT_TRUE(wakes_it([&] { peers_part->sender(0, 5); })) << "a ring that messages may lie in";
  EXPECT_TRUE(wakes_it([&] {
    peers_part.reset();
    ranks[1].reset();
  })) << "its end";
  EXPECT_FALSE(wakes_it([] {}));
}

}  // namespace
}  // namespace tutti::shm
