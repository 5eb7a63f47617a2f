// A connection over a fake device whose peer is the test.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "fake_verbs.h"
#include "transport/queue_pair/connection.h"
#include "transport/queue_pair/endpoint.h"

namespace tutti {

/// Connects to the test, which may send anything. `WhichClock` is the clock by which the connection
/// waits; messages have at most `kLongest` bytes.
template <typename WhichClock, std::size_t kLongest>
class RdmaPeerTest : public testing::Test {
 protected:
  void SetUp() override {
    group_.reset();
    connection_ = endpoint_.make_connection();
    group_.emplace(*connection_, context_, 7);
    connection_->add(*group_);
    peer_ = network_.make_device()->make({16, 64, 4}, nullptr);
    for (std::uint32_t i = 0; i < 64; ++i)
      ASSERT_TRUE(peer_->receive(i, {ignored_.data(), qp::kSlotBytes, 0}));
    next_ = 0;
    connection_->open(paths_);
    connection_->queue_pair().connect(peer_->address());
    peer_->connect(connection_->queue_pair().address());
  }
  void pump() {
    std::array<qp::Completion, 8> completions;
    for (int turn = 0; turn < 200; ++turn) {
      connection_->pump();
      peer_->poll(completions);
    }
  }
  void say(std::span<std::byte> bytes) {
    ASSERT_TRUE(peer_->send(0, {bytes.data(), static_cast<std::uint32_t>(bytes.size()), 0}));
    pump();
  }
  void say(qp::Frame frame, std::span<const std::byte> payload) {
    if (frame.kind != qp::FrameKind::room) frame.sequence = next_++;
    std::vector<std::byte> bytes(sizeof frame + payload.size());
    std::memcpy(bytes.data(), &frame, sizeof frame);
    std::copy(payload.begin(), payload.end(), bytes.begin() + sizeof frame);
    say(bytes);
  }
  void say(const qp::Frame& frame, std::size_t payload = 0) {
    say(frame, std::vector<std::byte>(payload));
  }
  void expect_lost(const std::string& why) {
    EXPECT_EQ(connection_->how_ended(), qp::Connection::End::lost);
    EXPECT_THAT(connection_->why_ended(), testing::HasSubstr(why));
  }

  WhichClock clock_;
  qp::fake::Network network_;
  qp::Endpoint endpoint_{2, clock_, {network_.make_device()}};
  StatusPage status_page_{};
  const qp::GroupContext context_{kLongest, &status_page_, -1};
  std::unique_ptr<qp::Connection> connection_;
  std::optional<qp::Group> group_;
  std::unique_ptr<qp::QueuePair> peer_;
  std::uint32_t paths_ = 1;
  std::uint16_t next_ = 0;
  std::vector<std::byte> ignored_ = std::vector<std::byte>(qp::kSlotBytes);
};

}  // namespace tutti
