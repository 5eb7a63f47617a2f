// Tests of communicators that a rank aborts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <exception>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "signs.h"
#include "threads.h"

namespace tutti::test {
namespace {

using namespace std::chrono_literals;

void receive(Communicator& comm, int from) {
  float data = 0;
  comm.recv(std::span(&data, 1), from);
}

// Is asked whether to go on, in the thread of a call that has polled in vain.
thread_local Sign* asked_sign = nullptr;
bool give_sign() {
  asked_sign->give();
  return false;
}

class Abort : public testing::TestWithParam<const char*> {
 protected:
  // Rank 0 is in `call`, which gives a sign once it runs, when another thread aborts. Rank 1 calls
  // nothing until then.
  void ends_in(const std::function<void(Communicator&, Sign&)>& call) const {
    std::atomic<bool> aborted = false;
    Config config = quick_config(GetParam());
    config.spin_polls = 0;  // A thread that waits falls asleep at once.
    const auto outcomes = run_ranks(2, config, [&](Communicator& comm) {
      if (comm.rank() == 1) {
        aborted.wait(false);
        EXPECT_THAT(outcome_of([&] { receive(comm, 0); }), HasSubstr("rank 0 aborted"));
        return;
      }
      Sign called;
      std::thread other([&] {
        called.wait();
        comm.abort("enough");
        aborted = true;
        aborted.notify_one();
      });
      const std::string outcome = outcome_of([&] { call(comm, called); });
      other.join();
      EXPECT_EQ(outcome, "peer_lost: rank 0 aborted the communicator: enough");
      EXPECT_THAT(outcome_of([&] { comm.barrier(); }), StartsWith("peer_lost: rank 0 aborted"));
      ASSERT_TRUE(comm.failure());
    });
    EXPECT_THAT(outcomes, Each(IsEmpty()));
  }

  // Does what ends_in() does, for a call in which its thread falls asleep.
  void ends_asleep_in(const std::function<void(Communicator&)>& call) const {
    ends_in([&](Communicator& comm, Sign& called) {
      Sign calls;
      std::thread watcher([&, caller = gettid()] {
        calls.wait();
        wait_until_asleep(caller);
        called.give();
      });
      calls.give();
      std::exception_ptr thrown;
      try {
        call(comm);
      } catch (...) {
        thrown = std::current_exception();
      }
      watcher.join();
      if (thrown) std::rethrow_exception(thrown);
    });
  }

  // Does what ends_in() does, for a blocking call. Over TCP the thread need not fall asleep,
  // because it may poll the sockets.
  void ends_waiting_in(const std::function<void(Communicator&)>& call) const {
    if (!over_network(GetParam())) return ends_asleep_in(call);
    ends_in([&](Communicator& comm, Sign& called) {
      asked_sign = &called;
      const Interruptible interruptible(give_sign);
      call(comm);
    });
  }
};

TEST_P(Abort, EndsABlockingCollectiveInAnotherThread) {
  ends_waiting_in([](Communicator& comm) { comm.barrier(); });
}

TEST_P(Abort, EndsABlockingReceiveInAnotherThread) {
  ends_waiting_in([](Communicator& comm) { receive(comm, 1); });
}

TEST_P(Abort, EndsAnAsynchronousCollectiveThatIsWaitedFor) {
  if (!over_network(GetParam()))
    return ends_asleep_in([](Communicator& comm) { comm.barrier_async().wait(); });
  ends_in([](Communicator& comm, Sign& called) {
    Work work = comm.barrier_async();
    called.give();
    work.wait();
  });
}

TEST_P(Abort, EndsAnAsynchronousReceiveThatNobodyWaitsFor) {
  ends_in([](Communicator& comm, Sign& called) {
    float data = 0;
    Work work = comm.recv_async(std::span(&data, 1), kAnySource);
    called.give();
    while (!work.done()) std::this_thread::yield();
    work.wait();
  });
}

TEST_P(Abort, LetsADestructorGoThatWouldWaitForPeers) {
  // The call uses it until its communicator has ended.
  std::vector<float> data(100);
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

INSTANTIATE_TEST_SUITE_P(Transports, Abort, testing::ValuesIn(and_ucx({"local", "shm", "tcp"})),
                         [](const auto& tested) { return std::string(tested.param); });

// Another communicator's thread reads the connection meanwhile.
TEST_P(Abort, NothingIsWrittenToABufferOnceItsReceiveHasEnded) {
  constexpr std::size_t kBytes = 4 << 20;
  constexpr int kRounds = 60;
  const auto outcomes = run_ranks(2, quick_config(GetParam()), [](Communicator& comm) {
    Communicator busy = comm.dup();
    std::atomic<bool> stop = false;
    std::thread other([&, rank = comm.rank()] {
      for (float last = 0; last == 0;) {
        last = rank == 0 && stop ? 1 : 0;
        busy.all_reduce(std::span(&last, 1));
      }
    });
    std::vector<std::byte> data(kBytes);
    for (int round = 0; round < kRounds; ++round) {
      Communicator ended = comm.dup();
      std::fill(data.begin(), data.end(), std::byte{0x77});
      comm.barrier();
      if (comm.rank() == 0) {
        outcome_of([&] { ended.send_async(data.data(), kBytes, DataType::uint8, 1, 0).wait(); });
      } else {
        std::thread aborting([&] {
          std::this_thread::sleep_for(std::chrono::microseconds(200 + round * 37 % 2000));
          ended.abort("enough");
        });
        const std::string outcome = outcome_of(
            [&] { ended.recv_async(data.data(), kBytes, DataType::uint8, 0, 0).wait(); });
        if (!outcome.empty()) std::fill(data.begin(), data.end(), std::byte{0x11});
        aborting.join();
        comm.barrier();  // what was on its way arrives before this
        EXPECT_TRUE(outcome.empty() || std::count(data.begin(), data.end(), std::byte{0x11}) ==
                                           static_cast<std::ptrdiff_t>(kBytes))
            << "round " << round << ": " << outcome;
      }
      if (comm.rank() == 0) comm.barrier();
    }
    stop = true;
    other.join();
  });
  EXPECT_THAT(outcomes, Each(IsEmpty()));
}

}  // namespace
}  // namespace tutti::test
