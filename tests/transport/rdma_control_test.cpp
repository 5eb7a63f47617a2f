// Tests what a peer may say over the control connection once the first path works.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <array>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tutti/error.hpp>

#include "common/bytes.h"
#include "rdma_peer.h"
#include "transport/queue_pair/introduction.h"

namespace tutti {
namespace {

using qp::Frame;
using qp::FrameKind;
using qp::Note;

constexpr std::size_t kMax = 100'000;  // several slots
constexpr std::uint32_t kSecond = qp::Path::kFirst + 1;

/// A peer whose other end of the control connection is the test, and with which there shall be four
/// paths.
class RdmaControl : public RdmaPeerTest<SteadyClock, kMax> {
 protected:
  RdmaControl() { paths_ = 4; }
  void TearDown() override {
    if (connection_ != nullptr) connection_->remove(*group_);
  }
  /// `leads` says that the connection proposes paths.
  void talk(bool leads) {
    std::array<int, 2> ends{};
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends.data()), 0);
    theirs_ = Fd(ends[1]);
    connection_->add_control(qp::Control(net::Stream(Fd(ends[0]))), 1, leads, 1);
  }
  void tell(Note::Step step, std::uint32_t path, std::string_view text = {}) {
    Note note;
    note.step = step;
    note.path = path;
    note.port = 0;
    note.text_bytes = static_cast<std::uint32_t>(text.size());
    const std::string all = std::string(bytes_of(note)).append(text);
    ASSERT_EQ(send(theirs_.get(), all.data(), all.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(all.size()));
  }
  /// Returns the text of the next note, which is about the second path.
  std::string told(Note::Step step) {
    Note note;
    EXPECT_EQ(recv(theirs_.get(), &note, sizeof note, 0), static_cast<ssize_t>(sizeof note));
    EXPECT_EQ(note.step, step);
    EXPECT_EQ(note.path, kSecond);
    std::string text(note.text_bytes, '\0');
    EXPECT_EQ(recv(theirs_.get(), text.data(), text.size(), 0), static_cast<ssize_t>(text.size()));
    return text;
  }
  /// Returns the peer's end of the second path.
  std::unique_ptr<qp::QueuePair> pair() {
    auto made = network_.make_device()->make({16, 64, 4}, nullptr);
    for (std::uint32_t i = 0; i < 64; ++i)
      EXPECT_TRUE(made->receive(i, {ignored_.data(), qp::kSlotBytes, 0}));
    return made;
  }

  Fd theirs_;
};

TEST_F(RdmaControl, APeerThatSaysAgainAndAgainThatAPathIsConnectedIsLost) {
  talk(false);
  const auto theirs = pair();
  tell(Note::Step::address, kSecond, theirs->address());
  for (std::uint32_t n = 0; n < 2 * qp::kSendSlots; ++n) tell(Note::Step::connected, kSecond);
  connection_->read_control();
  expect_lost("makes no sense");
}

TEST_F(RdmaControl, APeerThatAnswersAProposalTwiceIsLost) {
  talk(true);
  connection_->pump();
  const auto theirs = pair();
  theirs->connect(told(Note::Step::address));
  for (int n = 0; n < 2; ++n) tell(Note::Step::address, kSecond, theirs->address());
  connection_->read_control();
  expect_lost("makes no sense");
}

TEST_F(RdmaControl, APathThatFailsWhileThePeerGivesUpAnotherLeavesTheControlConnection) {
  talk(false);
  auto theirs = pair();
  tell(Note::Step::address, kSecond, theirs->address());
  tell(Note::Step::connected, kSecond);
  connection_->read_control();
  const std::uint64_t own = network_.last_pair();
  theirs->connect(told(Note::Step::address));
  for (const std::uint32_t further : {kSecond + 1, kSecond + 2})
    tell(Note::Step::address, further, peer_->address());
  connection_->read_control();
  // This end has not heard yet that the path works, so it owes room for all that the peer sends.
  peer_.swap(theirs);
  Frame frame;
  frame.kind = FrameKind::room;
  say(frame);
  frame.kind = FrameKind::credit;
  for (std::uint32_t n = 0; n < qp::slots_of_path(paths_).receives; ++n) say(frame);
  network_.fail_pair(own);
  network_.refuse_requests();
  tell(Note::Step::heard, kSecond);
  tell(Note::Step::lost, qp::Path::kFirst);
  connection_->read_control();
  EXPECT_EQ(connection_->how_ended(), qp::Connection::End::none);
  EXPECT_EQ(connection_->paths_used(), "TCP");
}

// A thread posts a message that the socket takes in part, and sleeps.
TEST_F(RdmaControl, WhatTheSocketDidNotTakeIsAnnouncedToAThreadThatSleeps) {
  connection_->postpone(1);
  talk(false);
  qp::Connection& connection = *connection_;
  const int least = 1;
  ASSERT_EQ(setsockopt(connection.control_fd(), SOL_SOCKET, SO_SNDBUF, &least, sizeof least), 0);
  endpoint_.add_peer(1, std::move(connection_));
  qp::Sender& out = group_->channel(0).sender;
  constexpr std::size_t kBytes = 3 * qp::kPartBytes;
  ASSERT_TRUE(connection.acquire(out, kBytes));
  connection.post(out, {1, 2, kBytes, 0});
  endpoint_.arm();
  std::array<char, 4096> some{};
  while (recv(theirs_.get(), some.data(), some.size(), 0) > 0) continue;
  pollfd asleep{endpoint_.wait_fd(), POLLIN, 0};
  EXPECT_EQ(poll(&asleep, 1, 5000), 1) << "the rest of the message is not sent";
  endpoint_.disarm();
  connection.remove(*group_);
}

/// A device that is this process, as UCX is.
struct ProcessDevice final : qp::Device {
  std::unique_ptr<qp::QueuePair> make(const qp::QueueLimits&, void*) override {
    return std::make_unique<qp::ControlPair>(nowhere);
  }
  const char* name() const noexcept override { return "UCX"; }
  std::string port() const override { return "process"; }
  bool is_up() const noexcept override { return true; }
  int event_fd() const noexcept override { return events.get(); }
  void take_events(std::vector<void*>&) override {}

  qp::Control nowhere{net::Stream()};
  Fd events{eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)};
};

TEST(RdmaIntroduction, APeerThatPutsOffThePathOfADeviceThatCannotIsRefused) {
  SteadyClock clock;
  qp::Endpoint endpoint(2, clock, {std::make_shared<ProcessDevice>()});
  std::array<int, 2> ends{};
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends.data()), 0);
  const Fd theirs(ends[1]);
  qp::Introduction introduction(endpoint.make_connection(), "", net::Stream(Fd(ends[0])));
  Note note;
  note.path = qp::Path::kControl;
  ASSERT_EQ(send(theirs.get(), &note, sizeof note, 0), static_cast<ssize_t>(sizeof note));
  EXPECT_THROW(introduction.advance(clock.now()), Error);
}

}  // namespace
}  // namespace tutti
