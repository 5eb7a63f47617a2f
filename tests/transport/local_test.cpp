#include "transport/local/local.h"

#include <gtest/gtest.h>
#include <poll.h>

#include <chrono>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include <tutti/error.hpp>

#include "transport/doorbell.h"
#include "transport/registry.h"

namespace tutti {
namespace {

TransportContext context_of(const std::shared_ptr<local::Hub>& hub, int rank) {
  TransportContext context;
  context.rank = rank;
  context.size = hub->size();
  context.hub = hub;
  return context;
}

TEST(LocalTransport, OneThreadDrivesBothEndsOfAChannel) {
  const auto hub = std::make_shared<local::Hub>(2);
  const auto a = local::entry().make(context_of(hub, 0));
  const auto b = local::entry().make(context_of(hub, 1));
  a->connect({}, TimePoint::max());
  b->connect({}, TimePoint::max());

  const std::string_view text = "a message of more than forty bytes, so in the ring";
  const Span span = a->sender(1, 3).acquire(text.size()).value();
  std::memcpy(span.data, text.data(), text.size());
  a->sender(1, 3).post({7, 8, static_cast<std::uint32_t>(text.size()), 9});

  const Message message = b->receiver(0, 3).peek().value();
  EXPECT_EQ(std::string_view(reinterpret_cast<const char*>(message.data), message.header.length),
            text);
  EXPECT_EQ(message.header, (Header{7, 8, static_cast<std::uint32_t>(text.size()), 9}));
}

TEST(LocalTransport, ConnectNamesTheRanksThatNeverCame) {
  const auto hub = std::make_shared<local::Hub>(3);
  const auto transport = local::entry().make(context_of(hub, 1));
  try {
    transport->connect({}, TimePoint{});
    FAIL() << "connect returned";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::timeout);
    EXPECT_NE(std::string_view(error.what()).find("never came: 0, 2"), std::string_view::npos)
        << error.what();
  }
}

TEST(LocalTransport, TwoThatCallThemselvesTheSameRankAreToldSo) {
  const auto hub = std::make_shared<local::Hub>(2);
  const auto first = local::entry().make(context_of(hub, 1));
  try {
    local::entry().make(context_of(hub, 1));
    FAIL() << "both joined";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::usage);
    EXPECT_NE(std::string_view(error.what()).find("rank 1"), std::string_view::npos);
  }
}

// A simulation depends on this: a ring's payload memory costs nothing until it is touched.
TEST(LocalTransport, AThousandRanksWithAMebibyteOfRingEachAreMadeAndMoveAMessage) {
  constexpr int kRanks = 1000;
  const auto hub = std::make_shared<local::Hub>(kRanks);
  std::vector<std::unique_ptr<Transport>> ranks;
  for (int rank = 0; rank < kRanks; ++rank)
    ranks.push_back(local::entry().make(context_of(hub, rank)));
  for (const auto& rank : ranks) rank->connect({}, TimePoint{});
  for (int rank = 0; rank < kRanks; ++rank) {
    SendChannel& next = ranks[rank]->sender((rank + 1) % kRanks, 0);
    ASSERT_TRUE(next.acquire(8));
    next.post({static_cast<std::uint32_t>(rank), 0, 8, 0});
  }
  for (int rank = 0; rank < kRanks; ++rank) {
    const int previous = (rank + kRanks - 1) % kRanks;
    const auto message = ranks[rank]->receiver(previous, 0).peek();
    ASSERT_TRUE(message);
    EXPECT_EQ(message->header.operation, static_cast<std::uint32_t>(previous));
  }
}

// Peers keep the doorbell of a rank that has gone, because the number of a closed descriptor may be
// in use for something else.
TEST(LocalTransport, ABellCanBeRungAfterItsRankAndItsRuntimeHaveGone) {
  const auto hub = std::make_shared<local::Hub>(2);
  TransportContext context = context_of(hub, 1);
  context.doorbell = std::make_shared<const Doorbell>();
  const auto here = local::entry().make(context_of(hub, 0));
  auto there = local::entry().make(context);
  there->own_status_page().sleepers.add();
  here->connect({}, TimePoint{});
  there.reset();
  context.doorbell.reset();
  const Doorbell stranger;  // It is likely to get the closed descriptor's number.
  here->wake(1);
  pollfd fd{stranger.fd(), POLLIN, 0};
  EXPECT_EQ(poll(&fd, 1, 0), 0);
}

}  // namespace
}  // namespace tutti
