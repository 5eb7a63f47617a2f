#include "collectives/algorithms.h"

#include <gtest/gtest.h>

#include <set>

namespace tutti {
namespace {

TEST(Algorithms, AllHaveNamesOfTheirOwnAndKnowAtLeastOneCollective) {
  std::set<std::string_view> names;
  for (const Algorithm& algorithm : algorithms()) {
    EXPECT_TRUE(names.insert(algorithm.name).second) << algorithm.name;
    bool useful = false;
    for (int what = 0; what < kCollectives; ++what)
      useful = useful || algorithm.knows(static_cast<Collective>(what), 4);
    EXPECT_TRUE(useful) << algorithm.name;
  }
}

}  // namespace
}  // namespace tutti
