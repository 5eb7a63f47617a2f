#include "collectives/planning/machine_costs.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace tutti {
namespace {

TEST(MachineCosts, ComeBackFromTextAsTheyWere) {
  MachineCosts costs;
  costs.step = 7;
  costs.anywhere = LinkKind::other_package;
  costs.links[5].write_kib = 123;
  EXPECT_EQ(parse_costs(to_text(costs)), costs);
  EXPECT_EQ(parse_costs(to_text(MachineCosts{})), MachineCosts{});
}

TEST(MachineCosts, TextThatIsCutShortOrWrongIsNone) {
  const std::string whole = to_text(MachineCosts{});
  for (std::size_t space = whole.find(' '); space != std::string::npos;
       space = whole.find(' ', space + 1))
    EXPECT_EQ(parse_costs(whole.substr(0, space)), std::nullopt);
  EXPECT_EQ(parse_costs(""), std::nullopt);
  EXPECT_EQ(parse_costs(whole + " 1"), std::nullopt);
  EXPECT_EQ(parse_costs(fmt::format("6{}", whole.substr(1))), std::nullopt)
      << "no such kind of link";
  EXPECT_EQ(parse_costs(fmt::format("{}-{}", whole.substr(0, 2), whole.substr(2))), std::nullopt)
      << "below 0";
}

TEST(MachineCosts, DefaultsAreWithinTheirRanges) {
  const MachineCosts costs;
  for (const auto& field : machine_fields()) {
    EXPECT_GE(costs.*field.member, field.least) << field.name;
    EXPECT_LE(costs.*field.member, field.most) << field.name;
  }
}

}  // namespace
}  // namespace tutti
