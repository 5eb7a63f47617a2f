// Tests of bytes that change on their way between two ranks: which error each rank of the job gets.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <barrier>
#include <functional>

#include "misled.h"
#include "threads.h"

namespace tutti::test {
namespace {

/// Runs three ranks over TCP. A process in the middle can change a byte that rank 1 and another
/// exchange.
class Damage : public testing::TestWithParam<bool> {
 protected:
  /// Runs `body` on each rank with its communicator, once all have entered a barrier, and returns
  /// how it ends.
  Outcomes run(const std::function<void(Communicator&)>& body) {
    Config config = quick_config("tcp");
    config.timeout = config.startup_timeout = std::chrono::minutes(10);  // No rank waits so long.
    (GetParam() ? config.tls : config.checksum) = true;
    Outcomes outcomes(3);
    std::vector<std::thread> threads;
    for (int rank = 0; rank < 3; ++rank)
      threads.emplace_back([&, rank] {
        outcomes[static_cast<std::size_t>(rank)] = outcome_of([&] {
          const std::shared_ptr<Store> own = rank == 1 ? std::shared_ptr<Store>(misled_) : store_;
          Communicator comm = Communicator::create(own, rank, 3, config);
          comm.barrier();
          body(comm);
        });
      });
    for (std::thread& thread : threads) thread.join();
    return outcomes;
  }

  const std::shared_ptr<MemoryStore> store_ = std::make_shared<MemoryStore>();
  const std::shared_ptr<Misled> misled_ = std::make_shared<Misled>(store_);
};
INSTANTIATE_TEST_SUITE_P(All, Damage, testing::Bool(), [](const auto& with) {
  return std::string(with.param ? "WithTls" : "WithChecksums");
});

TEST_P(Damage, IsToldToEveryRankWithItsKindTheRanksAndTheOperation) {
  const Outcomes outcomes = run([&](Communicator& comm) {
    if (comm.rank() == 1)
      misled_->middle().flip(false, 50'000);  // The byte is on the way to rank 2.
    std::vector<float> data(200'000, 1);
    for (;;) comm.all_reduce(std::span(data));
  });
  for (const std::string& outcome : outcomes)
    EXPECT_THAT(outcome, AllOf(StartsWith("corrupt"), HasSubstr("all_reduce"), HasSubstr("#"),
                               HasSubstr("Do not use the results")));
  // With TLS both ends notice it, and rank 2 may first be notified of it by rank 1.
  const bool reported = outcomes[2].find("what comes from rank 1") != std::string::npos ||
                        (GetParam() && outcomes[2].find("rank 1 has failed") != std::string::npos);
  EXPECT_TRUE(reported) << outcomes[2];
}

// Nothing more is received over the connection that was damaged.
TEST_P(Damage, IsFollowedByAShrinkThatConnectsAnew) {
  const Outcomes outcomes = run([&](Communicator& comm) {
    if (comm.rank() == 1) misled_->middle().flip(false, 50'000);
    std::vector<float> data(200'000, 1);
    const std::string failed = outcome_of([&] {
      for (;;) comm.all_reduce(std::span(data));
    });
    EXPECT_THAT(failed, StartsWith("corrupt"));
    // This is too short for an attempt over the damaged connection, and another one.
    Communicator again = comm.shrink(std::chrono::seconds(3));
    std::fill(data.begin(), data.end(), 1.0f);
    again.all_reduce(std::span(data));
    EXPECT_EQ(again.size(), 3);
    EXPECT_EQ(std::count(data.begin(), data.end(), 3.0f), 200'000);
    again.barrier();
  });
  EXPECT_THAT(outcomes, Each(IsEmpty()));
}

// The page that says so arrives before the damage, which the attempt to join over the connection
// finds.
TEST_P(Damage, AfterAnAbortIsFollowedByAShrinkThatConnectsAnewAtOnce) {
  std::barrier all_failed(3);
  const Outcomes outcomes = run([&](Communicator& comm) {
    if (comm.rank() == 1) comm.abort("the program's own reason");
    outcome_of([&] {
      for (;;) comm.barrier();
    });
    all_failed.arrive_and_wait();
    if (comm.rank() == 1) misled_->middle().flip(false, 40);
    all_failed.arrive_and_wait();
    // This is too short for an attempt that waits in vain, and another one.
    Communicator again = comm.shrink(std::chrono::seconds(3));
    std::vector<int> data(20'000, 1);
    again.all_reduce(std::span(data));
    EXPECT_THAT(data, AllAre(3));
    again.barrier();
  });
  EXPECT_THAT(outcomes, Each(IsEmpty()));
  EXPECT_TRUE(misled_->has_flipped());
}

}  // namespace
}  // namespace tutti::test
