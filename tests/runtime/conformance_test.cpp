// Tests of every transport x collective x algorithm x ranks x sizes x in and out of place, on the
// real engine, with random choices from a seed.
#include <gtest/gtest.h>

#include "collectives/algorithms/algorithms.h"
#include "collectives/schedule/semantics.h"
#include "common/wire.h"
#include "compute/combine.h"
#include "ranks.h"
#include "runtime/engine/variable_blocks.h"
#include "transport/ucx/open.h"

namespace tutti::test {
namespace {

struct Case {
  TransportKind kind;
  int ranks;
};

class Conformance : public testing::TestWithParam<Case> {};

// The unit is elements of 4 bytes: no element, one, an odd number, one message and one element more
// or less, and several pieces.
constexpr std::size_t kCounts[] = {0, 1, 17, 255, 256, 257, 3001};
constexpr DataType kTypes[] = {DataType::f32, DataType::bf16, DataType::int32};
constexpr Op kOpsOfAll[] = {Op::sum, Op::prod, Op::min, Op::max, Op::avg};

bool reduces(Collective what) { return collectives::reduces(what); }

TEST_P(Conformance, EveryAlgorithmGivesExactResultsInAndOutOfPlace) {
  const auto [kind, size] = GetParam();
  Ranks ranks(kind, size, 20261121);
  std::uint32_t number = 0;
  const auto list = algorithms();
  for (std::uint32_t algorithm = 0; algorithm < list.size(); ++algorithm)
    for (int what = 0; what < kCollectives; ++what) {
      if (!list[algorithm].knows(static_cast<Collective>(what), size)) continue;
      for (const std::size_t count : kCounts)
        for (const bool in_place : {false, true}) {
          Trial trial{static_cast<Collective>(what), algorithm, DataType::uint8};
          trial.count = trial.what == Collective::barrier ? 0 : count;
          trial.in_place = in_place;
          const auto seed = ranks.random().next();
          if (reduces(trial.what)) {
            trial.type = kTypes[seed % std::size(kTypes)];
            trial.op = kOpsOfAll[seed / 8 % std::size(kOpsOfAll)];
          }
          if (collectives::has_root(trial.what))
            trial.root = static_cast<int>(seed / 64 % static_cast<unsigned>(size));
          ASSERT_EQ(run(ranks, {&trial, 1}, number++), "") << describe(trial, size);
        }
    }
}

// Returns random lengths, among them zeros and equal ones. In place, the block that goes to a rank
// is as long as the one that comes from it.
std::vector<std::size_t> random_lengths(Random& random, Collective what, int ranks, bool in_place) {
  const int blocks = collectives::block_count(what, ranks);
  std::vector<std::size_t> lengths(static_cast<std::size_t>(blocks));
  const std::uint64_t flavour = random.next() % 8;
  for (std::size_t& length : lengths) {
    length = kCounts[random.next() % std::size(kCounts)];
    if (flavour == 0) length = lengths[0];
    if (flavour == 1) length = 0;
  }
  if (what == Collective::all_to_all && in_place)
    for (int a = 0; a < ranks; ++a)
      for (int b = 0; b < a; ++b)
        lengths[static_cast<std::size_t>(collectives::pair_chunk(a, b, ranks))] =
            lengths[static_cast<std::size_t>(collectives::pair_chunk(b, a, ranks))];
  return lengths;
}

constexpr Collective kVariable[] = {Collective::all_gather, Collective::reduce_scatter,
                                    Collective::gather, Collective::scatter,
                                    Collective::all_to_all};

bool serves_lengths(const Algorithm& algorithm, Collective what, int ranks) {
  return algorithm.knows(what, ranks) && (algorithm.direct || !only_pairs_know(what));
}

TEST_P(Conformance, EveryAlgorithmMovesBlocksOfRandomLengthsInAndOutOfPlace) {
  const auto [kind, size] = GetParam();
  Ranks ranks(kind, size, 1234);
  std::uint32_t number = 0;
  const auto list = algorithms();
  for (std::uint32_t algorithm = 0; algorithm < list.size(); ++algorithm)
    for (const Collective what : kVariable) {
      if (!serves_lengths(list[algorithm], what, size)) continue;
      for (int k = 0; k < 8; ++k) {
        Trial trial{what, algorithm, kTypes[k % 3]};
        trial.in_place = k % 2 == 1;
        trial.lengths = random_lengths(ranks.random(), what, size, trial.in_place);
        trial.gap = ranks.random().next() % 4;
        trial.op = kOpsOfAll[ranks.random().next() % std::size(kOpsOfAll)];
        if (collectives::has_root(what))
          trial.root = static_cast<int>(ranks.random().next() % static_cast<unsigned>(size));
        ASSERT_EQ(run(ranks, {&trial, 1}, number++), "") << describe(trial, size);
      }
    }
}

Trial random_trial(Random& random, int size) {
  const auto pick = [&](std::size_t below) { return random.next() % below; };
  Trial trial{static_cast<Collective>(pick(kCollectives)),
              static_cast<std::uint32_t>(pick(algorithms().size())),
              kTypes[pick(std::size(kTypes))]};
  trial.op = kOpsOfAll[pick(std::size(kOpsOfAll))];
  trial.count = trial.what == Collective::barrier ? 0 : pick(pick(10) == 0 ? 5000 : 300);
  trial.root = collectives::has_root(trial.what)
                   ? static_cast<int>(pick(static_cast<std::size_t>(size)))
                   : 0;
  trial.in_place = pick(2) == 1;
  if (std::find(std::begin(kVariable), std::end(kVariable), trial.what) != std::end(kVariable) &&
      serves_lengths(algorithms()[trial.algorithm], trial.what, size) && pick(2) == 1)
    trial.lengths = random_lengths(random, trial.what, size, trial.in_place);
  return trial;
}

TEST_P(Conformance, RandomMixedOperationsWithoutBarriersKeepTheirOrder) {
  const auto [kind, size] = GetParam();
  Ranks ranks(kind, size, 7);
  const bool is_local = kind == TransportKind::local || kind == TransportKind::zero_copy ||
                        kind == TransportKind::kernel;
  const int batches = is_local ? 100 : 20;
  std::uint32_t number = 0;
  for (int batch = 0; batch < batches; ++batch) {
    std::vector<Trial> trials;
    while (trials.size() < 10) {
      const Trial trial = random_trial(ranks.random(), size);
      if (algorithms()[trial.algorithm].knows(trial.what, size)) trials.push_back(trial);
    }
    ASSERT_EQ(run(ranks, trials, number), "") << "batch " << batch;
    number += static_cast<std::uint32_t>(trials.size());
  }
}

bool exists(DataType type, Op op) {
  try {
    combine_function(type, op);
    return true;
  } catch (const Error&) {
    return false;
  }
}

// Draws from all types and reductions. Some trials accumulate in f32 over all hops, where that
// makes a difference.
Trial random_reduction(Random& random, int size) {
  const auto pick = [&](std::size_t below) { return random.next() % below; };
  constexpr Collective kReducing[] = {Collective::all_reduce, Collective::reduce,
                                      Collective::reduce_scatter};
  Trial trial{kReducing[pick(3)], 0, DataType::f32};
  do {
    trial.type = static_cast<DataType>(pick(kDataTypes));
    trial.op = static_cast<Op>(pick(kOps));
  } while (!exists(trial.type, trial.op));
  trial.accumulates_f32 = accumulation_type(trial.type) != trial.type && pick(2) == 1;
  for (bool serves = false; !serves;) {
    trial.algorithm = static_cast<std::uint32_t>(pick(algorithms().size()));
    const Algorithm& algorithm = algorithms()[trial.algorithm];
    serves =
        algorithm.knows(trial.what, size) && !(trial.accumulates_f32 && algorithm.rewrites_output &&
                                               trial.what != Collective::reduce_scatter);
  }
  trial.count = pick(pick(10) == 0 ? 5000 : 300);
  if (trial.what == Collective::reduce)
    trial.root = static_cast<int>(pick(static_cast<std::size_t>(size)));
  trial.in_place = pick(2) == 1;
  return trial;
}

TEST_P(Conformance, SampledTypesAndReductionsGiveExactResults) {
  const auto [kind, size] = GetParam();
  Ranks ranks(kind, size, 4);
  std::uint32_t number = 0;
  for (int batch = 0; batch < (kind == TransportKind::local ? 60 : 15); ++batch) {
    std::vector<Trial> trials;
    while (trials.size() < 10) trials.push_back(random_reduction(ranks.random(), size));
    ASSERT_EQ(run(ranks, trials, number), "") << "batch " << batch;
    number += static_cast<std::uint32_t>(trials.size());
  }
}

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const auto kind : {TransportKind::local, TransportKind::zero_copy, TransportKind::kernel,
                          TransportKind::shm, TransportKind::tcp, TransportKind::stream})
    for (const int ranks : {1, 2, 3, 4, 7, 8}) all.push_back({kind, ranks});
  for (const int ranks : {2, 3, 8}) all.push_back({TransportKind::tls, ranks});
  if (ucx::is_built())
    for (const int ranks : {2, 3, 8}) all.push_back({TransportKind::ucx, ranks});
  return all;
}

INSTANTIATE_TEST_SUITE_P(Transports, Conformance, testing::ValuesIn(cases()),
                         [](const auto& tested) {
                           return std::string(to_string(tested.param.kind)) +
                                  std::to_string(tested.param.ranks);
                         });

}  // namespace
}  // namespace tutti::test
