// Trains through failures: processes are killed, the others go on, and newcomers come.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "../tools/command.h"
#include "files.h"
#include "ranks.h"

namespace digits {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using tutti::tools::Command;

constexpr const char* kImages = DIGITS_DATA "/digits-images-idx3-ubyte.gz";
constexpr const char* kLabels = DIGITS_DATA "/digits-labels-idx1-ubyte.gz";
constexpr int kEpochs = 6, kSteps = 23;  // steps of one epoch

/// What a training without faults comes to.
const Result& without_faults() {
  static const Result result = [] {
    Settings settings;
    settings.epochs = kEpochs;
    return train_on_threads(4, load(kImages, kLabels), settings, nullptr);
  }();
  return result;
}

/// `tutti-run <launch> -- digits --elastic <options>`. Where nothing fails, no wait takes long.
std::vector<std::string> job(const std::vector<std::string>& launch,
                             const std::vector<std::string>& options, int epochs = kEpochs) {
  std::vector<std::string> line{TUTTI_RUN, "--timeout", "55"};
  line.insert(line.end(), launch.begin(), launch.end());
  line.insert(line.end(), {"--", DIGITS_PROGRAM, "--images", kImages, "--labels", kLabels,
                           "--elastic", "--patience", "50", "--epochs", std::to_string(epochs)});
  line.insert(line.end(), options.begin(), options.end());
  return line;
}

/// The text between `before` and the end of its line.
std::string after(const std::string& text, const std::string& before) {
  const std::size_t begin = text.find(before);
  if (begin == std::string::npos) return "nothing after '" + before + "'";
  return text.substr(begin + before.size(), text.find('\n', begin) - begin - before.size());
}

void expect_the_result_without_faults(const std::string& out) {
  const double loss = std::atof(after(out, "training loss ").c_str());
  // Sums of floats in another order differ by 1e-7; one sample lost or counted twice by 1e-3.
  EXPECT_LT(std::abs(loss - without_faults().loss), 1e-5 * without_faults().loss) << out;
  EXPECT_EQ(after(out, "held-out accuracy "),
            fmt::format("{:.1f} %", 100 * without_faults().accuracy));
  EXPECT_THAT(out, HasSubstr(fmt::format("each of 1438 samples was in exactly one step of each of "
                                         "{} epochs\n",
                                         kEpochs)));
}

class Elastic : public testing::TestWithParam<const char*> {
 protected:
  std::string transport() const { return std::string("TUTTI_TRANSPORTS=") + GetParam(); }

  /// Runs four ranks with `options`, of which some kill themselves, and newcomers in their places.
  std::string train_with_newcomers(int newcomers, std::vector<std::string> options,
                                   const std::string& store = "auto") const {
    options.insert(options.end(), {"--await-newcomers", "50"});
    // A newcomer that comes to serve the store of a job that has ended waits for its start-up time.
    Command command(
        job({"-n", "4", "--max-restarts", std::to_string(newcomers), "--env", transport(), "--env",
             "TUTTI_STORE=" + store, "--env", "TUTTI_STARTUP_TIMEOUT_MS=25000"},
            options));
    EXPECT_EQ(command.wait(), 0) << command.out() << command.err();
    EXPECT_TRUE(command.nothing_is_left());
    expect_the_result_without_faults(command.out());
    return command.out() + command.err();
  }
};

TEST_P(Elastic, TheOthersGoOnFromTheLastFinishedStepAndANewcomerTakesItsShare) {
  // In the first step, in the last of an epoch, and in the first and the middle of one.
  for (const int step : {0, kSteps - 1, 2 * kSteps, 2 * kSteps + kSteps / 2}) {
    const std::string said = train_with_newcomers(1, {"--kill", "2", std::to_string(step)});
    EXPECT_THAT(said, AllOf(HasSubstr(fmt::format("[2] kills itself (kill -9 ")),
                            HasSubstr("[0] 3 of 4 ranks are left: known to all "),
                            HasSubstr(fmt::format("[0] 3 ranks go on from step {}: ", step)),
                            HasSubstr("[4] has joined the job as rank 3 of 4\n"),
                            HasSubstr("[0] 4 ranks go on from step "),
                            HasSubstr("was ended by signal 9 (Killed); the job goes on with the "
                                      "other 3, and newcomer 4 is started\n")));
    for (const char* const survivor : {"[0] ", "[1] ", "[3] "})
      EXPECT_THAT(after(said, std::string("\n") + survivor + "peer_lost: "),
                  HasSubstr("rank 2 is lost"));
  }
}

TEST_P(Elastic, RanksThatAreAStepAheadUndoIt) {
  std::string said;
  // A rank that the abort meets while it waits for the last gradients has not finished the step.
  for (int run = 0; run < 5 && said.find("undoes step 40,") == std::string::npos; ++run)
    said = train_with_newcomers(0, {"--abort", "2", "40"});
  EXPECT_THAT(said, AllOf(HasSubstr("undoes step 40, which not all have finished\n"),
                          HasSubstr("[0] 4 ranks go on from step 40: ")));
}

TEST_P(Elastic, TwoRanksThatEndInOneStepAreReplaced) {
  const std::string said = train_with_newcomers(2, {"--kill", "1", "30", "--kill", "3", "30"});
  EXPECT_THAT(said, AllOf(HasSubstr("2 newcomers came"), HasSubstr("[4] has joined the job"),
                          HasSubstr("[5] has joined the job")));
}

TEST_P(Elastic, ARankThatEndsAfterANewcomerCameIsReplacedToo) {
  const std::string said =
      train_with_newcomers(2, {"--kill", "1", "5", "--kill", "3", std::to_string(3 * kSteps + 5)});
  EXPECT_THAT(after(said, "[4] peer_lost: "), HasSubstr("rank"));
  EXPECT_THAT(said, HasSubstr("[5] has joined the job as rank 3 of 4"));
}

TEST_P(Elastic, RankZeroMayEndWhereItDoesNotServeTheStore) {
  const Folder folder;
  const std::string said =
      train_with_newcomers(1, {"--kill", "0", "40"}, "file://" + (folder / "store"));
  EXPECT_THAT(said, HasSubstr("[4] has joined the job as rank 3 of 4"));
}

TEST_P(Elastic, WithoutNewcomersTheOthersTrainToTheEnd) {
  // The last step of all has nothing after it but the ranks' last agreement.
  for (const int step : {30, kEpochs * kSteps - 1}) {
    Command command(job({"-n", "4", "--max-failures", "1", "--env", transport()},
                        {"--await-newcomers", "0", "--kill", "3", std::to_string(step)}));
    EXPECT_EQ(command.wait(), 0) << command.out() << command.err();
    expect_the_result_without_faults(command.out());
    EXPECT_THAT(command.out(), Not(HasSubstr("newcomer")));
    EXPECT_TRUE(command.nothing_is_left());
  }
}

TEST_P(Elastic, ANewcomerForWhomNoEpochIsLeftDoesNotDisturbTheEnd) {
  const std::string said =
      train_with_newcomers(1, {"--kill", "2", std::to_string(kEpochs * kSteps - 1)});
  EXPECT_THAT(said, Not(HasSubstr("[4] has joined")));
}

INSTANTIATE_TEST_SUITE_P(Transports, Elastic, testing::Values("shm", "tcp"),
                         [](const auto& test) { return std::string(test.param); });

std::string variable_of(pid_t process, const std::string& name) {
  std::ifstream file(fmt::format("/proc/{}/environ", process), std::ios::binary);
  for (std::string entry; std::getline(file, entry, '\0');)
    if (entry.starts_with(name + "=")) return entry.substr(name.size() + 1);
  return "";
}

/// Finds the process of a rank among those of a job.
pid_t process_of(const Command& command, const std::string& rank) {
  for (const pid_t process : command.marked_processes())
    if (variable_of(process, "RANK") == rank) return process;
  return 0;
}

TEST(ElasticProgram, IsKilledFromOutsideAndJoinedByHand) {
  // The ranks wait for the newcomer, so that it need not be quick.
  Command ranks(job({"-n", "3", "--max-failures", "1"}, {"--await-newcomers", "50"}, 3000));
  ASSERT_TRUE(ranks.wait_for_output("epoch   2/")) << ranks.err();
  const std::string port = variable_of(process_of(ranks, "0"), "MASTER_PORT");
  const pid_t victim = process_of(ranks, "1");
  ASSERT_GT(victim, 0);
  ASSERT_EQ(kill(victim, SIGKILL), 0);
  ASSERT_TRUE(ranks.wait_for_output("2 of 3 ranks are left: shrink took ")) << ranks.err();
  Command newcomer(job({"-n", "1", "--join", port}, {}));
  ASSERT_TRUE(newcomer.wait_for_output("[0] has joined the job as rank 2 of 3")) << newcomer.err();
  ASSERT_TRUE(ranks.wait_for_output("3 ranks go on from step ")) << ranks.err();
  ranks.signal(SIGTERM);
  EXPECT_EQ(ranks.wait(), 128 + SIGTERM);
  (void)newcomer.wait();  // it loses its ranks
  EXPECT_TRUE(ranks.nothing_is_left());
  EXPECT_TRUE(newcomer.nothing_is_left());
}

TEST(ElasticProgram, NeedsALauncher) {
  Command alone({DIGITS_PROGRAM, "--images", kImages, "--labels", kLabels, "--elastic"});
  EXPECT_EQ(alone.wait(), 1);
  EXPECT_THAT(alone.err(), HasSubstr("usage: ranks that may end are processes"));
}

}  // namespace
}  // namespace digits
