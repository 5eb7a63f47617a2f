#include "transport/shm/shm.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <thread>

#include "transport/registry.h"

namespace tutti {
namespace {

TEST(ShmTransport, RanksJoinAndARingIsHandedOverWhenItIsFirstUsed) {
  SteadyClock clock;
  SystemRandom random;
  std::vector<std::unique_ptr<Transport>> ranks;
  std::vector<std::string> addresses;
  for (int rank = 0; rank < 3; ++rank) {
    TransportContext context;
    context.rank = rank;
    context.size = 3;
    context.clock = &clock;
    context.random = &random;
    ranks.push_back(make_transport("shm", context));
    addresses.push_back(ranks.back()->address());
  }
  std::vector<std::thread> threads;
  for (auto& rank : ranks)
    threads.emplace_back([&] { rank->connect(addresses, clock.now() + std::chrono::seconds(5)); });
  for (auto& thread : threads) thread.join();
  SendChannel& s = ranks[2]->sender(0, 3);
  auto span = s.acquire(1000).value();
  std::memset(span.data, 7, 1000);
  s.post({1, 2, 1000, 0});
  RecvChannel& r = ranks[0]->receiver(2, 3);
  EXPECT_FALSE(r.peek());
  ranks[0]->progress();
  EXPECT_EQ(r.peek().value().data[999], std::byte{7});
  ranks[1].reset();
  EXPECT_EQ(ranks[0]->status(1).state, PeerStatus::State::closed);
}

}  // namespace
}  // namespace tutti
