// Tests what one rank takes from a peer in shared memory, which may be hostile: the peer's end is
// the test's own socket.
#include "transport/shm/peer.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include <array>
#include <limits>
#include <optional>
#include <span>
#include <vector>

#include <tutti/error.hpp>

#include "transport/ring/ring.h"
#include "transport/shm/packet.h"

namespace tutti::shm {
namespace {

class ShmPeer : public testing::Test {
 protected:
  ShmPeer() {
    std::array<int, 2> ends{};
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()), 0);
    theirs_.reset(ends[1]);
    status_page_ = make_memory(sizeof(StatusPage), Access::read, "a board");
    Link link;
    link.socket.reset(ends[0]);
    link.status_page.reset(dup(status_page_.fd.get()));
    context_.size = 2;
    peer_.emplace(context_, 1, std::move(link), epoll_, lent_, allowance_);
  }

  // The fields are those of Peer::HandOver.
  static constexpr std::int32_t kStatusPage = -1, kRegister = -2, kTakeBack = -3, kLeave = -4;
  struct Offer {
    std::uint64_t magic = 0x7475747469726e67;
    std::uint64_t bytes = 0;
    std::uint32_t group = 0;
    std::int32_t number = 0;
    std::uint64_t segment = 0;
  };

  void hand_over(const Offer& offer, const Fd* memory) {
    const int fd = memory != nullptr ? memory->get() : -1;
    ASSERT_EQ(send_packet(theirs_, offer, std::span(&fd, memory != nullptr ? 1 : 0)), Sent::done);
  }

  // The peer hands over its status page in `group`, or leaves it.
  void say(std::uint32_t group, std::int32_t what) {
    const bool page = what == kStatusPage;
    hand_over({.bytes = page ? sizeof(StatusPage) : 0, .group = group, .number = what},
              page ? &status_page_.fd : nullptr);
    peer_->handle_event(Peer::Source::socket);
  }

  void expect_corrupt() {
    try {
      peer_->handle_event(Peer::Source::socket);
      FAIL() << "it was believed";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::corrupt);
      EXPECT_THAT(error.what(), testing::HasSubstr("rank 1"));
    }
  }

  // Returns group `id` of both ranks, with rings of the same size as those of group 0.
  Subset subset(std::uint32_t id) const {
    Subset subset;
    subset.members = {0, 1};
    subset.numbers = {id, id};
    subset.data_bytes = context_.data_bytes;
    subset.max_message_bytes = 64;
    return subset;
  }

  TransportContext context_;
  Fd epoll_{epoll_create1(EPOLL_CLOEXEC)};
  Fd theirs_;
  Memory status_page_;
  Segments lent_;
  Allowance allowance_;
  std::optional<Peer> peer_;
};

TEST_F(ShmPeer, WhatComesForAGroupIsDroppedOnceThisRankHasLeftItUntilThePeerHas) {
  constexpr std::uint32_t kGroup = 12;
  const Memory own = make_memory(sizeof(StatusPage), Access::read, "a board");
  peer_->add_group(kGroup, subset(kGroup), own.fd.get(), lent_);
  peer_->leave_group(kGroup);
  say(kGroup, kStatusPage);
  EXPECT_EQ(peer_->status_page(kGroup), nullptr);
  say(kGroup, kLeave);
  say(kGroup, kStatusPage);  // It comes from another group that got the same id.
  EXPECT_NE(peer_->status_page(kGroup), nullptr);
}

TEST_F(ShmPeer, ThatItHasLeftAGroupWhichThisRankMakesLateIsStillSeenOnItsStatusPage) {
  constexpr std::uint32_t kGroup = 12;
  say(kGroup, kStatusPage);
  static_cast<StatusPage*>(status_page_.mapping.data())->close();
  say(kGroup, kLeave);
  const Memory own = make_memory(sizeof(StatusPage), Access::read, "a board");
  peer_->add_group(kGroup, subset(kGroup), own.fd.get(), lent_);
  ASSERT_NE(peer_->status_page(kGroup), nullptr);
  EXPECT_EQ(peer_->status(kGroup).state, PeerStatus::State::closed);
  peer_->leave_group(kGroup);
  EXPECT_EQ(peer_->status_page(kGroup), nullptr);
}

TEST_F(ShmPeer, OfGroupsThatThisRankNeverMakesTheOldestAreForgotten) {
  constexpr std::uint32_t kGroups = 2000;
  for (std::uint32_t id = 1; id <= kGroups; ++id) say(id, kStatusPage);
  EXPECT_EQ(peer_->status_page(1), nullptr);
  EXPECT_NE(peer_->status_page(kGroups), nullptr);
  EXPECT_NE(peer_->status_page(0), nullptr) << "the first group is known";
}

TEST_F(ShmPeer, GarbageInPlaceOfARingIsCorrupt) {
  const std::uint64_t garbage = 12345;
  ASSERT_EQ(send(theirs_.get(), &garbage, sizeof garbage, 0), 8);
  expect_corrupt();
}

TEST_F(ShmPeer, ARingOfTheRightShapeIsTakenOnceOnly) {
  const Offer offer{.bytes = context_.data_bytes, .number = 3};
  hand_over(offer, nullptr);
  expect_corrupt();  // The packet has no descriptor.
  const Memory ring = make_memory(RingMemory::bytes(context_.data_bytes), Access::write, "a ring");
  hand_over(offer, &ring.fd);
  peer_->handle_event(Peer::Source::socket);
  EXPECT_NE(peer_->receiver(0, 3).ring(), nullptr);
  hand_over(offer, &ring.fd);
  expect_corrupt();
}

TEST_F(ShmPeer, ARingOnAChannelThatCannotBeIsCorrupt) {
  const Memory ring = make_memory(RingMemory::bytes(context_.data_bytes), Access::write, "a ring");
  for (const std::int32_t number : {-5, std::numeric_limits<std::int32_t>::min(), kMostChannel + 1,
                                    std::numeric_limits<std::int32_t>::max()}) {
    hand_over({.bytes = context_.data_bytes, .number = number}, &ring.fd);
    expect_corrupt();
  }
}

// The sum of this number and the size of a ring's own record wraps to 4096.
TEST_F(ShmPeer, ARingWhoseSizeWrapsAnIntegerIsCorruptWhetherOrNotItsGroupIsMade) {
  const Memory page = make_memory(4096, Access::write, "a ring");
  constexpr std::uint32_t kGroup = 12;
  say(kGroup, kStatusPage);
  for (const std::uint32_t group : {0u, kGroup}) {
    hand_over({.bytes = 4096 - RingMemory::bytes(0), .group = group}, &page.fd);
    expect_corrupt();
  }
}

TEST_F(ShmPeer, NothingButAStatusPageIsTakenForAGroupThatThisRankHasNotMade) {
  constexpr std::uint32_t kGroup = 12;
  say(kGroup, kStatusPage);
  const Memory ring = make_memory(RingMemory::bytes(context_.data_bytes), Access::write, "a ring");
  hand_over({.bytes = context_.data_bytes, .group = kGroup}, &ring.fd);
  expect_corrupt();
  hand_over({.bytes = ring.mapping.bytes(), .group = kGroup, .number = kRegister, .segment = 1},
            &ring.fd);
  expect_corrupt();
  hand_over({.group = kGroup, .number = kTakeBack, .segment = 1}, nullptr);
  expect_corrupt();
}

TEST_F(ShmPeer, ARingThatThisRankMayNotWriteIsCorrupt) {
  const Memory ring = make_memory(RingMemory::bytes(context_.data_bytes), Access::read, "a ring");
  hand_over({.bytes = context_.data_bytes}, &ring.fd);
  expect_corrupt();
}

TEST_F(ShmPeer, ASegmentWithoutBytesIsCorrupt) {
  const Fd empty(memfd_create("empty", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(fcntl(empty.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW), 0);
  hand_over({.number = kRegister, .segment = 1}, &empty);
  expect_corrupt();
}

TEST_F(ShmPeer, TheEndOfTheConnectionIsALossUnlessTheStatusPageSaysGoodbye) {
  EXPECT_EQ(peer_->status(0).state, PeerStatus::State::alive);
  theirs_.reset();
  peer_->handle_event(Peer::Source::socket);
  EXPECT_EQ(peer_->status(0).state, PeerStatus::State::lost);
  static_cast<StatusPage*>(status_page_.mapping.data())->close();
  EXPECT_EQ(peer_->status(0).state, PeerStatus::State::closed);
}

}  // namespace
}  // namespace tutti::shm
