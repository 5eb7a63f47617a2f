// Tests of ranks started by the launchers that users have. They use the real launchers, if these
// are installed.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <sstream>
#include <string>
#include <vector>

#include "../tools/command.h"
#include "net/tcp_socket.h"
#include "rendezvous/store/store_server.h"

namespace tutti::tools {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::UnorderedElementsAreArray;

bool is_installed(const std::string& program) {
  std::istringstream path(std::getenv("PATH"));
  for (std::string folder; std::getline(path, folder, ':');)
    if (access((folder + "/" + program).c_str(), X_OK) == 0) return true;
  return false;
}

/// Returns the lines that all ranks print, each of them `times` times.
std::vector<std::string> words_of(int ranks, int times = 1) {
  std::vector<std::string> words;
  for (int rank = 0; rank < ranks; ++rank)
    words.insert(words.end(), static_cast<std::size_t>(times),
                 fmt::format("rank {} of {}: sum {}", rank, ranks, ranks * (ranks + 1) / 2));
  return words;
}

/// Returns the variable that turns a built-in leak checker off, because libpmix leaks memory.
std::string looking_away() {
  const char* options = std::getenv("ASAN_OPTIONS");
  return fmt::format("ASAN_OPTIONS={}:detect_leaks=0", options == nullptr ? "" : options);
}

/// Returns the command without the variables of torch and of a launcher that may have started these
/// tests.
std::vector<std::string> in_clean_environment(std::vector<std::string> command) {
  const std::vector<std::string> clean{
      "env",         "-u", "RANK",       "-u", "WORLD_SIZE",      "-u", "MASTER_ADDR", "-u",
      "MASTER_PORT", "-u", "LOCAL_RANK", "-u", "LOCAL_WORLD_SIZE"};
  command.insert(command.begin(), looking_away());
  command.insert(command.begin(), clean.begin(), clean.end());
  return command;
}

class OpenMpi : public testing::Test {
 protected:
  void SetUp() override {
    if (!is_installed("mpirun.openmpi")) GTEST_SKIP() << "Open MPI's mpirun.openmpi is not here";
    if (!TUTTI_HAS_PMIX) GTEST_SKIP() << "this build has no PMIx";
  }
  static std::vector<std::string> mpirun(int ranks, std::vector<std::string> program) {
    std::vector<std::string> command{"mpirun.openmpi", "--allow-run-as-root", "--oversubscribe",
                                     "-n", std::to_string(ranks)};
    command.insert(command.end(), program.begin(), program.end());
    return in_clean_environment(std::move(command));
  }
};

TEST_F(OpenMpi, StartsRanksThatFindEachOtherWithoutAnyVariable) {
  for (const int ranks : {1, 4}) {
    Command command(mpirun(ranks, {TUTTI_RANK}));
    EXPECT_EQ(command.wait(), 0) << command.err();
    EXPECT_THAT(command.out_lines(), UnorderedElementsAreArray(words_of(ranks)));
    EXPECT_TRUE(command.nothing_is_left());
  }
}

TEST_F(OpenMpi, StartsRanksThatMeetTwice) {
  Command command(mpirun(3, {TUTTI_RANK, "2"}));
  EXPECT_EQ(command.wait(), 0) << command.err();
  EXPECT_THAT(command.out_lines(), UnorderedElementsAreArray(words_of(3, 2)));
}

TEST_F(OpenMpi, LeavesRanksWithVariablesOfTheirOwnToThem) {
  Command command(mpirun(2, {"env", "RANK=0", TUTTI_RANK}));
  EXPECT_NE(command.wait(), 0);
  EXPECT_THAT(command.err(), HasSubstr("WORLD_SIZE is not set"));
}

/// Starts rank 1 of two on different machines, without the secret that rank 0 has, because the
/// launcher did not carry it. An impostor listens in place of rank 0.
class UnderPmixWithoutTheSecretOfRank0 : public testing::Test {
 protected:
  void SetUp() override {
    if (!TUTTI_HAS_PMIX) GTEST_SKIP() << "this build has no PMIx";
  }

  static std::string error_with(const std::vector<std::string>& settings) {
    const JobAddress job{0, 2, "a job of PMIx"};
    std::vector<Listener> listeners;
    const bool tls = std::count(settings.begin(), settings.end(), "TUTTI_TLS=yes") > 0;
    listeners.push_back({net::listen_tcp({"127.0.0.1", 0}), Secret(), tls});
    const int port = net::port_of(listeners.back().socket);
    const StoreServer impostor(job, std::move(listeners));
    std::vector<std::string> command{"env",
                                     "-u",
                                     "TUTTI_SECRET",
                                     "-u",
                                     "TUTTI_SECRET_FILE",
                                     fmt::format("LD_LIBRARY_PATH={}", TUTTI_STAND_IN),
                                     "PMIX_RANK=1",
                                     "PMIX_NAMESPACE=" + job.job,
                                     fmt::format("STAND_IN_WORD=\n127.0.0.1:{}\n", port),
                                     "TUTTI_STARTUP_TIMEOUT_MS=2000"};
    command.insert(command.end(), settings.begin(), settings.end());
    command.emplace_back(TUTTI_RANK);
    Command rank(in_clean_environment(std::move(command)));
    EXPECT_EQ(rank.wait(), 1);
    return rank.err();
  }
};

TEST_F(UnderPmixWithoutTheSecretOfRank0, ARankTakesNoImpostorAndSaysWhichVariableIsMissing) {
  EXPECT_THAT(error_with({}), AllOf(HasSubstr("rank 1"), HasSubstr("TUTTI_SECRET_FILE"),
                                    HasSubstr("TUTTI_TRUST_NETWORK")));
}

TEST_F(UnderPmixWithoutTheSecretOfRank0, ARankThatEncryptsTakesNoImpostorEvenInATrustedNetwork) {
  const auto refused = AllOf(HasSubstr("rank 1"), HasSubstr("TUTTI_SECRET_FILE"));
  EXPECT_THAT(error_with({"TUTTI_TLS=yes"}), refused);
  EXPECT_THAT(error_with({"TUTTI_TLS=yes", "TUTTI_TRUST_NETWORK=yes"}), refused);
}

// The setting asks for this: any process that answers may be rank 0.
TEST_F(UnderPmixWithoutTheSecretOfRank0, ARankInATrustedNetworkJoinsWhoeverIsThere) {
  EXPECT_THAT(error_with({"TUTTI_TRUST_NETWORK=yes"}), HasSubstr("1 of 2 ranks did not come"));
}

/// tutti-perf and the example of digits, with options for a short run, and a text that one job of
/// each prints once.
struct Tool {
  std::vector<std::string> command;
  std::string said_once;
};
std::vector<Tool> tools_and_examples() {
  std::vector<Tool> all{
      {{TUTTI_PERF, "all_reduce", "-b", "8", "-e", "8", "-n", "10"}, "tutti-perf version"}};
  if (const std::string digits = TUTTI_DIGITS; !digits.empty())
    all.push_back({{digits, "--images", DIGITS_DATA "/digits-images-idx3-ubyte.gz", "--labels",
                    DIGITS_DATA "/digits-labels-idx1-ubyte.gz", "--epochs", "1"},
                   "held-out accuracy"});
  return all;
}

/// Expects that the processes form one job, and not one job each.
void expect_one_job(const std::vector<std::string>& command_line, const std::string& said_once) {
  Command command(command_line);
  EXPECT_EQ(command.wait(), 0) << command.err();
  const std::vector<std::string> lines = command.out_lines();
  EXPECT_THAT(
      std::count_if(lines.begin(), lines.end(),
                    [&](const auto& line) { return line.find(said_once) != std::string::npos; }),
      1)
      << testing::PrintToString(lines);
}

TEST_F(OpenMpi, StartsTheRanksOfToolsAndExamples) {
  for (const Tool& tool : tools_and_examples())
    expect_one_job(mpirun(2, tool.command), tool.said_once);
}

TEST_F(OpenMpi, LeavesNoRanksToToolsThatStartTheirOwn) {
  Command command(mpirun(1, {TUTTI_PERF, "--tune", "--tune-file", "/nowhere/tuning.json"}));
  EXPECT_NE(command.wait(), 0);
  EXPECT_THAT(command.err(), AllOf(HasSubstr("tutti-perf: rank 0: usage: "),
                                   HasSubstr("run it without a launcher")));
}

class Slurm : public testing::Test {
 protected:
  void SetUp() override {
    if (prefix_ == nullptr &&
        (!is_installed("scontrol") || Command({"scontrol", "ping"}).wait() != 0))
      GTEST_SKIP() << "no Slurm runs here (set TUTTI_TEST_SLURM to a command that runs another in "
                      "one)";
    if (!TUTTI_HAS_PMIX) GTEST_SKIP() << "this build has no PMIx";
  }
  std::vector<std::string> srun(int ranks, const std::vector<std::string>& program) const {
    std::vector<std::string> command;
    std::istringstream words(prefix_ == nullptr ? "" : prefix_);
    for (std::string word; words >> word;) command.push_back(word);
    command.insert(command.end(),
                   {"srun", "--mpi=pmix", "-n", std::to_string(ranks), "--overcommit"});
    command.insert(command.end(), program.begin(), program.end());
    return in_clean_environment(std::move(command));
  }

 private:
  const char* const prefix_ = std::getenv("TUTTI_TEST_SLURM");
};

TEST_F(Slurm, StartsRanksThatFindEachOtherWithoutAnyVariable) {
  Command command(srun(4, {TUTTI_RANK}));
  EXPECT_EQ(command.wait(), 0) << command.err();
  EXPECT_THAT(command.out_lines(), UnorderedElementsAreArray(words_of(4)));
}

TEST_F(Slurm, StartsTheRanksOfToolsAndExamples) {
  for (const Tool& tool : tools_and_examples())
    expect_one_job(srun(2, tool.command), tool.said_once);
}

TEST(Torchrun, StartsRanksThatFindEachOtherThoughItHasTheirPort) {
  const std::string torchrun = TUTTI_TORCHRUN;
  if (access(torchrun.c_str(), X_OK) != 0)
    GTEST_SKIP() << "torchrun is not in " << torchrun << " (./dev setup --torch puts it there)";
  Command command(
      in_clean_environment({torchrun, "--nproc-per-node", "2", "--no-python", TUTTI_RANK}));
  EXPECT_EQ(command.wait(), 0) << command.err();
  EXPECT_THAT(command.out_lines(), UnorderedElementsAreArray(words_of(2)));
}

}  // namespace
}  // namespace tutti::tools
