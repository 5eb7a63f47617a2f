// Tests of what ranks learn of each other's places in their machines.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "runtime/membership/locations.h"

namespace tutti {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

/// Returns the parts of rank 0 after all ranks have said where they are.
CommunicatorParts parts_after(const std::vector<Location>& said) {
  Texts column;
  for (const Location& location : said) column.append(Texts(to_text(location)));
  CommunicatorParts parts;
  parts.shared = std::make_shared<SharedEndpoint>();
  parts.size = static_cast<int>(said.size());
  take_locations(parts, column, locations_of(column));
  return parts;
}

TEST(Places, AreThoseThatRanksOfOneMachineSay) {
  const CommunicatorParts parts = parts_after({{"a", {0}, 1}, {"a", {1}, 0}, {"a", {2}, 1}});
  EXPECT_THAT(parts.places, ElementsAre(1, 0, 1));
  EXPECT_THAT(parts.machines, IsEmpty());
  EXPECT_THAT(parts.request().places, ElementsAre(1, 0, 1));
}

TEST(Places, AreNoneWhereTheRanksOfEachMachineSayTheSame) {
  EXPECT_THAT(parts_after({{"a", {0}, 1}, {"a", {1}, 1}}).places, IsEmpty());
  EXPECT_THAT(parts_after({{"a", {0}, 1}, {"b", {0}, 0}, {"a", {1}, 1}}).places, IsEmpty());
}

TEST(Places, OfSeveralMachinesAreThereForAllRanksIfTheyDifferOnOne) {
  const CommunicatorParts parts = parts_after({{"a", {0}, 0}, {"b", {0}, 2}, {"b", {1}, 1}});
  EXPECT_THAT(parts.places, ElementsAre(0, 2, 1));
  EXPECT_THAT(parts.groups, ElementsAre(0, 1, 1));
  EXPECT_THAT(parts_after({{"a", {0}, 1}, {"b", {0}, 0}, {"a", {1}, 0}, {"b", {1}, 1}}).places,
              ElementsAre(1, 2, 0, 3))
      << "a group may have ranks of both";
}

}  // namespace
}  // namespace tutti
