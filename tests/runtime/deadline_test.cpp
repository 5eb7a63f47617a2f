// Tests of the moment from which deadlines run, with a clock that the test advances.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>

#include "runtime/communicator_impl.h"
#include "runtime/membership/setup.h"
#include "threads.h"

namespace tutti::test {
namespace {

using namespace std::chrono_literals;

class JumpingClock final : public Clock {
 public:
  TimePoint now() const override { return std::chrono::steady_clock::now() + ahead_.load(); }
  void jump(Nanoseconds by) { ahead_ = ahead_.load() + by; }

 private:
  std::atomic<Nanoseconds> ahead_{0ns};
};

using Start = std::function<Work(Communicator&, float& data, const CallOptions&)>;

struct Form {
  const char* name;
  Start start;
};

class QueuedCall : public testing::TestWithParam<Form> {};

// Rank 0 queues two calls. More time than the second one has passes before rank 1 makes the first
// one.
TEST_P(QueuedCall, HasItsTimeFromWhenItBeginsAndNotFromWhenItWasQueued) {
  const auto store = std::make_shared<MemoryStore>();
  const auto hub = std::make_shared<local::Hub>(2);
  std::atomic<int> may_make = 0;  // The number of calls that rank 1 may make.
  const auto join = [&](int rank, JumpingClock*& clock) {
    auto own = std::make_unique<JumpingClock>();
    clock = own.get();
    Config config = quick_config();
    config.stall = 0ms;
    const Process process{
        std::make_shared<Runtime>(config, std::move(own), std::make_unique<SystemRandom>()), hub};
    return CommunicatorImpl::make(join_threads(store, rank, process));
  };
  std::thread peer([&] {
    EXPECT_EQ(outcome_of([&] {
                JumpingClock* clock = nullptr;
                Communicator comm = join(1, clock);
                for (int made = 1; made <= 2; ++made) {
                  while (may_make < made) std::this_thread::yield();
                  float data = 2;
                  comm.all_reduce(&data, &data, 1, DataType::f32, Op::sum);
                }
              }),
              "");
  });
  EXPECT_EQ(outcome_of([&] {
              JumpingClock* clock = nullptr;
              Communicator comm = join(0, clock);
              float first = 1, second = 1;
              Work before =
                  comm.all_reduce_async(&first, &first, 1, DataType::f32, Op::sum, {.timeout = 1h});
              Work queued = GetParam().start(comm, second, {.timeout = 10s});
              clock->jump(1min);
              may_make = 1;
              before.wait();
              for (int look = 0; look < 3; ++look)  // Each wait is at its deadline as it begins.
                EXPECT_THAT(outcome_of([&] { queued.wait(0ms); }),
                            StartsWith("timeout: the operation had not ended"));
              may_make = 2;
              queued.wait();
              EXPECT_EQ(first, 3);
              EXPECT_EQ(second, 3);
            }),
            "");
  may_make = 2;
  peer.join();
}

const Form kForms[] = {
    {"asynchronous",
     [](Communicator& comm, float& data, const CallOptions& options) {
       return comm.all_reduce_async(&data, &data, 1, DataType::f32, Op::sum, options);
     }},
    {"persistent",
     [](Communicator& comm, float& data, const CallOptions& options) {
       return comm.all_reduce_init(&data, &data, 1, DataType::f32, Op::sum, options).start();
     }},
    {"group",
     [](Communicator& comm, float& data, CallOptions options) {
       Group group;
       options.group = &group;
       comm.all_reduce(&data, &data, 1, DataType::f32, Op::sum, options);
       return group.end_async();
     }},
};

INSTANTIATE_TEST_SUITE_P(Of, QueuedCall, testing::ValuesIn(kForms),
                         [](const auto& tested) { return std::string(tested.param.name); });

}  // namespace
}  // namespace tutti::test
