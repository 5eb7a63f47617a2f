// Tests which transport joins each two ranks, given what all of them have published.
#include "transport/routes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tutti/error.hpp>

#include "mail_transport.h"

namespace tutti {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr mail::Kind kSlow{"slow", 1'000'000'000};
constexpr mail::Kind kFast{"fast", 9'000'000'000, 4096, 2};
constexpr mail::Kind kShy{"shy", 50'000'000'000, 1 << 20, 1'000'000, true};

RouteCandidates slow_and_fast(bool by_cost = true) {
  return {{mail::entry<kSlow>(), mail::entry<kFast>()}, by_cost};
}

Texts offers_of(const RouteCandidates& candidates, int ranks) {
  Texts offers;
  for (int rank = 0; rank < ranks; ++rank) {
    TransportContext context;
    context.rank = rank;
    offers.append(Texts(offers_text(candidates, context)));
  }
  return offers;
}

RouteTable table_of(const RouteCandidates& candidates, int ranks) {
  return RouteTable(candidates, offers_of(candidates, ranks));
}

std::string_view name_of(const RouteTable& table, int rank, int peer) {
  return table.transports()[table.link(rank, peer).transport].name;
}

TEST(RouteTable, EachPairHasTheCheapestTransportThatReachesFromOneToTheOther) {
  const RouteTable table = table_of(slow_and_fast(), 4);
  EXPECT_EQ(name_of(table, 0, 1), "fast");
  EXPECT_EQ(name_of(table, 2, 3), "fast");
  for (const int peer : {2, 3}) EXPECT_EQ(name_of(table, 1, peer), "slow");
  EXPECT_EQ(table.link(0, 1).can.largest_message, 4096u);
  EXPECT_EQ(table.link(0, 2).can.largest_message, 64u << 10);
}

TEST(RouteTable, AListIsTakenInItsOrderWhateverTheCost) {
  const RouteTable table = table_of(slow_and_fast(false), 4);
  for (int peer = 1; peer < 4; ++peer) EXPECT_EQ(name_of(table, 0, peer), "slow");
  EXPECT_EQ(table.summary().only, 0u);
}

TEST(RouteTable, BothEndsComeToTheSameWhoeverAsks) {
  const RouteTable table = table_of(slow_and_fast(), 7);
  for (int rank = 0; rank < 7; ++rank)
    for (int peer = 0; peer < 7; ++peer)
      EXPECT_EQ(name_of(table, rank, peer), name_of(table, peer, rank));
}

TEST(RouteTable, TheSummarySpeaksOfThePairsThatThereAre) {
  const RouteTable both = table_of(slow_and_fast(), 4);
  EXPECT_EQ(both.summary().only, std::nullopt);
  EXPECT_EQ(both.summary().largest_message, 4096u);
  EXPECT_FALSE(both.summary().rings);
  const RouteTable near = table_of(slow_and_fast(), 2);
  EXPECT_EQ(near.summary().only, 1u);
  const RouteTable alone = table_of(slow_and_fast(), 1);
  EXPECT_EQ(alone.summary().only, 1u);
}

TEST(RouteTable, WhatFailsIsLeftForTheNextBestByThePairAloneOrByAllOfARank) {
  const RouteCandidates candidates{{mail::entry<kSlow>(), mail::entry<kShy>()}, true};
  RouteTable table = table_of(candidates, 4);
  EXPECT_EQ(table.summary().only, 1u);
  EXPECT_TRUE(table.summary().may_fail);
  EXPECT_FALSE(table.apply_reports());

  table.cannot_connect(3, 0, "");
  table.cannot_connect(0, 3, "no way");  // both ends report it
  EXPECT_EQ(name_of(table, 0, 3), "shy") << "until all reports of a round have come";
  EXPECT_TRUE(table.apply_reports());
  EXPECT_EQ(name_of(table, 0, 3), "slow");
  EXPECT_EQ(name_of(table, 0, 1), "shy");
  EXPECT_EQ(table.summary().only, std::nullopt);

  table.cannot_make(1, 1, "no device");
  EXPECT_TRUE(table.apply_reports());
  EXPECT_EQ(name_of(table, 0, 1), "slow");
  EXPECT_EQ(name_of(table, 2, 1), "slow");
  EXPECT_EQ(name_of(table, 0, 2), "shy");
}

TEST(RouteTable, WhereAConnectionHasFailedTheErrorSaysWhyAsTheFirstEndThatKnowsDoes) {
  RouteTable table = table_of({{mail::entry<kShy>()}, true}, 2);
  table.cannot_connect(0, 1, "");
  table.cannot_connect(1, 0, "the mail is lost");
  ASSERT_TRUE(table.apply_reports());
  try {
    table.summary();
    FAIL() << "rank 0 does not reach rank 1";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("shy: it did not connect them: rank 1: the mail is lost"));
  }
}

TEST(RouteTable, WhereNothingReachesEachTransportSaysWhy) {
  RouteTable table = table_of({{mail::entry<kFast>(), mail::entry<kShy>()}, true}, 4);
  table.cannot_make(2, 1, "no device");
  ASSERT_TRUE(table.apply_reports());
  try {
    table.summary();
    FAIL() << "rank 0 does not reach rank 2";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::unavailable);
    EXPECT_THAT(error.what(), HasSubstr("no transport joins rank 0 and rank 2"));
    EXPECT_THAT(error.what(), HasSubstr("fast: the mail does not leave its island"));
    EXPECT_THAT(error.what(), HasSubstr("shy: rank 2: no device"));
  }
}

TEST(RouteTable, MemoryThatNoTransportReadsHasNoRoute) {
  const RouteTable table = table_of(slow_and_fast(), 2);
  EXPECT_EQ(table.link(0, 1, MemoryKind::host).transport, 1u);
  EXPECT_THROW(static_cast<void>(table.link(0, 1, MemoryKind::device)), Error);
}

TEST(RouteTable, WhatNoRankCanHavePublishedIsCorrupt) {
  for (const char* text : {"fast", "fast 0", "\n", "fast\n", "slow 0\nfast"}) try {
      const RouteTable table(slow_and_fast(), Texts(text));
      ADD_FAILURE() << "'" << text << "' was taken";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::corrupt);
    }
}

// Tests what shared memory, TCP and the local transport answer for two places.
TEST(RouteTable, TheTransportsOfThisBuildAnswerTheSameInBothDirections) {
  TransportContext context;
  context.hub = nullptr;
  for (const TransportEntry& entry : transports()) {
    const auto place = entry.place(context);
    if (!place) continue;
    const Reach same = entry.reach(*place, *place);
    EXPECT_EQ(same.why_not, "") << entry.name;
    const Reach one = entry.reach(*place, "elsewhere 1 2"),
                other = entry.reach("elsewhere 1 2", *place);
    EXPECT_EQ(one.why_not.empty(), other.why_not.empty()) << entry.name;
    EXPECT_EQ(one.can, other.can) << entry.name;
  }
}

TEST(RouteTable, SaysWhyRanksWithoutAnRdmaDeviceDoNotUseIt) {
  Config config;
  config.rdma_devices = "no_such_device";
  TransportContext context;
  context.config = &config;
  const RouteCandidates candidates{parse_transports("rdma"), false};
  Texts offers{offers_text(candidates, context)};
  offers.append(Texts(offers_text(candidates, context)));
  EXPECT_THAT(RouteTable(candidates, offers).why_not(0, 1, 0), HasSubstr("TUTTI_RDMA_DEVICES"));
}

TEST(RouteTable, RanksOfOneMachineShareMemoryAndOthersUseTcp) {
  const RouteCandidates candidates{transports(), true};
  TransportContext context;
  const std::string here = offers_text(candidates, context);
  std::string there = here;
  for (std::size_t at = 0; (at = there.find('-', at)) != std::string::npos;) there[at] = 'x';
  Texts offers{here};
  offers.append(Texts(here));
  offers.append(Texts(there));
  const RouteTable table(candidates, offers);
  EXPECT_EQ(name_of(table, 0, 1), "shm");
  EXPECT_EQ(name_of(table, 0, 2), "tcp");
}

}  // namespace
}  // namespace tutti
