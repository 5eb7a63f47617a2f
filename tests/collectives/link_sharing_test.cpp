#include "collectives/planning/link_sharing.h"

#include <gtest/gtest.h>

#include <limits>
#include <set>
#include <vector>

#include "common/random.h"

namespace tutti {
namespace {

using Use = LinkSharing::Use;

TEST(LinkSharing, GivesAFlowAloneAllOfItsNarrowestLink) {
  LinkSharing sharing({10, 4, 7}, 0);
  const auto flow = sharing.add(std::vector<Use>{{0, 1}, {1, 1}, {2, 1}});
  sharing.start(flow);
  EXPECT_EQ(sharing.settle().size(), 1u);
  EXPECT_DOUBLE_EQ(sharing.rate(flow), 4);
  sharing.stop(flow);
  EXPECT_TRUE(sharing.settle().empty());
  EXPECT_EQ(sharing.rate(flow), 0);
}

TEST(LinkSharing, GivesWhatOneFlowCannotUseToTheOthers) {
  // The long flow shares the first link with two others and is held back there; the flow of the
  // second link gets the rest of it.
  LinkSharing sharing({9, 10}, 0);
  const auto both = sharing.add(std::vector<Use>{{0, 1}, {1, 1}});
  const auto one = sharing.add(std::vector<Use>{{0, 1}}),
             two = sharing.add(std::vector<Use>{{0, 1}});
  const auto last = sharing.add(std::vector<Use>{{1, 1}});
  for (const auto flow : {both, one, two, last}) sharing.start(flow);
  sharing.settle();
  for (const auto flow : {both, one, two}) EXPECT_DOUBLE_EQ(sharing.rate(flow), 3);
  EXPECT_DOUBLE_EQ(sharing.rate(last), 7);
  sharing.stop(one);
  sharing.settle();
  EXPECT_DOUBLE_EQ(sharing.rate(both), 4.5);
  EXPECT_DOUBLE_EQ(sharing.rate(two), 4.5);
  EXPECT_DOUBLE_EQ(sharing.rate(last), 5.5);
}

TEST(LinkSharing, CountsAFlowThatStandsForSeveralAsOftenAsTheyUseALink) {
  LinkSharing sharing({12}, 0);
  const auto three = sharing.add(std::vector<Use>{{0, 3}}),
             one = sharing.add(std::vector<Use>{{0, 1}});
  sharing.start(three);
  sharing.settle();
  EXPECT_DOUBLE_EQ(sharing.rate(three), 4);
  sharing.start(one);
  sharing.settle();
  EXPECT_DOUBLE_EQ(sharing.rate(three), 3);
  EXPECT_DOUBLE_EQ(sharing.rate(one), 3);
}

/// Returns max-min fair rates by their definition: of all links, the one whose equal share is the
/// least decides, until no flow is left.
std::vector<double> reference(const std::vector<double>& capacities,
                              const std::vector<std::vector<Use>>& flows,
                              const std::set<std::uint32_t>& active) {
  std::vector<double> rates(flows.size(), 0), room = capacities;
  std::set<std::uint32_t> open = active;
  while (!open.empty()) {
    double least = std::numeric_limits<double>::max();
    std::uint32_t link = 0;
    std::vector<double> weight(capacities.size(), 0);
    for (const std::uint32_t flow : open)
      for (const Use& use : flows[flow]) weight[use.link] += use.weight;
    for (std::uint32_t at = 0; at < capacities.size(); ++at)
      if (weight[at] > 0 && room[at] / weight[at] < least) {
        least = room[at] / weight[at];
        link = at;
      }
    for (const std::uint32_t flow : std::set<std::uint32_t>(open)) {
      bool held = false;
      for (const Use& use : flows[flow]) held |= use.link == link;
      if (!held) continue;
      rates[flow] = least;
      for (const Use& use : flows[flow]) room[use.link] -= use.weight * least;
      open.erase(flow);
    }
  }
  return rates;
}

TEST(LinkSharing, IsMaxMinFairWhateverStartsAndStops) {
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    SeededRandom random(seed);
    const auto below = [&](std::uint64_t most) { return random.next() % most; };
    std::vector<double> capacities;
    for (std::uint64_t link = 0; link < 3 + below(12); ++link)
      capacities.push_back(1 + static_cast<double>(below(30)));
    std::vector<std::vector<Use>> flows;
    LinkSharing sharing(capacities, 0);
    for (std::uint64_t flow = 0; flow < 5 + below(40); ++flow) {
      std::vector<Use> uses;
      for (std::uint32_t link = 0; link < capacities.size(); ++link)
        if (below(4) == 0) uses.push_back({link, 1 + static_cast<double>(below(3))});
      if (uses.empty()) uses.push_back({0, 1});
      flows.push_back(uses);
      ASSERT_EQ(sharing.add(uses), flow);
    }
    std::set<std::uint32_t> active;
    for (int change = 0; change < 200; ++change) {
      for (std::uint64_t k = 0; k < 1 + below(3); ++k) {
        const auto flow = static_cast<std::uint32_t>(below(flows.size()));
        if (active.erase(flow) > 0) {
          sharing.stop(flow);
        } else {
          sharing.start(flow);
          active.insert(flow);
        }
      }
      sharing.settle();
      const std::vector<double> fair = reference(capacities, flows, active);
      for (std::uint32_t flow = 0; flow < flows.size(); ++flow)
        ASSERT_NEAR(sharing.rate(flow), fair[flow], 1e-6 * (1 + fair[flow]))
            << "seed " << seed << ", change " << change << ", flow " << flow;
    }
  }
}

TEST(LinkSharing, WithAToleranceStaysNearFair) {
  SeededRandom random(7);
  const std::vector<double> capacities(6, 10);
  std::vector<std::vector<Use>> flows;
  LinkSharing sharing(capacities, 0.01);
  for (std::uint32_t flow = 0; flow < 30; ++flow) {
    flows.push_back({{flow % 6, 1}, {(flow + 1 + flow / 6) % 6, 1}});
    if (flows.back()[0].link == flows.back()[1].link) flows.back().pop_back();
    sharing.add(flows.back());
  }
  std::set<std::uint32_t> active;
  for (int change = 0; change < 500; ++change) {
    const auto flow = static_cast<std::uint32_t>(random.next() % 30);
    if (active.erase(flow) > 0)
      sharing.stop(flow);
    else
      sharing.start(flow), active.insert(flow);
    sharing.settle();
    const std::vector<double> fair = reference(capacities, flows, active);
    std::vector<double> load(6, 0);
    for (const std::uint32_t one : active) {
      for (const Use& use : flows[one]) load[use.link] += sharing.rate(one);
      ASSERT_NEAR(sharing.rate(one), fair[one], 0.1 * fair[one]) << change;
    }
    for (const double sum : load) ASSERT_LE(sum, 10 * (1 + 1e-9));
  }
}

}  // namespace
}  // namespace tutti
