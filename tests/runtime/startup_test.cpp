// Tests of what a start of many ranks costs each of them.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>

#include "../rendezvous/counting_store.h"
#include "allocations.h"
#include "runtime/communicator_impl.h"
#include "runtime/membership/setup.h"
#include "threads.h"

namespace tutti::test {
namespace {

/// Starts ranks of one process, each in a thread, which meet through a store.
class Startup : public testing::Test {
 protected:
  struct Cost {
    int most_calls = 0;  // The most calls of the store by one rank.
    std::size_t bytes_a_rank = 0;
  };

  // A rank has a doorbell and a place to sleep, which are two descriptors.
  static void SetUpTestSuite() {
    rlimit files{};
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
  }

  static Cost start(int size) {
    MemoryStore store;
    std::vector<std::shared_ptr<CountingStore>> counting;
    for (int rank = 0; rank < size; ++rank)
      counting.push_back(std::make_shared<CountingStore>(store));
    const auto ranks = static_cast<std::size_t>(size);
    std::vector<CommunicatorParts> parts(ranks);
    std::vector<std::thread> threads;
    Outcomes outcomes(ranks);

    const std::uint64_t before = allocated_bytes();
    const Process process{std::make_shared<Runtime>(quick_config()),
                          std::make_shared<local::Hub>(size)};
    for (std::size_t rank = 0; rank < ranks; ++rank)
      threads.emplace_back([&, rank] {
        outcomes[rank] = outcome_of(
            [&] { parts[rank] = join_threads(counting[rank], static_cast<int>(rank), process); });
      });
    for (std::thread& thread : threads) thread.join();
    std::vector<Communicator> communicators;
    for (CommunicatorParts& one : parts)
      communicators.push_back(CommunicatorImpl::make(std::move(one)));
    const std::uint64_t bytes = allocated_bytes() - before;

    EXPECT_THAT(outcomes, Each(IsEmpty()));
    Cost cost;
    for (const auto& rank : counting) cost.most_calls = std::max(cost.most_calls, rank->calls);
    cost.bytes_a_rank = bytes / ranks;
    return cost;
  }
};

TEST_F(Startup, OfHundredsOfRanksCostsEachALogarithmOfMessagesAndAsMuchMemoryAsOfFew) {
  constexpr int kFew = 64, kMany = 512, kLogarithm = 9;
  const Cost few = start(kFew), many = start(kMany);
  EXPECT_LE(many.most_calls, kLogarithm + 5);
  EXPECT_LE(many.bytes_a_rank, 96u << 10);
  // Four bytes for each other rank, and what differs from run to run, since lists grow by doubling.
  constexpr int kNoise = 256;
  EXPECT_LE(many.bytes_a_rank, few.bytes_a_rank + (kMany - kFew) * 4 + kNoise);
}

TEST_F(Startup, OfRanksThatDifferIsRefusedOnEachOfThem) {
  constexpr int kRanks = 5;
  MemoryStore store;
  const auto hub = std::make_shared<local::Hub>(kRanks);
  Outcomes outcomes(kRanks);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kRanks; ++rank)
    threads.emplace_back([&, rank] {
      Config config = quick_config();
      if (rank == 3) config.ring_bytes = 1 << 20;
      const Process process{std::make_shared<Runtime>(config), hub};
      outcomes[static_cast<std::size_t>(rank)] =
          outcome_of([&] { join_threads(std::make_shared<CountingStore>(store), rank, process); });
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(outcomes, Each(AllOf(StartsWith("mismatch"), HasSubstr("rank 3: "))));
}

// UCX takes long to open, and warns where it goes over TCP.
TEST(StartupOverUcx, OpensItOnceOnEachRank) {
  if (!ucx::is_built()) GTEST_SKIP() << "this build has no UCX";
  std::atomic<int> opened = 0;
  Config config = quick_config("ucx");
  config.log_sink = [&](LogLevel, std::string_view line) {
    if (line.find("UCX goes over TCP") != line.npos) ++opened;
  };
  const auto store = std::make_shared<MemoryStore>();
  Outcomes outcomes(2);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank)
    threads.emplace_back([&, rank] {
      outcomes[static_cast<std::size_t>(rank)] =
          outcome_of([&] { Communicator::create(store, rank, 2, config).barrier(); });
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(outcomes, Each(IsEmpty()));
  EXPECT_EQ(opened, 2);
}

}  // namespace
}  // namespace tutti::test
