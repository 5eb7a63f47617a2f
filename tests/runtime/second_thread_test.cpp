// Tests calls of a communicator in which another thread is in a call.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <functional>
#include <thread>

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

TEST_P(SecondThread, ACallOfASecondThreadIsRefusedAndTheFirstGoesOn) {
  Meanwhile meanwhile;
  const auto second = [&](Communicator& comm) {
    while (!meanwhile.inside) std::this_thread::yield();
    int value = 0;
    const std::array<std::function<void()>, 4> calls{
        [&] { comm.barrier(); }, [&] { comm.barrier_async(); },
        [&] { comm.send(std::span(&value, 1), 1 - comm.rank()); },
        [&] { comm.recv_async(std::span(&value, 1), 1 - comm.rank()); }};
    for (const auto& call : calls)
      EXPECT_THAT(message_of(ErrorKind::usage, call), HasSubstr("another thread is in a call"));
    meanwhile.done = true;
  };
  EXPECT_THAT(run_ranks(2, quick_config(GetParam()),
                        [&](Communicator& comm) {
                          std::thread other;
                          if (comm.rank() == 0) other = std::thread([&] { second(comm); });
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

}  // namespace
}  // namespace tutti::test
