// Runs the example as its README says.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "../tools/command.h"

namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;
using tutti::tools::Command;

TEST(OwnAlgorithmExample, ShowsProvesAndRunsItsAlgorithmAndHasAWrongOneRefused) {
  Command command({OWN_ALGORITHM_PROGRAM});
  EXPECT_EQ(command.wait(), 0) << command.err();
  EXPECT_THAT(
      command.out(),
      AllOf(StartsWith("all_reduce, rank 0 of 4"),
            HasSubstr("input[0] + rank 1 + rank 2 + rank 3 -> output[0], rank 1, rank 2, "
                      "rank 3; completes"),
            HasSubstr("refused: algorithm 'forgetful' is wrong for all_reduce of 4 ranks: "),
            HasSubstr("misses the contribution of rank 3"),
            HasSubstr("star: 1048576 of 1048576 elements are right")));
}

TEST(OwnAlgorithmExample, PicturesItsSchedules) {
  Command command({OWN_ALGORITHM_PROGRAM, "--dot"});
  EXPECT_EQ(command.wait(), 0) << command.err();
  EXPECT_THAT(command.out(), AllOf(StartsWith("digraph"), HasSubstr("cluster_3")));
}

}  // namespace
