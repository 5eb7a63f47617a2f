// Tests of Work: its callbacks, and the allocations of calls.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sched.h>
#include <unistd.h>

#include <atomic>
#include <future>
#include <optional>
#include <stdexcept>

#include "allocations.h"
#include "asleep.h"
#include "common/random.h"
#include "processes.h"
#include "runtime/communicator_impl.h"
#include "runtime/membership/setup.h"
#include "threads.h"
#include "transport/local/local.h"

namespace tutti::test {
namespace {

using namespace std::chrono_literals;

class Works : public testing::TestWithParam<const char*> {
 protected:
  // Runs `body` on two ranks and expects that it ends without an error.
  void on_two_ranks(const std::function<void(Communicator&)>& body) const {
    EXPECT_THAT(run_ranks(2, quick_config(GetParam()), body), Each(IsEmpty()));
  }
};

TEST_P(Works, CallbacksHaveRunInOrderWhenTheWorkIsDone) {
  on_two_ranks([](Communicator& comm) {
    std::vector<float> data(1000, 1);
    std::vector<int> order;
    Work work = comm.all_reduce_async(std::span(data));
    for (int k = 0; k < 2; ++k)
      work.then([&, k](const Error* error) {
        EXPECT_EQ(error, nullptr);
        order.push_back(k);
      });
    work.wait();
    EXPECT_THAT(order, ElementsAre(0, 1));
    comm.barrier();
  });
}

TEST_P(Works, ACallbackOfADoneWorkRunsAtOnce) {
  on_two_ranks([](Communicator& comm) {
    Work work = comm.barrier_async();
    work.wait();
    bool called = false;
    work.then([&](const Error* error) { called = error == nullptr; });
    EXPECT_TRUE(called);
    called = false;
    Work().then([&](const Error* error) { called = error == nullptr; });
    EXPECT_TRUE(called);
  });
}

TEST_P(Works, ACallbackMayStartTheNextCallAndMustNotWait) {
  on_two_ranks([](Communicator& comm) {
    std::vector<float> first(100, 1);
    std::vector<float> second(100, 2);
    std::int32_t sign = 0;
    // Rank 1 takes part once rank 0 has a callback: the call is not done before.
    if (comm.rank() == 1) {
      comm.recv(std::span(&sign, 1), 0);
      comm.all_reduce(std::span(first));
      comm.all_reduce(std::span(second));
      return;
    }
    Work next;
    std::string waited;
    std::string blocked;
    Work work = comm.all_reduce_async(std::span(first));
    std::atomic<bool> called = false;
    work.then([&](const Error*) {
      blocked = outcome_of([&] { comm.barrier(); });
      next = comm.all_reduce_async(std::span(second));
      waited = outcome_of([&] { next.wait(); });
      called = true;
    });
    comm.send(std::span(&sign, 1), 1);
    work.wait();
    EXPECT_TRUE(called);
    EXPECT_THAT(waited, StartsWith("usage: a callback"));
    EXPECT_THAT(blocked, StartsWith("usage: a callback"));
    next.wait();
    EXPECT_THAT(second, AllAre(4.0F));
  });
}

// The test runs in a process of its own, which an alarm ends if its background thread waits for
// itself.
TEST_P(Works, ACallbackInTheBackgroundMayStartTheFirstCallOfAnotherCommunicator) {
  Processes process(1, [&](int) {
    alarm(10);
    on_two_ranks([](Communicator& comm) {
      Communicator other = comm.dup(), signs = comm.dup();
      float sum = 1;
      std::int32_t called = 0;
      std::promise<Work> next;
      // No thread waits for the work, so the background thread completes it.
      if (comm.rank() == 0) {
        comm.barrier_async().then([&](const Error*) {
          next.set_value(other.all_reduce_async(&sum, &sum, 1, DataType::f32, Op::sum));
        });
        signs.send(std::span(&called, 1), 1);
        next.get_future().get().wait();
      } else {
        signs.recv(std::span(&called, 1), 0);
        comm.barrier();
        other.all_reduce(&sum, &sum, 1, DataType::f32, Op::sum);
      }
      EXPECT_EQ(sum, 2);
    });
    if (testing::Test::HasFailure()) throw Error(ErrorKind::internal, "a rank failed");
  });
  EXPECT_EQ(process.outcome(0), "");
}

TEST_P(Works, ACallbackMayDestroyItsCommunicatorAndOthers) {
  for (int round = 0; round < 20; ++round)
    on_two_ranks([](Communicator& comm) {
      auto own = std::make_shared<std::optional<Communicator>>(comm.dup());
      auto other = std::make_shared<std::optional<Communicator>>(comm.dup());
      Work work = (*own)->barrier_async();
      work.then([own, other](const Error*) {
        own->reset();
        other->reset();
      });
      while (!work.done()) std::this_thread::yield();
      work.wait();
      comm.barrier();
    });
}

// The call used memory of the communicator that was gone.
TEST(WorksInTheBackground, ACommunicatorThatACallbackDestroysBesideABlockingCallEndsAfterThatCall) {
  const Call barrier{{Collective::barrier}, nullptr, nullptr, {}, {}};
  for (int round = 0; round < 50; ++round) {
    std::vector<Communicator> ranks = Communicator::in_process(2, quick_config());
    std::optional<Communicator> dying = std::move(ranks[0]);
    CommunicatorImpl& impl = CommunicatorImpl::of(*dying);
    std::atomic<bool> destroyed = false;
    impl.call_async(barrier).then([&](const Error*) {
      // Until the thread is in its call, a callback could destroy the communicator before that.
      for (std::string why; why.find("a call of this communicator is under way") == why.npos;)
        why = outcome_of([&] { impl.begin_destruction(); });
      dying.reset();
      destroyed = true;
    });
    std::thread peer([&] {
      ranks[1].barrier();
      while (!destroyed) std::this_thread::yield();
      ranks[1].barrier();
    });
    impl.call(barrier);
    peer.join();
  }
}

// The last call of the group ends in the other communicator, whose thread runs the callback.
TEST_P(Works, ACallbackOfAGroupMayDestroyAnyCommunicatorOfIt) {
  on_two_ranks([](Communicator& comm) {
    std::optional<Communicator> first = comm.dup();
    std::optional<Communicator> second = comm.dup();
    std::int32_t got = 0;
    Group group;
    first->barrier({.group = &group});
    second->recv(std::span(&got, 1), comm.rank(), 0, {.group = &group});
    Work all = group.end_async();
    std::promise<void> destroyed;
    all.then([&](const Error*) {
      first.reset();
      destroyed.set_value();
    });
    comm.barrier();
    const std::int32_t sent = 7;
    second->send(std::span(&sent, 1), comm.rank());
    destroyed.get_future().wait();
    all.wait();
    EXPECT_EQ(got, sent);
  });
}

TEST_P(Works, TheLongestWaitIsNoTimeoutOfThePast) {
  on_two_ranks([](Communicator& comm) {
    Work work = comm.barrier_async();
    work.wait(std::chrono::milliseconds::max());
    CallOptions options;
    options.timeout = std::chrono::milliseconds::max();
    EXPECT_THAT(outcome_of([&] { comm.barrier(options); }),
                AllOf(StartsWith("usage: "), HasSubstr("more than 24 hours")));
    std::int32_t value = 0;
    EXPECT_THAT(outcome_of([&] { comm.recv(std::span(&value, 1), 0, 0, options); }),
                AllOf(StartsWith("usage: "), HasSubstr("more than 24 hours")));
  });
}

TEST_P(Works, WhatACallbackThrowsIsLoggedAndIgnored) {
  Config config = quick_config(GetParam());
  std::mutex mutex;
  std::string log;
  config.log_sink = [&](LogLevel, std::string_view line) {
    const std::lock_guard lock(mutex);
    log += line;
  };
  EXPECT_THAT(run_ranks(2, config,
                        [](Communicator& comm) {
                          Work work = comm.barrier_async();
                          work.then([](const Error*) { throw std::runtime_error("lost my way"); });
                          work.then([](const Error*) { throw 7; });
                          work.wait();
                          work.then([](const Error*) { throw std::runtime_error("too late"); });
                          comm.barrier();
                        }),
              Each(IsEmpty()));
  const std::lock_guard lock(mutex);
  EXPECT_THAT(log, AllOf(HasSubstr("lost my way"), HasSubstr("too late")));
}

TEST_P(Works, CallbacksGetTheErrorThatEndedTheCall) {
  Config config = quick_config(GetParam());
  config.timeout = 300ms;
  std::atomic<int> reported = 0;
  std::atomic<bool> over = false;
  run_ranks(2, config, [&](Communicator& comm) {
    if (comm.rank() == 1) return over.wait(false);
    Work first = comm.barrier_async();
    Work behind = comm.barrier_async();
    for (Work* work : {&first, &behind})
      work->then([&](const Error* error) { reported += error->kind() == ErrorKind::timeout; });
    EXPECT_THAT(outcome_of([&] { first.wait(); }), StartsWith("timeout: "));
    EXPECT_THAT(outcome_of([&] { behind.wait(); }), StartsWith("timeout: "));
    over = true;
    over.notify_one();
  });
  EXPECT_EQ(reported, 2);
}

TEST_P(Works, OutliveTheirCommunicator) {
  Work kept;
  on_two_ranks([&](Communicator& comm) {
    Work work = comm.barrier_async();
    if (comm.rank() == 0) kept = work;
  });
  EXPECT_TRUE(kept.done());
  kept.wait();
}

/// Keeps this thread, and the threads that it starts, on one processor.
class OneProcessor {
 public:
  OneProcessor() {
    EXPECT_EQ(sched_getaffinity(0, sizeof before_, &before_), 0);
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(static_cast<unsigned>(sched_getcpu()), &one);
    EXPECT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
  }
  ~OneProcessor() { sched_setaffinity(0, sizeof before_, &before_); }
  OneProcessor(const OneProcessor&) = delete;
  OneProcessor& operator=(const OneProcessor&) = delete;

 private:
  cpu_set_t before_;
};

/// Returns a communicator whose background thread runs only while no other thread wants the
/// processor.
Communicator idle_in_background(const Config& config) {
  const sched_param none{};
  EXPECT_EQ(sched_setscheduler(0, SCHED_IDLE, &none), 0);
  std::vector<Communicator> comms = Communicator::in_process(1, config);
  EXPECT_EQ(sched_setscheduler(0, SCHED_OTHER, &none), 0);
  return std::move(comms.front());
}

// The background thread notifies this thread, is preempted by it at each ring of the bell, and only
// later declares that nothing is pending.
TEST(WorksInTheBackground, TheCommunicatorsEndIsWokenByItsLastOperation) {
  const OneProcessor here;
  for (int round = 0; round < 10; ++round) {
    Communicator comm = idle_in_background(quick_config("local"));
    std::promise<void> ended;
    comm.barrier_async().then([&](const Error*) { ended.set_value(); });
    ended.get_future().wait();
  }
}

TEST(WorksInTheBackground, ACallbackThatIsGivenWhileAnotherRunsComesAfterIt) {
  Communicator comm = std::move(Communicator::in_process(1).front());
  std::int32_t got = 0;
  const std::int32_t sent = 7;
  std::promise<void> running;
  std::promise<void> go_on;
  std::vector<int> order;
  Work work = comm.recv_async(std::span(&got, 1), 0);
  work.then([&](const Error*) {
    running.set_value();
    go_on.get_future().wait();
    order.push_back(1);
  });
  comm.send_async(std::span(&sent, 1), 0);
  running.get_future().wait();
  work.then([&](const Error*) { order.push_back(2); });
  go_on.set_value();
  work.wait();
  EXPECT_THAT(order, ElementsAre(1, 2));
}

TEST(WorksInTheBackground, WhatACallbackOfADoneWorkThrowsIsIgnoredWhereTheCommunicatorIsGone) {
  std::optional<Communicator> comm = std::move(Communicator::in_process(1).front());
  Work work = comm->barrier_async();
  work.wait();
  EXPECT_NO_THROW(work.then([&](const Error*) {
    comm.reset();
    throw std::runtime_error("too late");
  }));
}

/// The steady clock, which holds one thread when it asks for the time.
class KeepingClock final : public Clock {
 public:
  TimePoint now() const override {
    if (std::this_thread::get_id() == kept_.load()) {
      inside_ = true;
      inside_.notify_all();
      open_.wait(false);
    }
    return SteadyClock().now();
  }
  void keep_this_thread() { kept_ = std::this_thread::get_id(); }
  void await_it() const { inside_.wait(false); }
  void open() {
    open_ = true;
    open_.notify_all();
  }

 private:
  std::atomic<std::thread::id> kept_;
  mutable std::atomic<bool> inside_ = false;
  std::atomic<bool> open_ = false;
};

// A thread that waits advances the communicator: it is inside when the operation ends, and for a
// while after.
TEST(WorksInTheBackground, TheCommunicatorsEndWaitsForAThreadThatWaitsForItsWork) {
  auto clock = std::make_unique<KeepingClock>();
  KeepingClock& kept = *clock;
  const auto runtime = std::make_shared<Runtime>(quick_config("local"), std::move(clock),
                                                 std::make_unique<SystemRandom>());
  std::optional<Communicator> comm = CommunicatorImpl::make(
      join_threads(std::make_shared<MemoryStore>(), 0, {runtime, std::make_shared<local::Hub>(1)}));
  std::int32_t got = 0;
  const std::int32_t sent = 7;
  Work work = comm->recv_async(std::span(&got, 1), 0);
  // The operation has begun once the one that is queued behind it has ended. From then on no thread
  // asks for the time under a lock.
  std::int32_t behind = 0;
  Work next = comm->recv_async(std::span(&behind, 1), 0, 1);
  comm->send(std::span(&sent, 1), 0, 1);
  next.wait();
  std::thread waiter([&] {
    kept.keep_this_thread();
    EXPECT_EQ(outcome_of([&] { work.wait(); }), "");
  });
  kept.await_it();
  comm->send(std::span(&sent, 1), 0);
  while (!work.done()) std::this_thread::yield();

  std::atomic<pid_t> ending = 0;
  std::atomic<bool> ended = false;
  std::thread end([&] {
    ending = gettid();
    comm.reset();
    ended = true;
  });
  EXPECT_TRUE(falls_asleep(ending, ended)) << "the communicator is gone";
  kept.open();
  waiter.join();
  end.join();
  EXPECT_EQ(got, sent);
}

// The waiter of the first call begins the second one, and is held when it reads the time from which
// the second's timeout runs. Meanwhile the background thread, which the end of the first call has
// woken, goes back to sleep, for short times while another thread owns the engine.
TEST(WorksInTheBackground, ACallThatAWaiterBeginsAndNobodyWaitsForEndsAtItsDeadline) {
  for (std::atomic<bool> by_waiter = false; !by_waiter;) {
    auto clock = std::make_unique<KeepingClock>();
    KeepingClock& kept = *clock;
    Config config = quick_config("local");
    config.spin_polls = 1'000'000;  // These are for the waiter.
    const Process process{
        std::make_shared<Runtime>(config, std::move(clock), std::make_unique<SystemRandom>()),
        std::make_shared<local::Hub>(2)};
    const auto store = std::make_shared<MemoryStore>();
    std::optional<Communicator> peer;
    std::thread joins([&] { peer = CommunicatorImpl::make(join_threads(store, 1, process)); });
    Communicator comm = CommunicatorImpl::make(join_threads(store, 0, process));
    joins.join();

    std::atomic<pid_t> background = 0;
    std::int32_t got = 0;
    const std::int32_t sent = 7;
    Work to_itself = comm.recv_async(std::span(&got, 1), 0);
    to_itself.then([&](const Error*) { background = gettid(); });
    comm.send_async(std::span(&sent, 1), 0);
    while (!to_itself.done()) std::this_thread::yield();

    float data = 1;
    std::atomic<bool> ended = false;
    Work first = comm.barrier_async();
    Work second =
        comm.all_reduce_async(&data, &data, 1, DataType::f32, Op::sum, {.timeout = 100ms});
    std::promise<void> go;
    std::thread waiter([&] {
      go.get_future().wait();
      EXPECT_EQ(outcome_of([&] { first.wait(); }), "");
    });
    first.then([&, waits = waiter.get_id()](const Error*) {
      by_waiter = std::this_thread::get_id() == waits;
      if (by_waiter) kept.keep_this_thread();
      ended = !by_waiter;
    });
    go.set_value();
    peer->barrier();
    while (!by_waiter && !ended) std::this_thread::yield();
    if (by_waiter) {
      kept.await_it();
      while (state_of(background) != 'S') std::this_thread::yield();
      kept.open();
    }
    waiter.join();
    while (!second.done()) std::this_thread::yield();
    EXPECT_THAT(outcome_of([&] { second.wait(); }), StartsWith("timeout: "));
  }
}

// The thread that ended the work must leave messages to the thread that calls.
TEST_P(Works, BlockingMessagesMayFollowADoneWorkAtOnce) {
  on_two_ranks([](Communicator& comm) {
    for (std::int32_t round = 0; round < 300; ++round) {
      const Work work = comm.barrier_async();
      while (!work.done()) std::this_thread::yield();
      std::int32_t value = round;
      if (comm.rank() == 0) comm.send(std::span(&value, 1), 1);
      if (comm.rank() == 1) comm.recv(std::span(&value, 1), 0);
      EXPECT_EQ(value, round);
    }
  });
}

TEST_P(Works, NoCallAllocatesInTheSteadyState) {
  on_two_ranks([](Communicator& comm) {
    std::vector<float> data(5000, 0);
    Persistent sum =
        comm.all_reduce_init(data.data(), data.data(), data.size(), DataType::f32, Op::sum);
    const auto round = [&] {
      comm.all_reduce(std::span(data));
      sum.run();
      Work a = comm.all_reduce_async(std::span(data));
      Work b = sum.start();
      Work c = comm.barrier_async();
      c.then([](const Error*) {});
      c.wait();
      b.wait();
      a.wait();
    };
    EXPECT_EQ(steady_state_allocations(comm, round), 0u);
  });
}

TEST_P(Works, SendsReceivesAndGroupsAllocateNothingInTheSteadyState) {
  on_two_ranks([](Communicator& comm) {
    std::vector<float> small(2, 1), large(10'000, 1), out(10'000);
    const int peer = 1 - comm.rank();
    Group group;
    const auto round = [&] {
      // All messages that arrive before it matches are kept.
      Work later = comm.recv_async(std::span(out), peer, 1);
      comm.send(std::span(small), peer, 0);
      comm.send(std::span(small), peer, 1);
      comm.recv(std::span(out), kAnySource, 0);
      later.wait();
      comm.send(std::span(large), peer, 2, {.group = &group});
      comm.recv(std::span(out), peer, 2, {.group = &group});
      group.end();
    };
    for (int k = 0; k < 17; ++k) comm.send(std::span(small), peer, k / 16);
    // Here 16 messages are kept.
    for (int k = 16; k >= 0; --k) comm.recv(std::span(out), peer, k / 16);
    for (int k = 0; k < 2; ++k) comm.barrier();  // This makes the rings of the barrier.
    // These are more operations at a time than the rounds can have.
    std::vector<Work> many;
    for (int k = 0; k < 8; ++k) many.push_back(comm.recv_async(std::span(out), peer, 3));
    for (int k = 0; k < 8; ++k) comm.send(std::span(small), peer, 3);
    for (Work& work : many) work.wait();
    EXPECT_EQ(steady_state_allocations(comm, round), 0u);
  });
}

INSTANTIATE_TEST_SUITE_P(Over, Works, testing::Values("local", "shm"));

}  // namespace
}  // namespace tutti::test
