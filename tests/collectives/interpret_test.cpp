// Runs every algorithm on numbers, with the lanes in random orders: what the verifier proves with
// symbols must also be true of numbers and lengths.
#include <gtest/gtest.h>

#include "common/random.h"
#include "interpreter.h"
#include "support.h"

namespace tutti::testing {
namespace {

TEST(Interpreter, EveryAlgorithmComputesTheRightNumbersInAnyOrderOfItsLanes) {
  std::uint64_t seed = 1;
  for (const Algorithm& algorithm : algorithms())
    for (const Collective what : all_collectives())
      for (const int ranks : {1, 2, 3, 4, 5, 6, 7, 8, 9, 11}) {
        if (!algorithm.knows(what, ranks)) continue;
        const auto schedules =
            plan_all(algorithm, what, ranks, collectives::has_root(what) * (ranks - 1));
        for (const int count : {0, 1, 3, ranks, 7 * ranks + 1, 40})
          for (const bool in_place : {false, true}) {
            const InterpretOptions options{.count = what == Collective::barrier ? 0 : count,
                                           .message_elements = 2 * schedules[0].widest,
                                           .in_place = in_place,
                                           .seed = ++seed};
            EXPECT_EQ(interpret(schedules, options), "")
                << algorithm.name << " " << to_string(what) << ", " << ranks << " ranks, " << count
                << " elements" << (in_place ? ", in place" : "") << ", seed " << seed;
          }
      }
}

TEST(Interpreter, SeesWhatIsWrong) {
  const auto good = plan_all(algorithm_named("all_pairs"), Collective::all_reduce, 3);
  const InterpretOptions options{.count = 20, .message_elements = 2};
  const auto broken = [&](auto change) {
    auto schedules = good;
    change(schedules[1].lanes);
    return interpret(schedules, options);
  };
  ASSERT_EQ(interpret(good, options), "");
  EXPECT_NE(broken([](auto& lanes) { lanes[1].steps[0].completes = false; }), "");
  EXPECT_NE(broken([](auto& lanes) { lanes[1].steps[0].in.pop_back(); }), "");
  EXPECT_NE(broken([](auto& lanes) { lanes[1].steps[0].out.pop_back(); }), "");
  EXPECT_NE(broken([](auto& lanes) { lanes[2].steps.clear(); }), "");
  EXPECT_NE(broken([](auto& lanes) { lanes[0].steps[0].in[0] = {Place::output, 0}; }), "");

  auto reordered = plan_all(algorithm_named("one_shot"), Collective::all_reduce, 3);
  auto& in = reordered[1].lanes[0].steps[1].in;
  std::swap(in[0], in[1]);
  EXPECT_NE(interpret(reordered, options), "") << "bits must differ";
}

}  // namespace
}  // namespace tutti::testing
