// Tests calls of a communicator in which another thread is in a call.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <functional>
#include <initializer_list>
#include <optional>
#include <span>
#include <thread>
#include <utility>

#include "tests/common/errors.h"
#include "threads.h"

namespace tutti::test {
namespace {

class SecondThread : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Over, SecondThread, testing::ValuesIn(and_ucx({"local", "shm", "tcp"})));

// Keeps the call that reduces under way until another thread has done what it wants to do
// meanwhile.
struct Meanwhile {
  std::atomic<bool> inside{false}, done{false};

  static void add(const void* in, void* inout, std::size_t count, void* meanwhile) {
    auto& its = *static_cast<Meanwhile*>(meanwhile);
    its.inside = true;
    while (!its.done) std::this_thread::yield();
    for (std::size_t i = 0; i < count; ++i)
      static_cast<int*>(inout)[i] += static_cast<const int*>(in)[i];
  }
};

// Runs `second` on rank 0 in another thread, while the first is in an all-reduce of the
// communicator. `before` is called on that rank before the all-reduce begins.
void call_meanwhile(const char* transport, const std::function<void(Communicator&)>& before,
                    const std::function<void(Communicator&)>& second) {
  Meanwhile meanwhile;
  const auto run_second = [&](Communicator& comm) {
    while (!meanwhile.inside) std::this_thread::yield();
    second(comm);
    meanwhile.done = true;
  };
  EXPECT_THAT(run_ranks(2, quick_config(transport),
                        [&](Communicator& comm) {
                          std::thread other;
                          if (comm.rank() == 0) {
                            before(comm);
                            other = std::thread([&] { run_second(comm); });
                          }
                          const UserReduction sum{"sum", sizeof(int), Meanwhile::add, &meanwhile};
                          int value = comm.rank() + 1;
                          CallOptions options;
                          options.reduction = &sum;
                          options.algorithm = "one_shot";
                          comm.all_reduce(&value, &value, 1, DataType::int8, Op::sum, options);
                          if (other.joinable()) other.join();
                          EXPECT_EQ(value, 3);
                          comm.barrier_async().wait();
                        }),
              Each(IsEmpty()));
}

using Function = std::function<void()>;

void expect_refused(std::initializer_list<std::pair<const char*, Function>> calls) {
  for (const auto& [name, call] : calls)
    EXPECT_THAT(message_of(ErrorKind::usage, call),
                AllOf(StartsWith(name), HasSubstr("another thread is in a call")));
}

TEST_P(SecondThread, ACallOfASecondThreadIsRefusedAndTheFirstGoesOn) {
  call_meanwhile(
      GetParam(), [](Communicator&) {},
      [](Communicator& comm) {
        using namespace std::chrono_literals;
        int value = 0;
        const std::span<int> values(&value, 1);
        const int other = 1 - comm.rank();
        expect_refused({
            {"barrier", [&] { comm.barrier(); }},
            {"barrier", [&] { comm.barrier_async(); }},
            {"barrier", [&] { comm.barrier_init(); }},
            {"send", [&] { comm.send(values, other); }},
            {"recv", [&] { comm.recv_async(values, other); }},
            {"recv", [&] { comm.recv_init(&value, 1, DataType::int32, other, 0); }},
            {"split", [&] { comm.split(0); }},
            {"split", [&] { comm.dup(); }},
            {"shrink", [&] { comm.shrink(1s); }},
            {"shrink", [&] { comm.shrink_without(std::array{other}, 1s); }},
            {"grow", [&] { comm.grow(1, 1s); }},
            {"agree", [&] { comm.agree(0, 1s); }},
            {"Buffer::allocate", [&] { Buffer::allocate(comm, 4096); }},
            {"add_schedules", [&] { comm.add_schedules("none"); }},
            {"add_algorithm", [&] { comm.add_algorithm("own", Planner()); }},
            {"prices", [&] { comm.prices(Collective::all_reduce, 1, DataType::int8); }},
        });
      });
}

TEST_P(SecondThread, AGroupOrPersistentCallOfASecondThreadIsRefusedAndStaysAsItWas) {
  std::optional<Group> group;
  std::optional<Persistent> barrier;
  call_meanwhile(
      GetParam(),
      [&](Communicator& comm) {
        CallOptions options;
        options.group = &group.emplace();
        int value = 0;
        comm.send(std::span(&value, 1), 1 - comm.rank(), 0, options);
        comm.recv(std::span(&value, 1), 1 - comm.rank(), 0, options);
        barrier.emplace(comm.barrier_init());
      },
      [&](Communicator&) {
        expect_refused({{"barrier", [&] { barrier->run(); }},
                        {"barrier", [&] { barrier->start(); }},
                        {"barrier", [&] { barrier->add_to(*group); }},
                        {"send", [&] { group->end(); }},
                        {"send", [&] { group->end_async(); }},
                        {"send", [&] { group->start(); }}});
        group.reset();
        barrier.reset();
      });
}

}  // namespace
}  // namespace tutti::test
