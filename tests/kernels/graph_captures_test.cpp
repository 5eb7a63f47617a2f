// Captures beside other captures, and beside calls that are not captured.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "tests/kernels/graphs.h"

namespace tutti::test {
namespace {

using testing::Not;

TEST_P(Graphs, CallsOfTwoCapturesAtOnceStartInTheOrderOfTheirOwnGraph) {
  EXPECT_THAT(run(2, config(),
                  [](Communicator& comm) {
                    const GpuStream first, second, other;
                    const GpuBuffer<int> a(kCount, 1), b(2 * kCount, 1), c(kCount, 1);
                    const auto call = [&](const GpuBuffer<int>& data, const GpuStream& on) {
                      comm.all_reduce(data.data(), data.data(), data.size(), kInt, Op::sum,
                                      {.stream = on.handle()});
                    };
                    const auto hold = [](void*) {
                      for (int look = 0; look < 2000; ++look) std::this_thread::yield();
                    };
                    GpuGraph inner;
                    const GpuGraph graph(
                        first,
                        [&] {
                          follow(second, first);
                          cu("cuLaunchHostFunc", (comm.rank() == 0 ? first : second).handle(),
                             static_cast<void (*)(void*)>(hold), static_cast<void*>(nullptr));
                          call(a, first);
                          inner = GpuGraph(other, [&] { call(c, other); });
                          call(b, second);
                          follow(first, second);
                        },
                        GpuGraph::relaxed);
                    for (int replay = 0; replay < 10; ++replay) graph.launch(first);
                    inner.launch(first);
                    first.synchronize();
                    EXPECT_THAT(a.read(), Each(1024));
                    EXPECT_THAT(b.read(), Each(1024));
                    EXPECT_THAT(c.read(), Each(2));
                  }),
              Each(IsEmpty()));
}

TEST_P(Graphs, CallsOfAGroupOnTheHostFollowEachOtherWhileAGraphIsThere) {
  EXPECT_THAT(run(2, config(),
                  [](Communicator& comm) {
                    const GpuStream stream;
                    const GpuBuffer<int> data(kCount, 1);
                    const GpuGraph graph(stream, [&] {
                      comm.all_reduce(data.data(), data.data(), kCount, kInt, Op::max,
                                      {.stream = stream.handle()});
                    });
                    std::vector<int> first(100, 1), second(100), third(100);
                    Group group;
                    const CallOptions options{.group = &group};
                    comm.all_reduce(first.data(), second.data(), 100, kInt, Op::sum, options);
                    comm.all_reduce(second.data(), third.data(), 100, kInt, Op::sum, options);
                    group.end();
                    EXPECT_THAT(second, Each(2));
                    EXPECT_THAT(third, Each(4));
                  }),
              Each(IsEmpty()));
}

TEST_P(Graphs, ACallOnAStreamWhoseCaptureIsInvalidSaysSo) {
  EXPECT_THAT(run(2, config(),
                  [](Communicator& comm) {
                    const GpuStream stream;
                    const GpuBuffer<int> data(kCount, 1);
                    const auto call = [&] {
                      comm.all_reduce(data.data(), data.data(), kCount, kInt, Op::sum,
                                      {.stream = stream.handle()});
                    };
                    const auto body = [&] {
                      EXPECT_THAT(outcome_of([&] { stream.synchronize(); }), Not(IsEmpty()));
                      EXPECT_THAT(outcome_of(call),
                                  AllOf(StartsWith("unavailable: "), HasSubstr("invalid")));
                    };
                    EXPECT_THAT(outcome_of([&] { GpuGraph(stream, body); }), Not(IsEmpty()));
                    call();
                    EXPECT_THAT(data.read(), Each(2));
                  }),
              Each(IsEmpty()));
}

}  // namespace
}  // namespace tutti::test
