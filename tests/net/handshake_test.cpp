// Tests of the handshake over a socket pair: authentication, TLS, and the bytes that follow.
#include "net/handshake.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <array>
#include <optional>
#include <string>

#include "common/random.h"

namespace tutti::net {
namespace {

using Caller = Handshake<AuthInitiator>;
using Callee = Handshake<AuthAcceptor>;

class Shaking : public testing::TestWithParam<bool> {
 protected:
  void make(const std::string& first = "0123456789abcdef",
            const std::string& second = "0123456789abcdef") {
    std::array<int, 2> ends{};
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends.data()), 0);
    const Claim claim{Claim::Purpose::data, 3, 5, 0x4711, GetParam()};
    const auto tls = GetParam() ? std::make_shared<const TlsContext>() : nullptr;
    caller_.emplace(Fd(ends[0]), AuthInitiator(Secret(first), claim, random_), tls);
    callee_.emplace(Fd(ends[1]), AuthAcceptor(Secret(second), claim, random_), tls);
  }
  void run() {
    for (int turn = 0; turn < 10; ++turn) {
      caller_->advance();
      callee_->advance();
    }
  }
  template <typename End>
  static std::string hear(End& end) {
    EXPECT_TRUE(end.connection().receive());
    return std::string(end.connection().received());
  }

  SystemRandom random_;
  std::optional<Caller> caller_;
  std::optional<Callee> callee_;
};

TEST_P(Shaking, EndsDoneAtBothEndsAndLeavesWhatFollows) {
  make();
  run();
  ASSERT_EQ(caller_->state(), Caller::State::done);
  ASSERT_EQ(callee_->state(), Callee::State::done);
  EXPECT_EQ(callee_->proof().initiator(), 3u);
  EXPECT_EQ(caller_->connection().stream().tls() != nullptr, GetParam());
  caller_->connection().queue("first words");
  EXPECT_TRUE(caller_->connection().flush());
  EXPECT_EQ(hear(*callee_), "first words");
}

TEST_P(Shaking, SaysAtBothEndsThatTheSecretIsAnother) {
  make("0123456789abcdef", "fedcba9876543210");
  run();
  EXPECT_EQ(caller_->state(), Caller::State::failed);
  EXPECT_EQ(caller_->proof().failure(), AuthFailure::wrong_secret);
  EXPECT_EQ(caller_->why(), describe(AuthFailure::wrong_secret));
  EXPECT_EQ(callee_->state(), Callee::State::failed);
  EXPECT_FALSE(callee_->has_proved());
}

TEST_P(Shaking, FailsWhereTheOtherEndCloses) {
  make();
  caller_->advance();
  callee_.reset();
  caller_->advance();
  caller_->advance();
  EXPECT_EQ(caller_->state(), Caller::State::failed);
  EXPECT_EQ(caller_->why(), "closed the connection");
}

INSTANTIATE_TEST_SUITE_P(Over, Shaking, testing::Bool(),
                         [](const auto& tls) { return tls.param ? "tls" : "plain"; });

}  // namespace
}  // namespace tutti::net
