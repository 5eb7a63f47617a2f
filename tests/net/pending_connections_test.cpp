// Tests of the limits on pending connections, and of which one is closed when there are too many.
#include "net/pending_connections.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <stdexcept>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "net/local_socket.h"

namespace tutti::net {
namespace {

using std::chrono::milliseconds;

// A pending connection. Its peer sends "p" to authenticate, "j" to join, "x" to be closed, and "!"
// to make the owner throw.
struct Guest {
  Fd socket;
  bool proved = false;

  int fd() const noexcept { return socket.get(); }
  bool has_proved() const noexcept { return proved; }
};

class Pending : public testing::Test {
 protected:
  Pending() { EXPECT_TRUE(listener_); }

  Fd call() const { return std::move(connect_local(name_).socket); }
  void call_all(int count) {
    for (int i = 0; i < count; ++i) callers_.push_back(call());
  }
  static void say(const Fd& caller, char letter) { EXPECT_EQ(write(caller.get(), &letter, 1), 1); }
  bool accept() {
    return pending_.accept(listener_, now_,
                           [](Fd socket) { return std::optional(Guest{std::move(socket)}); });
  }
  /// Whether the other end has closed the connection.
  static bool is_cut(const Fd& caller) {
    char byte = 0;
    return read(caller.get(), &byte, 1) == 0;
  }

  bool hear(Guest& guest) {
    char letter = 0;
    const ssize_t got = read(guest.fd(), &letter, 1);
    if (got < 0) return true;
    if (letter == '!') throw std::runtime_error("no memory");
    if (letter == 'p') guest.proved = true;
    if (letter == 'j') joined_.push_back(std::move(guest.socket));
    return got == 1 && letter == 'p';
  }

  const std::string name_ = fmt::format("tutti-test-pending-{}", getpid());
  const Fd listener_ = listen_local(name_);
  TimePoint now_{};
  std::vector<Fd> joined_;
  PendingConnections<Guest> pending_{
      {.expected = 2, .unauthenticated = 3, .patience = milliseconds(100)},
      [this](Guest& guest) { return hear(guest); }};
  std::vector<Fd> callers_;
};

TEST_F(Pending, CutsTheOldestWhereOneTooManyComes) {
  call_all(7);
  EXPECT_TRUE(accept());
  EXPECT_EQ(pending_.size(), 5u);
  for (std::size_t i = 0; i < callers_.size(); ++i) EXPECT_EQ(is_cut(callers_[i]), i < 2) << i;
}

TEST_F(Pending, NeverCutsWhoHasProvedItselfWhateverComesAfter) {
  call_all(2);
  for (const Fd& caller : callers_) say(caller, 'p');
  EXPECT_TRUE(accept());
  call_all(20);
  EXPECT_TRUE(accept());
  now_ += milliseconds(1000);
  pending_.close_expired(now_);
  for (std::size_t i = 0; i < callers_.size(); ++i) EXPECT_EQ(is_cut(callers_[i]), i >= 2) << i;
  EXPECT_FALSE(pending_.next_deadline());
}

TEST_F(Pending, TakesNoMoreForProvedThanItExpects) {
  call_all(5);
  for (const Fd& caller : callers_) say(caller, 'p');
  EXPECT_TRUE(accept());
  call_all(1);
  EXPECT_TRUE(accept());
  EXPECT_TRUE(is_cut(callers_[2])) << "the third of those who say that they are one of two";
  EXPECT_FALSE(is_cut(callers_[0]) || is_cut(callers_[1]));
}

TEST_F(Pending, HearsWhatTheOldestHasSaidBeforeItIsCut) {
  call_all(5);
  EXPECT_TRUE(accept());
  say(callers_[0], 'j');
  say(callers_[1], 'p');
  call_all(2);
  EXPECT_TRUE(accept());
  EXPECT_EQ(joined_.size(), 1u);
  EXPECT_FALSE(is_cut(callers_[0]) || is_cut(callers_[1]));
  EXPECT_TRUE(is_cut(callers_[2]));
}

TEST_F(Pending, CutsWhoStaysTooLongTheOldestFirst) {
  call_all(1);
  EXPECT_TRUE(accept());
  EXPECT_EQ(pending_.next_deadline(), now_ + milliseconds(100));
  now_ += milliseconds(60);
  call_all(1);
  EXPECT_TRUE(accept());
  now_ += milliseconds(40);
  pending_.close_expired(now_);
  EXPECT_TRUE(is_cut(callers_[0]));
  EXPECT_FALSE(is_cut(callers_[1]));
  EXPECT_EQ(pending_.next_deadline(), now_ + milliseconds(60));
}

TEST_F(Pending, ForgetsAGuestThatLeavesOrMakesItsOwnerThrow) {
  call_all(3);
  EXPECT_TRUE(accept());
  say(callers_[0], 'x');
  say(callers_[1], '!');
  EXPECT_THROW(pending_.serve_all(), std::runtime_error);
  EXPECT_EQ(pending_.size(), 1u);
  EXPECT_TRUE(is_cut(callers_[0]) && is_cut(callers_[1]));
  EXPECT_FALSE(is_cut(callers_[2]));
}

}  // namespace
}  // namespace tutti::net
