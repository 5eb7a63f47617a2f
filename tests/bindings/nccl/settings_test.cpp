// Tests variables of the environment, the log, and encryption.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "ranks.h"

namespace tutti::test {
namespace {

using testing::HasSubstr;

std::string contents(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

// Makes the sum of all ranks, of which each is a process that has set the variables.
void sum_with(const std::vector<std::pair<std::string, std::string>>& variables,
              const std::string& failure = "") {
  SharedId id;
  Processes ranks(2, [&](int rank) {
    for (const auto& [name, value] : variables) setenv(name.c_str(), value.c_str(), 1);
    ncclComm_t comm = nullptr;
    std::vector<float> data(10'000, 1), all(20'000);
    CHECK_NCCL(ncclCommInitRank(&comm, 2, id.of_rank(rank), rank));
    CHECK_NCCL(
        ncclAllReduce(data.data(), data.data(), data.size(), ncclFloat32, ncclSum, comm, nullptr));
    expect_equal(data, std::vector<float>(10'000, 2), "the sum");
    CHECK_NCCL(ncclAllGather(data.data(), all.data(), data.size(), ncclFloat32, comm, nullptr));
    expect_equal(all, std::vector<float>(20'000, 2), "what was gathered");
    CHECK_NCCL(ncclCommDestroy(comm));
  });
  const std::string outcome = ranks.outcome(0);
  EXPECT_THAT(outcome, HasSubstr(failure));
  EXPECT_EQ(outcome.empty(), failure.empty()) << outcome;
  if (failure.empty()) {  // Else rank 1 waits for the id.
    EXPECT_EQ(ranks.outcome(1), "");
  }
}

TEST(NcclSettings, TransportsAndAlgorithmsAreThoseOfTheVariables) {
  sum_with({{"NCCL_SHM_DISABLE", "1"}});
  sum_with({{"NCCL_P2P_DISABLE", "1"}});
  sum_with({{"NCCL_IB_DISABLE", "1"}});
  sum_with({{"NCCL_NET", "Socket"}, {"NCCL_SHM_DISABLE", "1"}});
  sum_with({{"NCCL_ALGO", "Tree,Ring"}});
  sum_with({{"NCCL_ALGO", "^ring;allgather:ring"}});
}

TEST(NcclSettings, AnErrorNamesTheVariableThatTheProgramHasSet) {
  sum_with({{"NCCL_SHM_DISABLE", "1"}, {"NCCL_SOCKET_IFNAME", "none9"}},
           "TUTTI_INTERFACES (set by NCCL_SOCKET_IFNAME)=none9");
  sum_with(
      {{"NCCL_SHM_DISABLE", "1"}, {"NCCL_SOCKET_IFNAME", "none9"}, {"TUTTI_INTERFACES", "none8"}},
      "TUTTI_INTERFACES=none8");
}

TEST(NcclSettings, ValuesThatAreNoneAreRefused) {
  sum_with({{"NCCL_ALGO", "scan:ring"}}, "names the function 'scan'");
  sum_with({{"NCCL_NET", "AWS Libfabric"}}, "the network 'AWS Libfabric' is a plug-in");
  sum_with({{"NCCL_IB_TC", "many"}}, "rdma_traffic_class");
  sum_with({{"NCCL_COMM_ID", "localhost"}}, "is no address of a store");
  sum_with({{"NCCL_COMM_ID", "192.0.2.1:5000"}}, "which is another machine, needs a secret");
  sum_with({{"TUTTI_TIMEOUT", "1"}}, "TUTTI_TIMEOUT_MS");
}

TEST(NcclSettings, EmptyVariablesAreNotSet) {
  for (const char* name : {"NCCL_P2P_DISABLE", "NCCL_SHM_DISABLE", "NCCL_COMM_BLOCKING",
                           "NCCL_ALGO", "NCCL_DEBUG_FILE", "NCCL_COMM_ID", "NCCL_SOCKET_IFNAME"})
    sum_with({{name, ""}});
}

TEST(NcclSettings, ValuesThatHaveNoEffectAreNamedInTheLog) {
  const std::string log = testing::TempDir() + "nccl-values-" + std::to_string(getpid());
  sum_with({{"NCCL_DEBUG_FILE", log},
            {"NCCL_SHM_DISABLE", "yes"},
            {"NCCL_COMM_BLOCKING", "2"},
            {"NCCL_TOPO_FILE", "/nowhere.xml"},
            {"NCCL_P2P_DISABLE", "-1"}});
  for (const char* named :
       {"NCCL_SHM_DISABLE is 'yes'", "NCCL_COMM_BLOCKING is '2'", "NCCL_P2P_DISABLE is '-1'",
        "NCCL_TOPO_FILE: /nowhere.xml: No such file"})
    EXPECT_THAT(contents(log), HasSubstr(named));
  std::filesystem::remove(log);
  sum_with({{"NCCL_DEBUG_FILE", "/nowhere/log"}});
}

TEST(NcclSettings, VariablesWithoutAnEffectAreNamedOnceInTheLog) {
  const std::string folder = testing::TempDir() + "nccl-log-" + std::to_string(getpid());
  std::filesystem::create_directory(folder);
  Processes ranks(1, [&](int) {
    setenv("NCCL_DEBUG_FILE", (folder + "/log-%p").c_str(), 1);
    setenv("NCCL_DEBUG", "VERSION", 1);
    setenv("NCCL_CUMEM_ENABLE", "1", 1);
    setenv("NCCL_IB_HCA", "=mlx5_0:1,mlx5_1:1", 1);
    setenv("NCCL_IB_TC", "106", 1);
    setenv("NCCL_NET", "Socket", 1);
    for (int i = 0; i < 2; ++i) InOneThread(2);
    const std::string log = contents(folder + "/log-" + std::to_string(getpid()));
    const std::size_t first = log.find("NCCL_CUMEM_ENABLE");
    expect_equal(first != std::string::npos, true, "whether it is named in: " + log);
    expect_equal(log.find("NCCL_CUMEM_ENABLE", first + 1), std::string::npos,
                 "its second place in: " + log);
    expect_equal(log.find("NCCL_NET"), std::string::npos, "one that has an effect, in: " + log);
    expect_equal(log.find("programs of NCCL") != std::string::npos, true, "the version in: " + log);
  });
  EXPECT_EQ(ranks.outcome(0), "");
  std::filesystem::remove_all(folder);
}

TEST(NcclSettings, EncryptionGoesWithAKeyOfSixteenCharacters) {
  const auto encrypt = [](const char* key) {
    const ncclEncryptionConfig_t config{sizeof(ncclEncryptionConfig_t), kApiMagic, kVersion, 1,
                                        key};
    return ncclSetEncryption(&config);
  };
  EXPECT_EQ(encrypt("too short"), ncclInvalidArgument);
  SharedId id;
  Processes ranks(2, [&](int rank) {
    setenv("NCCL_SHM_DISABLE", "1", 1);
    CHECK_NCCL(encrypt("sixteen letters."));
    ncclComm_t comm = nullptr;
    CHECK_NCCL(ncclCommInitRank(&comm, 2, id.of_rank(rank), rank));
    int value = 1;
    CHECK_NCCL(ncclAllReduce(&value, &value, 1, ncclInt32, ncclSum, comm, nullptr));
    expect_equal(value, 2, "the sum");
    CHECK_NCCL(ncclCommDestroy(comm));
  });
  for (int rank = 0; rank < 2; ++rank) EXPECT_EQ(ranks.outcome(rank), "");
}

// One that does not encrypt is told so by the store, which the others reach encrypted.
TEST(NcclSettings, WhoDoesNotEncryptIsRefusedByThoseWhoDo) {
  SharedId id;
  Processes ranks(2, [&](int rank) {
    ncclEncryptionConfig_t config{sizeof(ncclEncryptionConfig_t), kApiMagic, kVersion, 1,
                                  "sixteen letters."};
    if (rank == 0) CHECK_NCCL(ncclSetEncryption(&config));
    ncclComm_t comm = nullptr;
    const ncclUniqueId its = id.of_rank(rank);
    if (rank == 1) CHECK_NCCL(ncclCommInitRank(&comm, 2, its, rank));
  });
  EXPECT_THAT(ranks.outcome(1), HasSubstr("TUTTI_TLS=yes"));
}

}  // namespace
}  // namespace tutti::test
