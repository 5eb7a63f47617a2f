#include "collectives/planning/prices.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tutti/error.hpp>

#include "support.h"

namespace tutti {
namespace {

SelectRequest request(Collective what, std::size_t bytes, int ranks, int cores,
                      std::size_t message_bytes = 1 << 16) {
  return {.what = what,
          .bytes = bytes,
          .ranks = ranks,
          .cores = cores,
          .max_message_bytes = message_bytes};
}

std::string_view name_of(const Choice& choice) { return algorithms()[choice.algorithm].name; }

TEST(Prices, SizesShareAPriceWithThoseOfTheSameTwoLeadingBits) {
  EXPECT_EQ(size_class(0), 0u);
  EXPECT_EQ(size_class(3), 3u);
  EXPECT_EQ(size_class(7), 6u);
  EXPECT_EQ(size_class(1024), 1024u);
  EXPECT_EQ(size_class(1535), 1024u);
  EXPECT_EQ(size_class(1536), 1536u);
  EXPECT_EQ(size_class(2047), 1536u);
}

TEST(Prices, BuiltInCostsKeepWhatWasMeasuredWithTwoRanks) {
  PriceList prices{MachineCosts{}};
  for (const Collective what : testing::all_collectives())
    for (std::size_t bytes = 8; bytes <= 64 << 20; bytes *= 2) {
      const SelectRequest call = request(what, what == Collective::barrier ? 0 : bytes, 2, 2);
      EXPECT_EQ(name_of(prices.choose(call, "")), name_of(choose(call, "")))
          << to_string(what) << ' ' << bytes;
    }
}

// Measured with 8 ranks on 2 cores: an all_reduce of 8 B takes 6.1 us with one_shot and 10.4 us
// with recursive_doubling, which the table chooses; an all_gather of blocks of 64 B takes 9.6 and
// 14.6 us.
TEST(Prices, CheapestIsTakenWhereTheTableIsClearlyDearer) {
  PriceList prices{MachineCosts{}};
  EXPECT_EQ(name_of(prices.choose(request(Collective::all_reduce, 8, 8, 2, 1 << 15), "")),
            "one_shot");
  EXPECT_EQ(name_of(prices.choose(request(Collective::all_gather, 64, 8, 2, 1 << 15), "")),
            "all_pairs");
}

TEST(Prices, OfMoreThanMemoryCanHoldAreThoseOfTheMostThatIsPriced) {
  PriceList prices{MachineCosts{}};
  for (const Collective what : {Collective::all_reduce, Collective::all_to_all})
    for (const int ranks : {2, 16})
      for (const std::size_t message : {std::size_t{4096}, std::size_t{1} << 16}) {
        const auto most = prices.candidates(request(what, kMostPricedBytes, ranks, 2, message));
        const auto more = prices.candidates(request(what, ~std::size_t{0} >> 8, ranks, 2, message));
        ASSERT_EQ(more.size(), most.size());
        for (std::size_t k = 0; k < most.size(); ++k) {
          EXPECT_EQ(more[k].predicted, most[k].predicted);
          EXPECT_GT(most[k].predicted, 1'000'000'000'000) << "picoseconds, for 64 GiB";
        }
      }
}

TEST(Prices, TableIsKeptWhereTheCostsDoNotTrustThemselves) {
  MachineCosts costs;
  costs.error_percent = 1000;
  PriceList prices(costs);
  for (const int ranks : {2, 4, 8})
    for (std::size_t bytes = 8; bytes <= 16 << 20; bytes *= 8) {
      const SelectRequest call = request(Collective::all_reduce, bytes, ranks, 2);
      EXPECT_EQ(name_of(prices.choose(call, "")), name_of(choose(call, "")));
    }
}

TEST(Prices, CandidatesAreAllThatServeTheCallCheapestFirst) {
  PriceList prices{MachineCosts{}};
  const auto list = prices.candidates(request(Collective::all_reduce, 1 << 20, 4, 4));
  EXPECT_EQ(list.size(), 9u);
  for (std::size_t i = 1; i < list.size(); ++i) EXPECT_LE(list[i - 1].predicted, list[i].predicted);
}

TEST(Prices, FarRanksPreferFewMessagesInARow) {
  MachineCosts costs;
  costs.links.fill({50'000'000, 0, 100'000, 100'000});
  PriceList prices(costs);
  EXPECT_EQ(name_of(prices.choose(request(Collective::all_reduce, 64, 8, 8), "")), "one_shot");
  const auto list = prices.candidates(request(Collective::all_reduce, 64, 8, 8));
  EXPECT_EQ(algorithms()[list.back().algorithm].name, "ring") << "14 messages in a row";
}

SelectRequest across(std::size_t bytes, std::vector<int> machines, int cores) {
  SelectRequest call =
      request(Collective::all_reduce, bytes, static_cast<int>(machines.size()), cores);
  call.spread = spread_over(machines);
  call.groups = call.machines = std::move(machines);
  return call;
}

// Measured in two network namespaces, which stand for two machines, with four ranks each, every
// rank on a core of its own: 64 B take 14.9 us with knomial_tree and 28.7 us with
// recursive_doubling, which the table chooses; 32 KiB take 205 us with ring and 66 us with
// hierarchical.
TEST(Prices, RanksOfSeveralMachinesArePricedByWhereTheyRun) {
  PriceList prices{MachineCosts{}};
  const std::vector<int> even = {0, 0, 0, 0, 1, 1, 1, 1};
  EXPECT_EQ(name_of(prices.choose(across(64, even, 1), "")), "knomial_tree");
  EXPECT_EQ(name_of(prices.choose(across(32 << 10, even, 1), "")), "hierarchical");
  MachineCosts slow;
  slow.network_kib = 800'000;  // 10 Gb/s
  PriceList by_line(slow);
  const auto chosen = [&](std::vector<int> machines) {
    return name_of(by_line.choose(across(1 << 20, std::move(machines), 4), ""));
  };
  EXPECT_EQ(chosen({0, 0, 0, 1, 1, 1, 1, 1}), "hierarchical");
  EXPECT_EQ(chosen({0, 1, 0, 1, 0, 1, 0, 1}), "hierarchical") << "whatever their numbers";
}

TEST(Prices, NamedAlgorithmIsTakenAndAnUnknownOneRefused) {
  PriceList prices{MachineCosts{}};
  const SelectRequest call = request(Collective::all_reduce, 8, 8, 2);
  EXPECT_EQ(name_of(prices.choose(call, "ring")), "ring");
  EXPECT_EQ(name_of(prices.choose(call, "auto")), "one_shot");
  EXPECT_EQ(name_of(prices.choose(call, "bruck")), "one_shot") << "it knows no all_reduce";
  EXPECT_THROW(prices.choose(call, "bruck", true), Error);
  EXPECT_THROW(prices.choose(call, "rong"), Error);
}

TEST(Prices, ManyRanksAndLengthsOfPairsAreNotPriced) {
  PriceList prices{MachineCosts{}};
  const SelectRequest many = request(Collective::all_reduce, 8, kMostPricedRanks + 1, 64);
  EXPECT_THAT(prices.candidates(many), ::testing::IsEmpty());
  EXPECT_EQ(name_of(prices.choose(many, "")), name_of(choose(many, "")));
  SelectRequest pairs = request(Collective::all_to_all, 8, 4, 4);
  pairs.pair_lengths = true;
  EXPECT_THAT(prices.candidates(pairs), ::testing::IsEmpty());
  EXPECT_EQ(name_of(prices.choose(pairs, "")), name_of(choose(pairs, "")));
}

TEST(Prices, SmallerMessagesAreTakenWhereThatPays) {
  // Only bytes have a cost here, so the first piece of a chain should be small.
  MachineCosts costs;
  costs.call = costs.step = costs.message = 0;
  costs.error_percent = 1;
  costs.links.fill({0, 0, 100'000, 100'000});
  PriceList prices(costs);
  EXPECT_LT(prices.choose(request(Collective::broadcast, 1 << 17, 8, 8), "ring").message_bytes,
            std::size_t{1} << 16);
  EXPECT_EQ(prices.choose(request(Collective::broadcast, 1 << 10, 8, 8), "ring").message_bytes,
            std::size_t{1} << 16);
}

TEST(Selection, KnowsMachinesThatHaveTheirRanksTogetherAndAlike) {
  const auto spread = [](std::vector<int> machines) { return spread_over(machines); };
  EXPECT_EQ(spread({}), Spread::one_machine);
  EXPECT_EQ(spread({0, 0, 0}), Spread::one_machine);
  EXPECT_EQ(spread({0, 0, 1, 1}), Spread::even_machines);
  EXPECT_EQ(spread({1, 1, 1, 0, 0, 0, 2, 2, 2}), Spread::even_machines);
  EXPECT_EQ(spread({0, 1}), Spread::machines) << "one rank on each: no machine to stay within";
  EXPECT_EQ(spread({0, 1, 0, 1}), Spread::even_machines) << "whatever the numbers of its ranks";
  EXPECT_EQ(spread({0, 0, 1, 1, 0, 0}), Spread::machines);
  EXPECT_EQ(spread({0, 0, 1, 1, 1}), Spread::machines);
  EXPECT_EQ(spread({0, 0, 1, 2}), Spread::machines);
}

TEST(Selection, StaysWithinMachinesWhereEachHasTheSameRanks) {
  PriceList prices{MachineCosts()};
  const auto chosen = [&](Spread spread, std::size_t bytes, int ranks) {
    SelectRequest call = request(Collective::all_reduce, bytes, ranks, ranks);
    call.spread = spread;
    return algorithms()[prices.choose(call, "").algorithm].name;
  };
  EXPECT_EQ(chosen(Spread::even_machines, 8, 8), "recursive_doubling");
  EXPECT_EQ(chosen(Spread::even_machines, 1 << 20, 8), "hierarchical");
  EXPECT_NE(chosen(Spread::machines, 1 << 20, 8), "hierarchical");
  EXPECT_NE(chosen(Spread::one_machine, 1 << 20, 8), "hierarchical") << "kept apart in the cache";
  EXPECT_EQ(chosen(Spread::machines, 64 << 10, 2), "one_shot");
}

}  // namespace
}  // namespace tutti
