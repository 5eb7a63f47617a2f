// Tests of calls that end because the program is interrupted.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "common/fd.h"
#include "processes.h"
#include "signs.h"
#include "threads.h"

namespace tutti::test {
namespace {

using namespace std::chrono_literals;

// Returns true at the third call; it is called once before each sleep.
bool interrupted_soon() {
  static std::atomic<int> asked{0};
  return ++asked % 3 == 0;
}
bool interrupt() { return true; }

// Returns true once the thread that is asked has come as far as to wait for others.
std::chrono::steady_clock::time_point waits_from;
bool interrupted_while_it_waits() { return std::chrono::steady_clock::now() >= waits_from; }

Sign* asked_sign = nullptr;
bool give_sign() {
  asked_sign->give();
  return false;
}

float data = 0;
void receive(Communicator& comm) { comm.recv(std::span(&data, 1), 1); }

class Interrupted : public testing::TestWithParam<const char*> {};

TEST_P(Interrupted, ACallThatWaitsEndsBeforeItsDeadline) {
  const std::vector<std::function<void(Communicator&)>> calls = {
      [](Communicator& comm) { comm.barrier(); },
      receive,
      [](Communicator& comm) {  // A blocking call behind a pending one.
        const Work work = comm.barrier_async();
        comm.barrier();
      },
      [](Communicator& comm) { comm.barrier_async().wait(); },
      [](Communicator& comm) { Communicator part = comm.dup(); },
      [](Communicator& comm) { comm.barrier_init().run(); },
      [](Communicator& comm) {
        Group group;
        comm.recv(std::span(&data, 1), 1, 0, {.group = &group});
        group.end();
      }};
  for (const auto& call : calls) {
    std::atomic<bool> ended = false;
    const auto outcomes = run_ranks(2, quick_config(GetParam()), [&](Communicator& comm) {
      if (comm.rank() == 0) {
        const std::string outcome = outcome_of([&] {
          const Interruptible interruptible(interrupted_soon);
          call(comm);
        });
        EXPECT_THAT(outcome, HasSubstr("rank 0 aborted the communicator: interrupted"));
        ended = true;
        ended.notify_one();
      }
      ended.wait(false);
    });
    EXPECT_THAT(outcomes, Each(IsEmpty()));
  }
}

TEST_P(Interrupted, TheEndOfACommunicatorDoesNotWaitForItsCalls) {
  std::atomic<bool> ended = false;
  Sign pending;
  const auto outcomes = run_ranks(2, quick_config(GetParam()), [&](Communicator& comm) {
    if (comm.rank() == 0) {
      std::optional<Error> error;
      comm.barrier_async().then([&](const Error* its) { error = *its; });
      {
        const Interruptible interruptible(interrupted_soon);
        const Communicator dying = std::move(comm);
      }
      EXPECT_THAT(error.value().what(), HasSubstr("interrupted"));
      ended = true;
      ended.notify_one();
    }
    ended.wait(false);
  });
  EXPECT_THAT(outcomes, Each(IsEmpty()));
}

INSTANTIATE_TEST_SUITE_P(Transports, Interrupted,
                         testing::ValuesIn(and_ucx({"local", "shm", "tcp"})),
                         [](const auto& tested) { return std::string(tested.param); });

/// Makes one rank of three in the calling thread.
std::string outcome_of_start(const std::shared_ptr<Store>& store, int rank) {
  return outcome_of([&] { Communicator::create(store, rank, 3, quick_config("shm")); });
}

// Rank 0 never comes.
TEST(Interruption, AStartEndsAndIsToldToTheRanksThatWait) {
  const std::string ticket = serve_store(quick_config());
  const auto soon = std::chrono::steady_clock::now() + 20s;
  const auto connected = [&] { return connect_store(ticket, soon, quick_config()); };
  const auto shared = std::make_shared<MemoryStore>();
  for (const auto& [first, second] :
       {std::pair<std::shared_ptr<Store>, std::shared_ptr<Store>>(shared, shared),
        {connected(), connected()}}) {
    std::string other;
    std::thread waits([&, store = second] { other = outcome_of_start(store, 2); });
    std::string outcome;
    {
      waits_from = std::chrono::steady_clock::now() + 500ms;
      const Interruptible interruptible(interrupted_while_it_waits);
      outcome = outcome_of_start(first, 1);
    }
    EXPECT_THAT(outcome, AllOf(StartsWith("peer_lost: "), HasSubstr("interrupted")));
    waits.join();
    EXPECT_THAT(other,
                AllOf(StartsWith("peer_lost: "), HasSubstr("rank 1"), HasSubstr("interrupted")));
  }
}

TEST(Interruption, WaitsAtAStoreEnd) {
  const std::string ticket = serve_store(quick_config());
  const auto soon = std::chrono::steady_clock::now() + 20s;
  const std::vector<std::shared_ptr<Store>> stores{std::make_shared<MemoryStore>(),
                                                   connect_store(ticket, soon, quick_config())};
  for (const auto& store : stores) {
    const Interruptible interruptible(interrupted_soon);
    EXPECT_THAT(outcome_of([&] { store->get("never", soon); }),
                AllOf(StartsWith("peer_lost: "), HasSubstr("interrupted")));
  }
  const Interruptible interruptible(interrupted_soon);
  EXPECT_THAT(outcome_of([&] {
                static_cast<void>(connect_store(ticket_at("127.0.0.1:9", soon, quick_config()),
                                                soon, quick_config()));
              }),
              StartsWith("peer_lost: "));
}

// The file is locked by somebody else meanwhile, as by another rank that is slow.
TEST(Interruption, AFileStoreIsLeftAllTheSame) {
  const std::string path = "/tmp/tutti-test-" + std::to_string(getpid()) + "-interrupted";
  Config config = quick_config();
  config.store = "file://" + path;
  set_environment(0, 1, 1);
  std::optional<Communicator> comm(Communicator::from_env(config));
  const Fd file(open(path.c_str(), O_RDWR | O_CLOEXEC));
  struct flock whole {};
  whole.l_type = F_WRLCK;
  ASSERT_EQ(fcntl(file.get(), F_OFD_SETLK, &whole), 0);
  std::thread unlocks([&] {
    std::this_thread::sleep_for(200ms);
    whole.l_type = F_UNLCK;
    fcntl(file.get(), F_OFD_SETLK, &whole);
  });
  {
    const Interruptible interruptible(interrupt);
    comm.reset();
  }
  unlocks.join();
  EXPECT_NE(access(path.c_str(), F_OK), 0) << "the last rank removes it";
}

// Ranks decide a change of membership together.
TEST(Interruption, AShrinkEndsWithItsPatience) {
  std::atomic<bool> ended = false;
  const auto outcomes = run_ranks(2, quick_config("shm"), [&](Communicator& comm) {
    if (comm.rank() == 0) {
      const Interruptible interruptible(interrupt);
      const Communicator alone = comm.shrink(300ms);
      EXPECT_EQ(alone.size(), 1);
      ended = true;
      ended.notify_one();
    }
    ended.wait(false);
  });
  EXPECT_THAT(outcomes, Each(IsEmpty()));
}

TEST(Interruption, TheLastInterruptibleOfTheThreadCounts) {
  Sign question;
  asked_sign = &question;
  std::atomic<bool> ended = false;
  const auto outcomes = run_ranks(2, quick_config("shm"), [&](Communicator& comm) {
    if (comm.rank() == 1) {
      question.wait();
      comm.barrier();
      return ended.wait(false);
    }
    const Interruptible outer(interrupt);
    {
      const Interruptible inner(give_sign);
      comm.barrier();
    }
    EXPECT_THAT(outcome_of([&] { receive(comm); }), HasSubstr("interrupted"));
    ended = true;
    ended.notify_one();
  });
  EXPECT_THAT(outcomes, Each(IsEmpty()));
}

}  // namespace
}  // namespace tutti::test
