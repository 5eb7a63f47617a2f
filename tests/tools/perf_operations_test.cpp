#include "perf/operations.h"

#include <gtest/gtest.h>

#include <vector>

namespace tutti::perf {
namespace {

Call call(Operation what, std::size_t bytes, int ranks, DataType type = DataType::f32) {
  return call_of(what, type, Op::sum, 0, bytes, {ranks, 0, 1});
}

TEST(PerfOperations, SizeIsTheLargerSideOfACall) {
  EXPECT_EQ(call(Operation::all_reduce, 1000, 3).count, 250u);
  EXPECT_EQ(call(Operation::all_reduce, 1000, 3).bytes(), 1000u);
  EXPECT_EQ(call(Operation::broadcast, 1001, 3).bytes(), 1000u);
}

TEST(PerfOperations, BlocksAreMultiplesOfSixteenBytes) {
  const Call gather = call(Operation::all_gather, 1000, 3);
  EXPECT_EQ(gather.count, 80u);  // 250 / 3 = 83 elements
  EXPECT_EQ(gather.bytes(), 960u);
  EXPECT_EQ(gather.input_count, 80u);
  EXPECT_EQ(gather.output_count, 240u);
  const Call scatter = call(Operation::reduce_scatter, 1000, 3, DataType::bf16);
  EXPECT_EQ(scatter.count, 160u);
  EXPECT_EQ(scatter.input_count, 480u);
  EXPECT_EQ(scatter.output_count, 160u);
  EXPECT_EQ(call(Operation::all_gather, 8, 2).bytes(), 0u);
  for (const Operation what : {Operation::gather, Operation::scatter, Operation::alltoall}) {
    const Call blocks = call(what, 1000, 3);
    EXPECT_EQ(blocks.count, 80u);
    EXPECT_EQ(blocks.input_count, what == Operation::gather ? 80u : 240u);
    EXPECT_EQ(blocks.output_count, what == Operation::scatter ? 80u : 240u);
  }
}

TEST(PerfOperations, AlltoallvSendsMoreToRanksThatAreFurtherAway) {
  const Call first = call_of(Operation::alltoallv, DataType::f32, Op::sum, 0, 6000, {4, 0, 1});
  EXPECT_EQ(first.count, 372u);  // 1500 / 4 = 375, in units of 16 bytes
  // 372 * 4 * 4 = 5952 bytes: a sixth goes to the next rank, two sixths to the one after, three
  // sixths to the one beyond it.
  EXPECT_EQ(first.to, (std::vector<std::size_t>{0, 248, 496, 744}));
  EXPECT_EQ(first.bytes(), 5952u);
  for (int rank = 0; rank < 4; ++rank) {
    const Call mine = call_of(Operation::alltoallv, DataType::f32, Op::sum, 0, 6000, {4, rank, 1});
    EXPECT_EQ(mine.bytes(), first.bytes());
    for (int peer = 0; peer < 4; ++peer) {
      const Call theirs =
          call_of(Operation::alltoallv, DataType::f32, Op::sum, 0, 6000, {4, peer, 1});
      EXPECT_EQ(mine.from[static_cast<std::size_t>(peer)],
                theirs.to[static_cast<std::size_t>(rank)]);
    }
  }
  const Call same = call_of(Operation::alltoallv, DataType::f32, Op::sum, 0, 6000, {4, 3, 0});
  EXPECT_EQ(same.to, std::vector<std::size_t>(4, 372));
  const Call alone = call_of(Operation::alltoallv, DataType::f32, Op::sum, 0, 6000, {1, 0, 1});
  EXPECT_EQ(alone.to, std::vector<std::size_t>{1500});
}

TEST(PerfOperations, InPlaceIsWhereTheLibraryWantsIt) {
  std::byte memory[1000];
  const Call gather = call(Operation::all_gather, 96, 3);
  EXPECT_EQ(in_place(gather, memory, 2).input, memory + 64);
  EXPECT_EQ(in_place(gather, memory, 2).output, memory);
  const Call scatter = call(Operation::reduce_scatter, 96, 3);
  EXPECT_EQ(in_place(scatter, memory, 1).input, memory);
  EXPECT_EQ(in_place(scatter, memory, 1).output, memory + 32);
  EXPECT_EQ(in_place(call(Operation::gather, 96, 3), memory, 2).input, memory + 64);
  EXPECT_EQ(in_place(call(Operation::scatter, 96, 3), memory, 2).output, memory + 64);
  const Call swap = call(Operation::alltoall, 96, 3);
  EXPECT_EQ(in_place(swap, memory, 2).input, in_place(swap, memory, 2).output);
  const Call reduce = call(Operation::all_reduce, 96, 3);
  EXPECT_EQ(in_place(reduce, memory, 1).input, in_place(reduce, memory, 1).output);
}

TEST(PerfOperations, BandwidthsAreThoseOfNcclTests) {
  EXPECT_DOUBLE_EQ(algorithm_gb_s(call(Operation::all_reduce, 1'000'000, 4), 100, 4), 10);
  EXPECT_DOUBLE_EQ(algorithm_gb_s(call(Operation::all_gather, 64000, 4), 64, 4), 1);
  EXPECT_DOUBLE_EQ(algorithm_gb_s(call(Operation::all_reduce, 0, 4), 0, 4), 0);
  EXPECT_DOUBLE_EQ(algorithm_gb_s(call(Operation::hypercube, 64000, 4), 48, 4), 1);
  EXPECT_DOUBLE_EQ(algorithm_gb_s(call(Operation::sendrecv, 64000, 4), 64, 4), 1);
  EXPECT_DOUBLE_EQ(algorithm_gb_s(call(Operation::alltoallv, 6000, 4), 5.952, 4), 1);
  EXPECT_DOUBLE_EQ(bus_factor(Operation::hypercube, 4), 1);
  EXPECT_DOUBLE_EQ(bus_factor(Operation::sendrecv, 4), 1);
  EXPECT_DOUBLE_EQ(bus_factor(Operation::alltoallv, 4), 0.75);
  EXPECT_DOUBLE_EQ(bus_factor(Operation::all_reduce, 4), 1.5);
  EXPECT_DOUBLE_EQ(bus_factor(Operation::all_gather, 4), 0.75);
  EXPECT_DOUBLE_EQ(bus_factor(Operation::reduce_scatter, 4), 0.75);
  EXPECT_DOUBLE_EQ(bus_factor(Operation::alltoall, 4), 0.75);
  EXPECT_DOUBLE_EQ(bus_factor(Operation::gather, 4), 0.75);
  EXPECT_DOUBLE_EQ(bus_factor(Operation::scatter, 4), 0.75);
  EXPECT_DOUBLE_EQ(bus_factor(Operation::broadcast, 4), 1);
  EXPECT_DOUBLE_EQ(bus_factor(Operation::reduce, 4), 1);
  EXPECT_DOUBLE_EQ(bus_factor(Operation::all_reduce, 1), 0);
}

}  // namespace
}  // namespace tutti::perf
