// Communicators that a rank ends itself, and blocking calls that ask whether to go on.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "threads.h"

namespace tutti::test {
namespace {

using namespace std::chrono_literals;

void receive(Communicator& comm, int from, const CallOptions& options = {}) {
  float data = 0;
  comm.recv(std::span(&data, 1), from, 0, options);
}

class Abort : public testing::TestWithParam<const char*> {
 protected:
  // Rank 0 is in `call` when another thread aborts; rank 1 calls nothing until then.
  void ends_in(const std::function<void(Communicator&)>& call) const {
    std::atomic<bool> aborted = false;
    const auto outcomes = run_ranks(2, quick_config(GetParam()), [&](Communicator& comm) {
      if (comm.rank() == 1) {
        while (!aborted) std::this_thread::yield();
        EXPECT_THAT(outcome_of([&] { receive(comm, 0); }), HasSubstr("rank 0 aborted"));
        return;
      }
      std::thread other([&] {
        std::this_thread::sleep_for(20ms);
        comm.abort("enough");
        aborted = true;
      });
      const std::string outcome = outcome_of([&] { call(comm); });
      other.join();
      EXPECT_THAT(outcome, StartsWith("peer_lost: rank 0 aborted the communicator: enough"));
      EXPECT_THAT(outcome_of([&] { comm.barrier(); }), StartsWith("peer_lost: rank 0 aborted"));
      ASSERT_TRUE(comm.failure());
    });
    EXPECT_THAT(outcomes, Each(IsEmpty()));
  }
};

TEST_P(Abort, EndsABlockingCollectiveInAnotherThread) {
  ends_in([](Communicator& comm) { comm.barrier(); });
}

TEST_P(Abort, EndsABlockingReceiveInAnotherThread) {
  ends_in([](Communicator& comm) { receive(comm, 1); });
}

TEST_P(Abort, EndsAnAsynchronousCollectiveThatIsWaitedFor) {
  ends_in([](Communicator& comm) { comm.barrier_async().wait(); });
}

TEST_P(Abort, EndsAnAsynchronousReceiveThatNobodyWaitsFor) {
  ends_in([](Communicator& comm) {
    float data = 0;
    Work work = comm.recv_async(std::span(&data, 1), kAnySource);
    while (!work.done()) std::this_thread::yield();
    work.wait();
  });
}

TEST_P(Abort, LetsADestructorGoThatWouldWaitForPeers) {
  std::vector<float> data(100);  // the call's until its communicator has ended
  const auto outcomes = run_ranks(2, quick_config(GetParam()), [&](Communicator& comm) {
    comm.barrier();
    if (comm.rank() == 0) {
      comm.all_reduce_async(std::span(data));
      comm.abort("no time");
    } else {
      EXPECT_THAT(outcome_of([&] { receive(comm, 0); }), HasSubstr("rank 0 aborted"));
    }
  });
  EXPECT_THAT(outcomes, Each(IsEmpty()));
}

// Asked 3 times before it says so: once before each sleep.
bool interrupted_soon() {
  static std::atomic<int> asked{0};
  return ++asked % 3 == 0;
}

TEST_P(Abort, ABlockingCallThatIsInterruptedEndsBeforeItsDeadline) {
  const std::vector<std::function<void(Communicator&, const CallOptions&)>> calls = {
      [](Communicator& comm, const CallOptions& options) { comm.barrier(options); },
      [](Communicator& comm, const CallOptions& options) { receive(comm, 1, options); },
      [](Communicator& comm, const CallOptions& options) {  // behind one that is pending
        const Work work = comm.barrier_async();
        comm.barrier(options);
      }};
  for (const auto& call : calls) {
    std::atomic<bool> ended = false;
    const auto outcomes = run_ranks(2, quick_config(GetParam()), [&](Communicator& comm) {
      if (comm.rank() == 0) {
        const std::string outcome =
            outcome_of([&] { call(comm, {.interrupted = interrupted_soon}); });
        EXPECT_THAT(outcome, HasSubstr("rank 0 aborted the communicator: interrupted"));
        ended = true;
      }
      while (!ended) std::this_thread::yield();
    });
    EXPECT_THAT(outcomes, Each(IsEmpty()));
  }
}

INSTANTIATE_TEST_SUITE_P(Transports, Abort, testing::Values("local", "shm", "tcp"),
                         [](const auto& tested) { return std::string(tested.param); });

}  // namespace
}  // namespace tutti::test
