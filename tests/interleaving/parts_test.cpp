// Threads meet in single parts of the runtime: pools and queues of operations, pools of sleepers,
// and the worker pool.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "collectives/algorithms/algorithms.h"
#include "common/sync.h"
#include "runtime/engine/wait.h"
#include "runtime/engine/worker_pool.h"
#include "runtime/operation.h"
#include "tests/interleaving/explore.h"
#include "tests/interleaving/world.h"
#include "transport/local/local.h"

namespace tutti::interleaving {
namespace {

TEST(SleeperPool, GivesASleeperToOneThreadAtATime) {
  explore(
      [](Scheduler& scheduler) {
        const Doorbell bell;
        SleeperPool pool;
        std::array<sync::Atomic<const Sleeper*>, 2> taken;
        const auto take = [&](std::size_t self) {
          for (int turn = 0; turn < 3; ++turn) {
            auto sleeper = pool.take(bell.fd(), {});
            taken[self] = sleeper.get();
            scheduler.check(taken[1 - self] != sleeper.get(), "two threads have one sleeper");
            taken[self] = nullptr;
            pool.give_back(std::move(sleeper));
          }
        };
        together({[&] { take(0); }, [&] { take(1); }});
      },
      500);
}

// A thread that waits announces its sleep and looks once more; its peer posts and then rings.
TEST(Sleeper, IsWokenByTheDoorbellOrSeesTheMessage) {
  explore(
      [](Scheduler& scheduler) {
        const Doorbell bell;
        SimulatedClock clock(scheduler);
        Sleepers sleepers;
        sync::Atomic<int> message{0};
        together({[&] {
                    Sleeper sleeper;
                    sleeper.watch(bell.fd());
                    wait(
                        WaitPolicy{2, 0, std::chrono::microseconds{0}}, clock,
                        [&] { return message != 0; }, [] {},
                        [&](auto& last_look) {
                          const Announced announced(sleepers, bell);
                          if (last_look()) return true;
                          sleeper.sleep_until(TimePoint::max(), clock);
                          return false;
                        });
                  },
                  [&] {
                    message.store(1, std::memory_order_release);
                    PeerBell{&sleepers, bell.fd(), false}.after_store();
                  }});
      },
      500);
}

TEST(OperationQueue, KeepsTheOrderOfAThreadThatPushesWhileAnotherPops) {
  explore(
      [](Scheduler& scheduler) {
        constexpr std::size_t kOperations = 5;
        const auto pool = std::make_shared<OperationPool>();
        OperationQueue queue(pool->take(nullptr, {}));
        together({[&] {
                    for (std::size_t count = 1; count <= kOperations; ++count) {
                      PlannedCall call;
                      call.result_bytes = count;
                      queue.push(pool->take(nullptr, std::move(call)));
                    }
                  },
                  [&] {
                    for (std::size_t count = 1; count <= kOperations;) {
                      Operation* const front = queue.front();
                      if (front == nullptr) {
                        sync::yield();
                        continue;
                      }
                      scheduler.check(front->call.result_bytes == count++, "not in order");
                      queue.pop();
                    }
                  }});
      },
      500);
}

// The calling thread takes operations while others give theirs back: none is in use twice.
TEST(OperationPool, GivesNoOperationToTwo) {
  explore(
      [](Scheduler& scheduler) {
        const auto pool = std::make_shared<OperationPool>();
        std::array<OperationRef, 2> given{pool->take(nullptr, {}), pool->take(nullptr, {})};
        together({[&] {
                    std::vector<OperationRef> held;
                    for (int turn = 0; turn < 12; ++turn) {
                      OperationRef taken = pool->take(nullptr, {});
                      for (const OperationRef& other : held)
                        scheduler.check(other.get() != taken.get(), "two have one operation");
                      if (turn % 3 == 2) held.pop_back();
                      held.push_back(std::move(taken));
                    }
                  },
                  [&] { given[0] = {}; }, [&] { given[1] = {}; }});
      },
      500);
}

// The callbacks of an operation run once, whether they are given before or after its end.
TEST(Operation, CallsBackOnceForEachCallback) {
  explore(
      [](Scheduler& scheduler) {
        const auto pool = std::make_shared<OperationPool>();
        const OperationRef operation = pool->take(nullptr, {});
        sync::Atomic<int> calls{0};
        const auto add = [&] { operation->then([&](const Error*) { ++calls; }); };
        together({add, [&] { operation->end(std::nullopt); }, add});
        scheduler.check(operation->done() && calls == 2, "a callback is lost or runs twice");
      },
      500);
}

// A rank of a call in stripes, of which a pool moves all but the first.
struct StripedRank {
  static constexpr std::uint64_t kStripes = 3;
  static constexpr std::size_t kCount = 900, kMessageBytes = 1024;

  StripedRank(const std::shared_ptr<local::Hub>& hub, int rank, const Clock& clock) {
    TransportContext context;
    context.rank = rank;
    context.size = hub->size();
    context.clock = &clock;
    context.data_bytes = 3 * kMessageBytes;
    context.max_message_bytes = context.message_limit = kMessageBytes;
    context.hub = hub;
    context.doorbell = std::make_shared<const Doorbell>();
    transport = local::entry().make(context);
    const std::uint32_t number = algorithm_index("ring");
    const CallSignature call{Collective::all_reduce, DataType::int32, Op::sum, 0, kCount, number};
    const Schedule schedule = algorithms()[number].plan({call.what, rank, hub->size(), 0});
    for (std::uint64_t k = 0; k < kStripes; ++k) {
      auto stripe = std::make_unique<HostProgram>(
          compile(schedule, call, kMessageBytes, false, {k, kStripes}), *transport);
      scratch_bytes = std::max(scratch_bytes, stripe->program.scratch_bytes);
      if (first == nullptr)
        first = std::move(stripe);
      else
        first->others.push_back(std::move(stripe));
    }
    scratch.resize(kStripes * scratch_bytes + 64);
    numbers.assign(kCount, rank + 1);
  }

  void start(Execution& execution, WorkerPool& pool, std::uint32_t operation) {
    buffers.input = reinterpret_cast<const std::byte*>(numbers.data());
    buffers.output = reinterpret_cast<std::byte*>(numbers.data());
    buffers.scratch = scratch.data();
    buffers.extras = &extras;
    execution.start(*first, buffers, operation, ResultStores::cached);
    pool.start(*first, buffers, operation, ResultStores::cached, true);
  }

  std::unique_ptr<Transport> transport;
  std::unique_ptr<HostProgram> first;
  std::size_t scratch_bytes = 0;
  std::vector<std::byte> scratch;
  std::vector<int> numbers;
  CallExtras extras;
  CallBuffers buffers;
};

TEST(WorkerPool, MovesStripesAndCallsBack) {
  explore(
      [](Scheduler& scheduler) {
        const SimulatedClock clock(scheduler);
        const auto hub = std::make_shared<local::Hub>(2);
        std::vector<StripedRank> ranks;
        for (int rank = 0; rank < 2; ++rank) ranks.emplace_back(hub, rank, clock);
        const auto run = [&](StripedRank& rank) {
          sync::Atomic<int> through{0};
          {
            WorkerPool pool([&] { ++through; });
            for (std::uint32_t turn = 0; turn < 2; ++turn) {
              Execution execution;
              rank.start(execution, pool, turn);
              while (!execution.advance()) sync::yield();
              while (!pool.advance()) sync::yield();
            }
          }
          scheduler.check(through == 4, "a worker has not called back");
          scheduler.check(std::count(rank.numbers.begin(), rank.numbers.end(), 6) ==
                              static_cast<std::ptrdiff_t>(StripedRank::kCount),
                          "a sum is wrong");
        };
        together({[&] { run(ranks[0]); }, [&] { run(ranks[1]); }});
      },
      150);
}

// Once stop() returns, no worker touches the buffers, which are freed at once.
TEST(WorkerPool, LetsGoOfTheBuffersWhenItIsStopped) {
  explore(
      [](Scheduler& scheduler) {
        const SimulatedClock clock(scheduler);
        const auto hub = std::make_shared<local::Hub>(2);
        std::vector<StripedRank> ranks;
        for (int rank = 0; rank < 2; ++rank) ranks.emplace_back(hub, rank, clock);
        const auto run = [&](StripedRank& rank) {
          WorkerPool pool([] {});
          Execution execution;
          rank.start(execution, pool, 0);
          for (int turn = 0; turn < 5; ++turn) execution.advance();
          pool.stop();
          std::exchange(rank.numbers, {}).shrink_to_fit();
        };
        together({[&] { run(ranks[0]); }, [&] { run(ranks[1]); }});
      },
      200);
}

}  // namespace
}  // namespace tutti::interleaving
