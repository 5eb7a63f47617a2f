// Runs the program as a user does.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <string>
#include <vector>

#include "../tools/command.h"
#include "files.h"

namespace digits {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::Each;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::MatchesRegex;
using testing::Not;
using testing::StartsWith;
using tutti::tools::Command;

std::vector<std::string> program(const std::vector<std::string>& options, int processes = 0) {
  std::vector<std::string> line;
  if (processes > 0) line = {TUTTI_RUN, "-n", fmt::format("{}", processes), "--"};
  line.insert(line.end(), {DIGITS_PROGRAM, "--images", DIGITS_DATA "/digits-images-idx3-ubyte.gz",
                           "--labels", DIGITS_DATA "/digits-labels-idx1-ubyte.gz"});
  line.insert(line.end(), options.begin(), options.end());
  return line;
}

TEST(DigitsProgram, ProcessesTrainTogetherAndRankZeroPrintsTheResult) {
  Command command(program({"--epochs", "10"}, 3));
  EXPECT_EQ(command.wait(), 0) << command.err();
  EXPECT_THAT(command.out_lines(), Each(StartsWith("[0] ")));
  EXPECT_THAT(command.out_lines(),
              Contains(MatchesRegex("\\[0\\] held-out accuracy 9[0-9]\\.[0-9] %")).Times(1));
  EXPECT_THAT(command.out(), AllOf(HasSubstr("3 buckets; 3 ranks"), HasSubstr("epoch  10/10"),
                                   Not(HasSubstr("\r"))));
  EXPECT_TRUE(command.nothing_is_left());
}

TEST(DigitsProgram, ComparisonShowsTheSameLossForEachNumberOfRanks) {
  Command command(program({"--compare", "1,2,3", "--epochs", "2"}));
  EXPECT_EQ(command.wait(), 0) << command.err();
  EXPECT_THAT(command.out(), AllOf(HasSubstr("\n    1  "), HasSubstr("\n    3  "),
                                   HasSubstr("largest relative difference of the final loss: ")));
}

TEST(DigitsProgram, KilledTrainingIsResumedToTheSameBits) {
  const Folder folder;
  Command straight(program({"--epochs", "30", "--checkpoint", folder / "straight"}));
  EXPECT_EQ(straight.wait(), 0) << straight.err();
  {
    Command killed(program({"--epochs", "30", "--checkpoint", folder / "killed"}));
    ASSERT_TRUE(killed.wait_for_output("epoch   3/30"));
    killed.signal(SIGKILL);
    (void)killed.wait();
  }
  Command resumed(program({"--epochs", "30", "--checkpoint", folder / "killed", "--resume"}));
  EXPECT_EQ(resumed.wait(), 0) << resumed.err();
  EXPECT_THAT(resumed.out(), HasSubstr("resumed after epoch "));
  EXPECT_EQ(read_file(folder / "killed"), read_file(folder / "straight"));
}

TEST(DigitsProgram, ErrorGoesToStandardErrorWithItsKindAndEndsWithStatusOne) {
  const Folder folder;
  write_file(folder / "cut.gz", "\x1f\x8b\x08");
  Command command({DIGITS_PROGRAM, "--images", folder / "cut.gz"});
  EXPECT_EQ(command.wait(), 1);
  EXPECT_THAT(command.out(), IsEmpty());
  EXPECT_THAT(command.err(), AllOf(StartsWith("digits: corrupt: "), HasSubstr("cut short")));
}

TEST(DigitsProgram, RanksOfALauncherCannotBeChosenAgain) {
  Command command(program({"--ranks", "2"}, 1));
  EXPECT_EQ(command.wait(), 1);
  EXPECT_THAT(command.err(), HasSubstr("usage: a launcher has decided the ranks"));
}

TEST(DigitsProgram, HelpNamesEveryOption) {
  Command command({DIGITS_PROGRAM, "--help"});
  EXPECT_EQ(command.wait(), 0);
  EXPECT_THAT(command.out(), AllOf(HasSubstr("--compare"), HasSubstr("--checkpoint"),
                                   HasSubstr("--resume"), HasSubstr("Under a launcher")));
}

}  // namespace
}  // namespace digits
