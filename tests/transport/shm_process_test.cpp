// Tests of shm between real processes, which are killed, frozen and forked.
#include <gtest/gtest.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <functional>
#include <thread>
#include <vector>

#include <tutti/error.hpp>

#include "common/fd.h"
#include "test_ranks.h"
#include "transport/ring/ring.h"
#include "transport/shm/address.h"
#include "transport/shm/packet.h"
#include "transport/shm/shm.h"

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED
#endif
#endif

namespace tutti {
namespace {

#ifdef SANITIZED
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

constexpr std::chrono::seconds kLimit{60};
constexpr int kLimitMs = 60'000;

// A pipe over which the two processes of a test exchange texts.
class Line {
 public:
  Line() {
    std::array<int, 2> ends{};
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) != 0) abort();
    parent_.reset(ends[0]);
    child_.reset(ends[1]);
  }
  void become_child() { parent_.reset(); }
  void become_parent() { child_.reset(); }
  void say(const std::string& text) {
    if (send(end(), text.data(), text.size(), MSG_NOSIGNAL) < 0) abort();
  }
  std::string hear() {
    std::string text(4096, '\0');
    pollfd fd{end(), POLLIN, 0};
    const ssize_t got = poll(&fd, 1, kLimitMs) == 1 ? recv(end(), text.data(), text.size(), 0) : -1;
    text.resize(static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
    return text;
  }

 private:
  int end() const { return parent_ ? parent_.get() : child_.get(); }
  Fd parent_;
  Fd child_;
};

// A pair of ranks: rank 0 is the test, and rank 1 is a process of its own that runs what the test
// gives it.
class ShmProcesses : public testing::Test {
 protected:
  using Play = std::function<void(Transport&, Line&)>;

  ~ShmProcesses() override {
    if (child_ <= 0) return;
    kill(child_, SIGKILL);
    waitpid(child_, nullptr, 0);
  }

  TransportContext context_of(int rank, std::shared_ptr<const Doorbell> bell) {
    TransportContext context;
    context.rank = rank;
    context.size = 2;
    context.clock = &clock_;
    context.random = &random_;
    context.doorbell = std::move(bell);
    return context;
  }

  void start(const Play& play) {
    child_ = fork();
    ASSERT_GE(child_, 0);
    if (child_ == 0) {
      line_.become_child();
      try {
        const auto transport = shm::entry().make(context_of(1, std::make_shared<const Doorbell>()));
        line_.say(transport->address());
        const std::string other = line_.hear();
        transport->connect(std::vector<std::string>{other, transport->address()},
                           clock_.now() + kLimit);
        play(*transport, line_);
      } catch (...) {
        _exit(1);
      }
      _exit(0);
    }
    line_.become_parent();
    transport_ = shm::entry().make(context_of(0, bell_));
    line_.say(transport_->address());
    const std::vector<std::string> addresses{transport_->address(), line_.hear()};
    transport_->connect(addresses, clock_.now() + kLimit);
  }

  // Sleeps on wait_fds() alone until the peer's state is no longer `alive`.
  PeerStatus wait_for_news() {
    while (transport_->status(1).state == PeerStatus::State::alive) {
      pollfd fd{transport_->wait_fds().front(), POLLIN, 0};
      if (poll(&fd, 1, kLimitMs) != 1) {
        ADD_FAILURE() << "wait_fds() says nothing";
        break;
      }
      transport_->progress();
    }
    return transport_->status(1);
  }

  bool is_quiet() {
    pollfd fd{transport_->wait_fds().front(), POLLIN, 0};
    return poll(&fd, 1, 0) == 0;
  }

  SteadyClock clock_;
  SystemRandom random_;
  Line line_;
  const std::shared_ptr<const Doorbell> bell_ = std::make_shared<const Doorbell>();
  std::unique_ptr<Transport> transport_;
  pid_t child_ = -1;
};

void send_number(Transport& transport, int peer, std::uint32_t number) {
  ASSERT_TRUE(transport.sender(peer, 0).acquire(0));
  transport.sender(peer, 0).post({number, 0, 0, 0});
}

// What the peer sent before it left is received after the news that it has left.
std::optional<std::uint32_t> receive_number(Transport& transport, int peer) {
  RecvChannel& channel = transport.receiver(peer, 0);
  for (bool alive = true; alive; sched_yield()) {
    alive = transport.status(peer).state == PeerStatus::State::alive;
    transport.progress();
    if (const auto message = channel.peek()) {
      channel.release();
      return message->header.operation;
    }
  }
  return std::nullopt;
}

TEST_F(ShmProcesses, EchoEachOther) {
  start([](Transport& transport, Line&) {
    for (std::uint32_t n = 0; n < 200; ++n)
      if (const auto number = receive_number(transport, 0)) send_number(transport, 0, *number + 1);
  });
  for (std::uint32_t n = 0; n < 200; ++n) {
    send_number(*transport_, 1, 2 * n);
    ASSERT_EQ(receive_number(*transport_, 1), 2 * n + 1);
  }
  EXPECT_EQ(wait_for_news().state, PeerStatus::State::closed);
}

TEST_F(ShmProcesses, AKilledPeerIsLostByNameAndWhatItSentIsStillReceived) {
  start([](Transport& transport, Line&) {
    send_number(transport, 0, 4711);
    raise(SIGKILL);
  });
  const PeerStatus status = wait_for_news();
  EXPECT_EQ(status.state, PeerStatus::State::lost);
  EXPECT_EQ(status.why, "process " + std::to_string(child_) + " of rank 1 has ended");
  EXPECT_EQ(receive_number(*transport_, 1), 4711u);
  EXPECT_TRUE(is_quiet()) << "a dead peer must not keep its survivors awake";
  send_number(*transport_, 1, 1);  // nobody receives it
  transport_->wake(1);
  EXPECT_EQ(transport_->status_page(1)->state.load(), StatusPageState::open);
}

// The first fetch gets the whole message. The next ones fail: first the peer's memory is gone, then
// the peer.
TEST_F(ShmProcesses, WhatAPeerHasIsFetchedAsLongAsItIsThere) {
  constexpr std::size_t kBytes = 1 << 20;
  start([](Transport& transport, Line& line) {
    void* memory =
        mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    std::memset(memory, 7, kBytes);
    SendChannel& channel = transport.sender(0, 0);
    while (!channel.zero_copy().has(MemoryKind::host)) transport.progress();
    channel.acquire_zero_copy({static_cast<std::byte*>(memory), kBytes});
    channel.post({1, 2, kBytes, 3});
    line.hear();
    munmap(memory, kBytes);
    line.say("gone");
    line.hear();
  });
  RecvChannel& channel = transport_->receiver(1, 0);
  std::optional<Message> message;
  while (!(message = channel.peek())) transport_->progress();
  ASSERT_TRUE(message->remote);
  std::vector<std::byte> copy(kBytes);
  ASSERT_EQ(channel.get({copy.data(), copy.size()}), copy.data());
  EXPECT_EQ(copy, std::vector<std::byte>(kBytes, std::byte{7}));
  line_.say("enough");
  EXPECT_EQ(line_.hear(), "gone");
  try {
    channel.get({copy.data(), copy.size()});
    FAIL() << "it was fetched";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::corrupt);
    EXPECT_NE(std::string(error.what()).find("a buffer that was given back"), std::string::npos);
  }
  ASSERT_EQ(kill(child_, SIGKILL), 0);
  EXPECT_EQ(wait_for_news().state, PeerStatus::State::lost);
  EXPECT_EQ(channel.get({copy.data(), copy.size()}), nullptr);
}

TEST_F(ShmProcesses, AProcessThatEndsWithoutAGoodbyeIsLost) {
  start([](Transport&, Line&) { _exit(0); });
  EXPECT_EQ(wait_for_news().state, PeerStatus::State::lost);
}

TEST_F(ShmProcesses, AFrozenPeerIsAliveAndGoesOnWhenItThaws) {
  start([](Transport& transport, Line&) {
    if (const auto number = receive_number(transport, 0)) send_number(transport, 0, *number + 1);
  });
  ASSERT_EQ(kill(child_, SIGSTOP), 0);
  int status = 0;
  ASSERT_EQ(waitpid(child_, &status, WUNTRACED), child_);
  ASSERT_TRUE(WIFSTOPPED(status));
  send_number(*transport_, 1, 1);
  transport_->progress();
  EXPECT_EQ(transport_->status(1).state, PeerStatus::State::alive);
  EXPECT_TRUE(is_quiet());
  ASSERT_EQ(kill(child_, SIGCONT), 0);
  EXPECT_EQ(receive_number(*transport_, 1), 2u);
}

// The grandchild holds the sockets open, so that only the pidfd shows the end.
TEST_F(ShmProcesses, AKilledPeerIsLostEvenWhenItsForkedChildLives) {
  ASSERT_EQ(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
  start([](Transport&, Line& line) {
    const pid_t grandchild = fork();
    if (grandchild == 0) {
      pause();
      _exit(0);
    }
    line.say(std::to_string(grandchild));
    raise(SIGKILL);
  });
  const pid_t grandchild = std::stoi(line_.hear());
  EXPECT_EQ(wait_for_news().state, PeerStatus::State::lost);
  EXPECT_TRUE(is_quiet());
  EXPECT_EQ(kill(grandchild, SIGKILL), 0);
  EXPECT_EQ(waitpid(grandchild, nullptr, 0), grandchild);
}

TEST_F(ShmProcesses, AForkedChildThatDestroysItsCopyDoesTheParentNoHarm) {
  start([](Transport& transport, Line& line) {
    while (const auto number = receive_number(transport, 0)) {
      if (*number == 0) return;
      line.say(transport.status(0).state == PeerStatus::State::alive ? "alive" : "not alive");
      send_number(transport, 0, *number + 1);
    }
  });
  send_number(*transport_, 1, 5);
  ASSERT_EQ(receive_number(*transport_, 1), 6u);
  ASSERT_EQ(line_.hear(), "alive");

  const pid_t forked = fork();
  if (forked == 0) {
    transport_->close();
    transport_.reset();
    _exit(0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(forked, &status, 0), forked);
  EXPECT_EQ(status, 0);

  EXPECT_EQ(transport_->own_status_page().state.load(), StatusPageState::open);
  send_number(*transport_, 1, 7);
  EXPECT_EQ(receive_number(*transport_, 1), 8u);
  EXPECT_EQ(line_.hear(), "alive");
  send_number(*transport_, 1, 0);
  EXPECT_EQ(wait_for_news().state, PeerStatus::State::closed);
}

TEST_F(ShmProcesses, APeerThatFailsSaysWhyEvenAfterItHasEnded) {
  start([](Transport& transport, Line&) {
    transport.own_status_page().fail(ErrorKind::corrupt, "a bit flipped on rank 1");
    transport.wake(0);
  });
  EXPECT_EQ(wait_for_news().state, PeerStatus::State::failed);
  int status = 0;
  ASSERT_EQ(waitpid(child_, &status, 0), child_);
  child_ = -1;
  transport_->progress();
  EXPECT_EQ(transport_->status(1).state, PeerStatus::State::failed);
  EXPECT_EQ(transport_->status_page(1)->failure_text(), "a bit flipped on rank 1");
}

/// Puts as many descriptors in flight through a socket as this user may have.
class DescriptorsOnTheirWay {
 public:
  DescriptorsOnTheirWay() {
    std::array<int, 2> ends{};
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) != 0) abort();
    near_.reset(ends[0]);
    far_.reset(ends[1]);
    const std::array<int, 2> fds{near_.get(), far_.get()};
    const int number = 0;
    while (shm::send_packet(near_, number, fds) == shm::Sent::done) ++sent_;
  }
  int sent() const { return sent_; }
  void receive_all() {
    int number = 0;
    shm::Descriptors descriptors;
    while (shm::receive_packet(far_, number, descriptors) == shm::Received::packet) continue;
  }

 private:
  Fd near_, far_;
  int sent_ = 0;
};

/// Lets the descriptors arrive after the clock has been read some times.
struct DeliveringClock final : Clock {
  explicit DeliveringClock(DescriptorsOnTheirWay& all) : all_(all) {}
  TimePoint now() const override {
    if (++looks_ == 30) all_.receive_all();
    return std::chrono::steady_clock::now();
  }
  DescriptorsOnTheirWay& all_;
  mutable std::atomic<int> looks_{0};
};

// Returns 0 where ranks have joined although for a while none could hand a descriptor to another.
int join_with_too_many_descriptors_on_their_way() {
  constexpr rlim_t kFew = 100;
  const rlimit few{kFew, kFew};
  // Root may have any number in flight.
  if (setrlimit(RLIMIT_NOFILE, &few) != 0 || (geteuid() == 0 && setuid(65534) != 0)) return 2;
  SystemRandom random;
  DescriptorsOnTheirWay all;
  if (static_cast<rlim_t>(all.sent()) > kFew) return 77;  // the kernel counts in another way
  DeliveringClock clock(all);
  std::vector<std::unique_ptr<Transport>> ranks;
  std::vector<std::string> addresses;
  for (int rank = 0; rank < 3; ++rank) {
    TransportContext context;
    context.rank = rank;
    context.size = 3;
    context.clock = &clock;
    context.random = &random;
    ranks.push_back(shm::entry().make(context));
    addresses.push_back(ranks.back()->address());
  }
  std::atomic<int> failures{0};
  std::vector<std::thread> threads;
  for (const auto& rank : ranks)
    threads.emplace_back([&] {
      try {
        rank->connect(addresses, std::chrono::steady_clock::now() + kLimit);
      } catch (const Error& error) {
        std::fprintf(stderr, "%s\n", error.what());
        ++failures;
      }
    });
  for (std::thread& thread : threads) thread.join();
  return failures;
}

// A start of hundreds of ranks meets this limit: a user may have only so many descriptors in
// flight.
TEST_F(ShmProcesses, RanksThatMayNotHandOverDescriptorsNowDoItWhenOthersHaveArrived) {
  child_ = fork();
  ASSERT_GE(child_, 0);
  if (child_ == 0) {
    alarm(2 * kLimit.count());
    _exit(join_with_too_many_descriptors_on_their_way());
  }
  int status = 0;
  ASSERT_EQ(waitpid(child_, &status, 0), child_);
  child_ = -1;
  if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
    GTEST_SKIP() << "this kernel does not limit the descriptors that are on their way";
  EXPECT_EQ(status, 0);
}

// Joins ranks of this process, of which all together may have `files` descriptors from then on.
// Returns the errors, one a line.
std::string join_with_few_files(int size, rlim_t files, std::chrono::milliseconds patience) {
  SteadyClock clock;
  SystemRandom random;
  const auto bell = std::make_shared<const Doorbell>();
  std::vector<std::unique_ptr<Transport>> ranks;
  std::vector<std::string> addresses;
  for (int rank = 0; rank < size; ++rank) {
    TransportContext context;
    context.rank = rank;
    context.size = size;
    context.clock = &clock;
    context.random = &random;
    context.doorbell = bell;
    ranks.push_back(shm::entry().make(context));
    addresses.push_back(ranks.back()->address());
  }
  const rlimit few{files, files};
  if (setrlimit(RLIMIT_NOFILE, &few) != 0) return "no limit";
  std::vector<std::string> errors(static_cast<std::size_t>(size));
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank)
    threads.emplace_back([&, rank] {
      try {
        ranks[rank]->connect(addresses, clock.now() + patience);
      } catch (const Error& error) {
        errors[rank] = error.what();
      }
    });
  for (std::thread& thread : threads) thread.join();
  std::string all;
  for (const std::string& error : errors) all += error + "\n";
  return all;
}

// Three descriptors for each peer are not enough, although one of the four is closed in the end.
TEST_F(ShmProcesses, AStartWithTooFewDescriptorsSaysHowManyItNeeds) {
  if (kSanitized)
    GTEST_SKIP()
        << "a sanitizer needs a pipe to read memory, and takes what it cannot read for bad";
  using std::chrono::milliseconds;
  struct Case {
    int size;
    rlim_t files;
    milliseconds patience;
    std::string said;
  };
  // The first has too few for each rank alone. In the second the ranks take them from each other.
  for (const Case& tried : {Case{20, 70, milliseconds(0), "needs at least 76 descriptors"},
                            Case{9, 120, milliseconds(2000), "needs 32 descriptors"}}) {
    Line line;
    child_ = fork();
    ASSERT_GE(child_, 0);
    if (child_ == 0) {
      line.become_child();
      alarm(2 * kLimit.count());
      line.say(join_with_few_files(tried.size, tried.files, tried.patience).substr(0, 4000));
      _exit(0);
    }
    line.become_parent();
    const std::string all = line.hear();
    int status = 0;
    ASSERT_EQ(waitpid(child_, &status, 0), child_);
    child_ = -1;
    EXPECT_NE(all.find(tried.said), std::string::npos) << all;
  }
}

// A caller that knows the name of the socket but is another user is disconnected at once.
TEST_F(ShmProcesses, AnotherUsersCallIsDropped) {
  if (geteuid() != 0) GTEST_SKIP() << "needs to be root, to become another user";
  const auto here = shm::entry().make(context_of(0, bell_));
  const auto never = shm::entry().make(context_of(1, bell_));
  child_ = fork();
  ASSERT_GE(child_, 0);
  if (child_ == 0) {
    line_.become_child();
    if (setuid(65534) != 0) _exit(2);
    const std::string name = shm::Address::parse(here->address())->socket_name();
    sockaddr_un to{};
    to.sun_family = AF_UNIX;
    std::memcpy(to.sun_path + 1, name.data(), name.size());
    const Fd caller(socket(AF_UNIX, SOCK_SEQPACKET, 0));
    const auto bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
    if (connect(caller.get(), reinterpret_cast<const sockaddr*>(&to), bytes) != 0) _exit(3);
    line_.say("called");
    pollfd fd{caller.get(), POLLIN, 0};
    if (poll(&fd, 1, kLimitMs) != 1) _exit(4);
    line_.say("hung up");
    _exit(0);
  }
  line_.become_parent();
  ASSERT_EQ(line_.hear(), "called");
  try {
    here->connect(std::vector<std::string>{here->address(), never->address()},
                  clock_.now() + std::chrono::milliseconds(50));
    FAIL() << "joined with nobody";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::timeout) << error.what();
  }
  EXPECT_EQ(line_.hear(), "hung up");
}

}  // namespace
}  // namespace tutti
