// Tests the seam between a communicator and its engine, without a communicator.
#include "runtime/engine/engine.h"

#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <vector>

#include "collectives/algorithms/algorithms.h"
#include "collectives/planning/select.h"
#include "ranks.h"

namespace tutti::test {
namespace {

// Holds the engine of one rank, with a program and the buffers of its calls.
struct Part {
  Part(Ranks& ranks, int rank, std::uint64_t stripes)
      : transport(ranks.transport(rank)), engine(make_host_engine(transport, [] {})) {
    const std::uint32_t number = algorithm_index("ring");
    const CallSignature call{Collective::all_reduce, DataType::f32, Op::sum, 0,
                             values.size(),          number};
    const Schedule schedule = algorithms()[number].plan({call.what, rank, ranks.size(), 0});
    std::vector<Program> programs;
    for (std::uint64_t k = 0; k < stripes; ++k)
      programs.push_back(compile(schedule, call, Ranks::kMessageBytes, false, {k, stripes}));
    bound = engine->bind(std::move(programs));
  }

  void start() {
    values.fill(1);
    CallBuffers buffers;
    buffers.input = reinterpret_cast<const std::byte*>(values.data());
    buffers.output = reinterpret_cast<std::byte*>(values.data());
    buffers.extras = &extras;
    buffers.result_bytes = sizeof values;
    EXPECT_FALSE(engine->start(*bound, buffers, false, 0));
  }

  Transport& transport;
  std::unique_ptr<Engine> engine;
  std::shared_ptr<BoundProgram> bound;
  CallExtras extras;
  std::array<float, 3001> values{};
};

TEST(HostEngine, DrawsTheNumberOfEachCallAndShowsPeersWhenItBeginsAndEnds) {
  for (const std::uint64_t stripes : {1u, 3u}) {
    Ranks ranks(TransportKind::local, 2, 1);
    Part a(ranks, 0, stripes), b(ranks, 1, stripes);
    const StatusPage& page = a.transport.own_status_page();
    for (std::uint64_t call = 0; call < 3; ++call) {
      a.start();
      EXPECT_EQ(a.engine->number(), call);
      EXPECT_EQ(a.engine->call(), a.bound->program.call);
      EXPECT_EQ(page.entered.load(), call + 1);
      EXPECT_EQ(page.completed.load(), call);
      EXPECT_FALSE(a.engine->advance(100));
      EXPECT_EQ(a.engine->awaited(-1), 1);
      EXPECT_EQ(a.engine->awaited(1), -1);
      b.start();
      bool a_done = false, b_done = false;
      for (int turn = 0; turn < 1000 && !(a_done && b_done); ++turn) {
        a_done = a_done || a.engine->advance(3);
        b_done = b_done || b.engine->advance(3);
      }
      ASSERT_TRUE(a_done && b_done);
      EXPECT_EQ(page.completed.load(), call + 1);
      EXPECT_EQ(a.engine->awaited(-1), -1);
      for (const float value : a.values) ASSERT_EQ(value, 2);
    }
  }
}

TEST(HostEngine, HoldsTheScratchOfItsLargestProgramOnceThatIsBound) {
  Ranks ranks(TransportKind::local, 3, 1);
  const std::unique_ptr<Engine> engine = make_host_engine(ranks.transport(0), [] {});
  EXPECT_EQ(engine->memory_bytes(), 0u);
  const CallSignature call{Collective::all_to_all,  DataType::uint8, Op::sum, 0, 100,
                           algorithm_index("bruck")};
  const Schedule schedule = algorithms()[call.algorithm].plan({call.what, 0, 3, 0});
  const Program program = compile(schedule, call, Ranks::kMessageBytes);
  ASSERT_GT(program.scratch_bytes, 0u);
  const auto bound = engine->bind({program});
  EXPECT_EQ(bound->program, program);
  EXPECT_EQ(engine->memory_bytes(), program.scratch_bytes);
}

}  // namespace
}  // namespace tutti::test
