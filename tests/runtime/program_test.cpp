// Tests of how a call's data is cut and addressed: pure functions, tested over their whole range.
#include <gtest/gtest.h>

#include <tutti/error.hpp>

#include "collectives/algorithms/algorithms.h"
#include "collectives/schedule/program.h"
#include "program_bytes.h"

namespace tutti {
namespace {

TEST(Cut, WholeVectorsAreCoveredExactlyByPiecesWithinTheMessageSize) {
  for (const std::size_t element : {1u, 2u, 4u, 8u, 16u})
    for (const int chunks : {1, 2, 3, 7, 64})
      for (const int widest : {1, 2, 3, 32, 64})
        for (const std::uint64_t count :
             {0u, 1u, 15u, 16u, 17u, 1000u, 4096u, 65'537u, 1'000'003u}) {
          const std::size_t message = 64 * 80;
          const Cut c = cut(Layout::whole, count, element, chunks, widest, message);
          const std::uint64_t parts = static_cast<std::uint64_t>(chunks);
          ASSERT_GE(c.pieces, 1u);
          ASSERT_EQ((c.pieces - 1) * c.piece_elements + c.last_elements, count);
          ASSERT_TRUE(c.last_elements > 0 || count == 0);
          ASSERT_EQ(c.chunk_elements[0] * parts, c.piece_elements);
          ASSERT_GE(c.chunk_elements[1] * parts, c.last_elements);
          for (const std::uint64_t chunk : c.chunk_elements) {
            ASSERT_EQ(chunk * element % 64, 0u) << "chunks start on cache lines";
            ASSERT_LE(chunk * element * static_cast<std::uint64_t>(widest), message);
          }
        }
}

TEST(Cut, BlocksAreCoveredExactlyByPiecesWithinTheMessageSize) {
  for (const std::size_t element : {1u, 4u, 16u})
    for (const int widest : {1, 2, 64})
      for (const std::uint64_t count : {0u, 1u, 1000u, 65'537u}) {
        const Cut c = cut(Layout::blocks, count, element, 64, widest, 64 * 64);
        ASSERT_EQ((c.pieces - 1) * c.piece_elements + c.last_elements, count);
        ASSERT_EQ(c.chunk_elements[1], c.last_elements);
        for (const std::uint64_t chunk : c.chunk_elements)
          ASSERT_LE(chunk * element * static_cast<std::uint64_t>(widest), 64u * 64u);
      }
}

TEST(Program, PiecesOfOneCallAreOfNearlyEqualSize) {
  const Cut c = cut(Layout::whole, 1'100'000, 4, 2, 1, 1 << 20);
  EXPECT_EQ(c.pieces, 3u);
  EXPECT_LT(c.piece_elements - c.last_elements, 100u);
}

TEST(Program, WhoseStepsAreWiderThanMessagesIsUnavailable) {
  ScheduleBuilder plan(PlanRequest{Collective::broadcast, 0, 2, 0}, 65);
  plan.lane().copy_send({0, 65}, {1});
  const Schedule accumulates_f32 = std::move(plan).finish(65);
  CallSignature call;
  call.what = Collective::broadcast;
  for (const std::uint32_t lengths : {0u, 1u}) {
    call.lengths = lengths;
    try {
      compile(accumulates_f32, call, 4096);
      FAIL() << "it was compiled";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::unavailable);
      EXPECT_STREQ(error.what(),
                   "broadcast: a step moves 65 chunks, but messages of 4096 bytes hold 64; raise "
                   "TUTTI_MESSAGE_BYTES and TUTTI_RING_BYTES, or leave them out");
    }
  }
}

std::vector<Schedule> plans(const Algorithm& algorithm, Collective what, int ranks) {
  std::vector<Schedule> all;
  for (int rank = 0; rank < ranks; ++rank) all.push_back(algorithm.plan({what, rank, ranks, 0}));
  return all;
}

TEST(Program, AlgorithmsSayWhetherPartialResultsWaitInTheirOutput) {
  for (const Algorithm& algorithm : algorithms())
    for (const auto what :
         {Collective::all_reduce, Collective::reduce, Collective::reduce_scatter}) {
      bool rewrites = false;
      for (int ranks = 1; ranks <= 17; ++ranks)
        if (algorithm.knows(what, ranks))
          rewrites |= properties_of(plans(algorithm, what, ranks)).rewrites_output;
      const bool says = algorithm.rewrites_output && what != Collective::reduce_scatter;
      EXPECT_TRUE(says || !rewrites) << algorithm.name << " " << to_string(what);
      EXPECT_TRUE(!says || rewrites || what == Collective::reduce)
          << algorithm.name << " needlessly refuses " << to_string(what);
    }
}

TEST(Program, AlgorithmsSayWhetherTheyReduceAtOnce) {
  for (const Algorithm& algorithm : algorithms())
    for (const auto what :
         {Collective::all_reduce, Collective::reduce, Collective::reduce_scatter}) {
      bool at_once = true;
      for (int ranks = 1; ranks <= 17; ++ranks)
        if (algorithm.knows(what, ranks))
          at_once &= properties_of(plans(algorithm, what, ranks)).reduces_at_once;
      EXPECT_TRUE(at_once || !algorithm.reduces_at_once) << algorithm.name << to_string(what);
      if (!algorithm.knows(what, 2)) continue;
      const Schedule rank0 = algorithm.plan({what, 0, 2, 0});
      EXPECT_EQ(properties_of(plans(algorithm, what, 2)).reduces_at_once,
                properties_of({&rank0, 1}).reduces_at_once)
          << algorithm.name << to_string(what);
    }
}

TEST(Program, TheStepsOfRank0AreTheWidestAndHaveTheMostOperands) {
  for (const Algorithm& algorithm : algorithms())
    for (const auto what : {Collective::all_reduce, Collective::reduce, Collective::reduce_scatter})
      for (const int ranks : {1, 2, 3, 8, 17, 64, 65}) {
        if (!algorithm.knows(what, ranks)) continue;
        const auto all = plans(algorithm, what, ranks);
        EXPECT_EQ(properties_of({all.data(), 1}).widest, properties_of(all).widest)
            << algorithm.name;
        const bool fits = properties_of({all.data(), 1}).most_operands <= kMaxMarkedOperands;
        EXPECT_EQ(fits, properties_of(all).most_operands <= kMaxMarkedOperands)
            << algorithm.name << " " << to_string(what) << " " << ranks;
      }
}

TEST(Program, ComesBackFromBytesAsItWas) {
  for (const Algorithm& algorithm : algorithms())
    for (int number = 0; number < kCollectives; ++number)
      for (const int ranks : {1, 2, 5, 9}) {
        CallSignature call{static_cast<Collective>(number), DataType::bf16, Op::premul_sum};
        if (!algorithm.knows(call.what, ranks)) continue;
        call.count = 3001;
        call.accumulates_f32 = number % 2 == 0;
        const Schedule schedule = algorithm.plan({call.what, ranks - 1, ranks, 0});
        const Program program = compile(schedule, call, 1024, true, {1, 2});
        EXPECT_EQ(test::from_bytes(test::to_bytes(program)), program) << algorithm.name;
      }
}

TEST(Program, NumbersMorePeersThanSixteenBitsCan) {
  constexpr int kRanks = 70'000;
  PlanRequest request{Collective::broadcast, 0, kRanks, 0};
  ScheduleBuilder plan(request, 1);
  Peers peers;
  for (int rank = 1; rank < kRanks; ++rank) peers.push_back(rank);
  plan.lane().copy_send(0, peers);
  CallSignature call;
  call.what = Collective::broadcast;
  call.count = 1;
  const Program program = compile(std::move(plan).finish(), call, 4096);
  ASSERT_EQ(program.sends.size(), peers.size());
  EXPECT_EQ(program.steps[0].posts, peers.size());
  EXPECT_EQ(program.steps[0].outputs, peers.size() + 1);
  for (std::size_t k = 0; k < peers.size(); ++k)
    ASSERT_EQ(program.sends[program.operands[2 + k].port].peer, peers[k]);
}

TEST(Program, AnswersMorePeersThanSixteenBitsCan) {
  constexpr int kRanks = 70'000;
  PlanRequest request{Collective::all_reduce, 0, kRanks, 0};
  ScheduleBuilder plan(request, 1);
  Peers peers;
  for (int rank = 1; rank < kRanks; ++rank) peers.push_back(rank);
  plan.lane().reduce_copy_send(in_rank_order(request, 0), 0, peers).completes();
  CallSignature call{Collective::all_reduce, DataType::f32, Op::avg, 0, 1};
  const Program program = compile(std::move(plan).finish(), call, 4096);
  EXPECT_EQ(program.steps[0].receives, peers.size());
  EXPECT_EQ(program.steps[0].divide_by, kRanks);
  for (std::uint32_t k = 0; k < program.operands.size(); ++k) {
    const Program::Operand& operand = program.operands[k];
    if (operand.place != Place::peer) continue;
    ASSERT_EQ(program.operands[operand.partner].partner, k);
  }
}

TEST(Cut, ElementsThatDoNotDivideACacheLineAreKeptWhole) {
  for (const auto layout : {Layout::whole, Layout::blocks})
    for (const std::size_t element : {3u, 12u, 63u, 65u, 100u, 128u, 4095u, 4096u})
      for (const int widest : {1, 3})
        for (const std::uint64_t count : {0u, 1u, 5u, 1000u}) {
          const std::size_t message = 3 * 4096;
          const Cut c = cut(layout, count, element, 3, widest, message);
          ASSERT_EQ((c.pieces - 1) * c.piece_elements + c.last_elements, count);
          ASSERT_TRUE(c.last_elements > 0 || count == 0);
          for (const std::uint64_t chunk : c.chunk_elements)
            ASSERT_LE(chunk * element * static_cast<std::uint64_t>(widest), message);
        }
}

TEST(Program, FingerprintsDifferWhereCallsDiffer) {
  const CallSignature call{Collective::all_reduce, DataType::f32, Op::sum, 0, 100, 1};
  for (int field = 0; field < 8; ++field) {
    CallSignature other = call;
    if (field == 0) other.what = Collective::reduce;
    if (field == 1) other.type = DataType::int32;
    if (field == 2) other.op = Op::max;
    if (field == 3) other.root = 1;
    if (field == 4) other.count = 101;
    if (field == 5) other.algorithm = 2;
    if (field == 6) other.reduction = reduction_id("gcd", 8);
    if (field == 7) other.accumulates_f32 = true;
    EXPECT_NE(fingerprint(call), fingerprint(other)) << "field " << field;
  }
}

}  // namespace
}  // namespace tutti
