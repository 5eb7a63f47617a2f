#include "collectives/verify/expressions.h"

#include <gtest/gtest.h>

namespace tutti::collectives {
namespace {

using Values = std::vector<Value>;

TEST(Expressions, EqualFoldsAreOneValueAndTheOrderOfOperandsTellsThemApart) {
  Expressions values(3, 1, false);
  const Value a = values.leaf(0, 0);
  const Value b = values.leaf(1, 0);
  EXPECT_EQ(values.fold(Values{a, b}, false), values.fold(Values{a, b}, false));
  EXPECT_NE(values.fold(Values{a, b}, false), values.fold(Values{b, a}, false));
  EXPECT_NE(values.fold(Values{a, b}, false), values.fold(Values{a, b}, true));
}

TEST(Expressions, AFoldOfThreeIsNotTwoFoldsOfTwoBecauseItRoundsOnce) {
  Expressions values(3, 1, false);
  const Values leaves{values.leaf(0, 0), values.leaf(1, 0), values.leaf(2, 0)};
  const Value two = values.fold(Values{leaves[0], leaves[1]}, false);
  EXPECT_NE(values.fold(leaves, false), values.fold(Values{two, leaves[2]}, false));
}

TEST(Expressions, ACopyIsTheValueItselfUntilItIsCompleted) {
  Expressions values(2, 1, false);
  const Value a = values.leaf(0, 0);
  EXPECT_EQ(values.fold(Values{a}, false), a);
  const Value completed = values.fold(Values{a}, true);
  EXPECT_NE(completed, a);
  EXPECT_TRUE(values.is_final(completed));
  EXPECT_FALSE(values.is_final(a));
}

TEST(Expressions, WhereNothingIsReducedInputsAreFinal) {
  const Expressions values(2, 1, true);
  EXPECT_TRUE(values.is_final(values.leaf(1, 0)));
}

TEST(Expressions, ValuesKnowTheirItem) {
  Expressions values(2, 5, false);
  const Value fold = values.fold(Values{values.leaf(0, 3), values.leaf(1, 3)}, false);
  EXPECT_EQ(values.item(values.leaf(1, 4)), 4);
  EXPECT_EQ(values.item(fold), 3);
}

TEST(Expressions, MissingAndDoubleContributionsAreNamedBeyondOneWordOfRanks) {
  constexpr int kRanks = 150;
  Expressions values(kRanks, 2, false);
  Values leaves;
  for (int rank = 0; rank < kRanks; ++rank)
    if (rank != 131) leaves.push_back(values.leaf(rank, 1));
  const Value most = values.fold(leaves, false);
  EXPECT_EQ(values.missing(most), 131);
  const Value rest = values.leaf(131, 1);
  EXPECT_EQ(values.counted_twice(Values{most, rest}), -1);
  EXPECT_EQ(values.missing(values.fold(Values{most, rest}, true)), -1);
  EXPECT_EQ(values.counted_twice(Values{most, values.leaf(149, 1)}), 149);
  EXPECT_EQ(values.counted_twice(Values{rest, rest}), 131);
  const Value pair = values.fold(Values{rest, values.leaf(70, 1)}, false);
  EXPECT_EQ(values.counted_twice(Values{most, pair}), 70);
}

TEST(Expressions, ManyValuesKeepTheirNumbersWhileTheTableGrows) {
  constexpr int kItems = 5000;
  Expressions values(2, kItems, false);
  Values folds;
  for (int item = 0; item < kItems; ++item)
    folds.push_back(values.fold(Values{values.leaf(0, item), values.leaf(1, item)}, false));
  for (int item = 0; item < kItems; ++item) {
    EXPECT_EQ(values.fold(Values{values.leaf(0, item), values.leaf(1, item)}, false), folds[item]);
    EXPECT_EQ(values.item(folds[item]), item);
  }
}

}  // namespace
}  // namespace tutti::collectives
