#include "rendezvous/launch/launch_environment.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <map>
#include <string>
#include <vector>

#include "test_job.h"

namespace tutti {
namespace {

using testing::HasSubstr;

using Variables = std::map<std::string, std::string>;

LaunchEnvironment read(const Variables& variables) {
  std::vector<std::string> entries;
  for (const auto& [name, value] : variables) entries.push_back(name + "=" + value);
  const std::vector<std::string_view> views(entries.begin(), entries.end());
  return read_launch_environment(views);
}

Variables good() {
  return {{"RANK", "2"},
          {"WORLD_SIZE", "4"},
          {"LOCAL_RANK", "1"},
          {"MASTER_ADDR", "localhost"},
          {"MASTER_PORT", "29500"},
          {"TORCHELASTIC_RUN_ID", "job 7"}};
}

Variables good_with(const std::string& name, const std::string& value) {
  Variables variables = good();
  variables[name] = value;
  return variables;
}

Variables good_without(const std::string& name) {
  Variables variables = good();
  variables.erase(name);
  return variables;
}

TEST(LaunchEnvironment, ReadsWhatTorchrunSets) {
  const LaunchEnvironment launch = read(good());
  EXPECT_EQ(launch.rank, 2);
  EXPECT_EQ(launch.size, 4);
  EXPECT_EQ(launch.local_rank, 1);
  EXPECT_EQ(launch.master_address, "localhost");
  EXPECT_EQ(launch.master_port, 29500);
  EXPECT_EQ(launch.job, "job 7");
}

TEST(LaunchEnvironment, TakesTheRankForTheLocalRankWhereNoneIsSet) {
  EXPECT_EQ(read(good_without("LOCAL_RANK")).local_rank, 2);
}

TEST(LaunchEnvironment, NeedsNoMasterForOneRank) {
  const LaunchEnvironment launch = read({{"RANK", "0"}, {"WORLD_SIZE", "1"}});
  EXPECT_EQ(launch.size, 1);
  EXPECT_EQ(launch.master_port, 0);
}

TEST(LaunchEnvironment, NamesAVariableThatIsMissingOrEmptyAndSaysWhatToDo) {
  for (const std::string name : {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}) {
    for (const Variables& variables : {good_without(name), good_with(name, "")}) {
      const Error error = error_of([&] { read(variables); });
      EXPECT_EQ(error.kind(), ErrorKind::usage) << name;
      EXPECT_THAT(error.what(), HasSubstr(name + " is"));
      EXPECT_THAT(error.what(), HasSubstr("tutti-run"));
    }
  }
}

TEST(LaunchEnvironment, NamesAVariableThatIsNoNumberInItsRangeAndItsValue) {
  const std::vector<std::pair<std::string, std::string>> bad{
      {"RANK", "-1"},           {"RANK", "two"},         {"RANK", "1 "},
      {"RANK", "0x1"},          {"RANK", "2147483648"},  {"WORLD_SIZE", "0"},
      {"WORLD_SIZE", "-4"},     {"WORLD_SIZE", "4.0"},   {"WORLD_SIZE", "65537"},
      {"LOCAL_RANK", "-1"},     {"LOCAL_RANK", "zero"},  {"MASTER_PORT", "0"},
      {"MASTER_PORT", "65536"}, {"MASTER_PORT", "http"}, {"MASTER_PORT", "99999999999"}};
  for (const auto& [name, value] : bad) {
    const Error error =
        error_of([&, &name = name, &value = value] { read(good_with(name, value)); });
    EXPECT_EQ(error.kind(), ErrorKind::usage) << name << "=" << value;
    EXPECT_THAT(error.what(), HasSubstr(fmt::format("{} is '{}'", name, value)));
  }
}

TEST(LaunchEnvironment, RefusesARankThatIsNotBelowTheWorldSize) {
  for (const std::string name : {"RANK", "LOCAL_RANK"}) {
    const Error error = error_of([&] { read(good_with(name, "4")); });
    EXPECT_EQ(error.kind(), ErrorKind::usage);
    EXPECT_THAT(error.what(), HasSubstr(name + " is 4 but WORLD_SIZE is 4"));
  }
}

TEST(LaunchEnvironment, TakesTheAddressOfATcpStoreBeforeTheVariables) {
  const std::vector<std::string_view> entries{"RANK=1", "WORLD_SIZE=2", "MASTER_ADDR=ignored"};
  const LaunchEnvironment launch = read_launch_environment(entries, "tcp://[fd77::1]:4711");
  EXPECT_EQ(launch.master_address, "fd77::1");
  EXPECT_EQ(launch.master_port, 4711);
  EXPECT_TRUE(launch.tcp_alone);
}

TEST(LaunchEnvironment, KnowsThatTorchrunKeepsThePortForItself) {
  EXPECT_EQ(read(good()).agent_key, "");
  Variables variables = good_with("TORCHELASTIC_USE_AGENT_STORE", "True");
  EXPECT_EQ(read(variables).agent_key, "tutti/job 7/0");
  variables["TORCHELASTIC_RESTART_COUNT"] = "2";
  EXPECT_EQ(read(variables).agent_key, "tutti/job 7/2") << "a restart has a word of its own";
  variables["LOCAL_WORLD_SIZE"] = "5";
  EXPECT_EQ(error_of([&] { read(variables); }).kind(), ErrorKind::usage);
}

TEST(LaunchEnvironment, LooksForPmixOnlyWhereNoVariableSaysMore) {
  const std::vector<std::string_view> both{"RANK=0", "WORLD_SIZE=1", "PMIX_RANK=3",
                                           "PMIX_NAMESPACE=job"};
  EXPECT_EQ(find_launch(both, "auto", in_time()).size, 1);
  const std::vector<std::string_view> part{"RANK=0", "PMIX_RANK=3", "PMIX_NAMESPACE=job"};
  EXPECT_EQ(error_of([&] { find_launch(part, "auto", in_time()); }).kind(), ErrorKind::usage);
}

TEST(LaunchEnvironment, KnowsWhetherAnyLauncherHasStartedThisProcessAndItsRank) {
  using Entries = std::vector<std::string_view>;
  const auto rank_of = [](const Entries& entries) {
    return is_launched(entries) ? "rank " + std::string(launched_rank(entries)) : "none";
  };
  EXPECT_EQ(rank_of({}), "none");
  EXPECT_EQ(rank_of({"MASTER_ADDR=here", "LOCAL_RANK=1", "PMIX_RANK=1"}), "none");
  EXPECT_EQ(rank_of({"RANK=2", "WORLD_SIZE=4"}), "rank 2");
  EXPECT_EQ(rank_of({"WORLD_SIZE=4"}), "rank ");  // find_launch() refuses this
  EXPECT_EQ(rank_of({"PMIX_RANK=1", "PMIX_NAMESPACE=job"}), "rank 1");
  EXPECT_EQ(rank_of({"RANK=2", "PMIX_RANK=1", "PMIX_NAMESPACE=job"}), "rank 2");
}

TEST(LaunchEnvironment, AProcessWithoutARankThatKnowsWhereAJobIsIsANewcomer) {
  using Entries = std::vector<std::string_view>;
  EXPECT_FALSE(is_newcomer(Entries{}));
  EXPECT_FALSE(is_newcomer(Entries{"MASTER_ADDR=here"}));
  EXPECT_FALSE(is_newcomer(Entries{"MASTER_ADDR=here", "MASTER_PORT="}));
  EXPECT_TRUE(is_newcomer(Entries{"MASTER_ADDR=here", "MASTER_PORT=4711"}));
  EXPECT_TRUE(is_newcomer(Entries{"TUTTI_STORE=tcp://here:4711"}));
  EXPECT_TRUE(is_newcomer(Entries{"TUTTI_STORE=file:///here"}));
  EXPECT_FALSE(is_newcomer(Entries{"TUTTI_STORE=auto"}));
  EXPECT_FALSE(is_newcomer(Entries{"MASTER_ADDR=here", "MASTER_PORT=4711", "RANK=0"}));
  EXPECT_FALSE(is_newcomer(
      Entries{"MASTER_ADDR=here", "MASTER_PORT=4711", "PMIX_RANK=0", "PMIX_NAMESPACE=job"}));
}

TEST(LaunchEnvironment, ReadsTheFirstOfTwoEntriesOfOneName) {
  const std::vector<std::string_view> twice{"RANK=0", "WORLD_SIZE=1", "RANK=7"};
  EXPECT_EQ(read_launch_environment(twice).rank, 0);
}

}  // namespace
}  // namespace tutti
