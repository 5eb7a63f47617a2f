// Tests what functions of libnccl.so.2 return for bad arguments, and what they say.
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <link.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "ranks.h"

namespace tutti::test {
namespace {

using testing::HasSubstr;

std::string last_error() { return ncclGetLastError(nullptr); }

// The names of NVIDIA's library (2.32.3), one a line.
TEST(NcclArguments, EverySymbolOfNvidiasLibraryIsThere) {
  std::ifstream names(NCCL_SYMBOLS);
  int count = 0;
  for (std::string name; std::getline(names, name); ++count)
    EXPECT_NE(dlsym(RTLD_DEFAULT, name.c_str()), nullptr) << name;
  EXPECT_EQ(count, 193);
}

// The functions take different arguments, and look at none of them.
#ifdef __clang__
__attribute__((no_sanitize("function")))
#endif
ncclResult_t
call_with_null(void* function) {
  return reinterpret_cast<ncclResult_t (*)(void*, ...)>(function)(nullptr);
}

TEST(NcclArguments, EveryFunctionThatIsNotSupportedSaysSoAndFails) {
  for (const char* name :
       {"ncclPutSignal", "ncclSignal", "ncclWaitSignal", "ncclDevCommCreate", "ncclDevCommDestroy",
        "ncclGetLsaMultimemDevicePointer", "ncclGetMultimemDevicePointer",
        "ncclGetLsaDevicePointer", "ncclGetPeerDevicePointer", "ncclGetMultimemDeviceLeInfo",
        "ncclGetCftDeviceLeInfo", "ncclGetPeerDeviceLeInfo", "ncclLsaBarrierCreateRequirement",
        "ncclGinBarrierCreateRequirement", "ncclGinInboxA2ACreateRequirement",
        "ncclGinOutboxCreateRequirement", "ncclLLA2ACreateRequirement", "ncclCommSuspend",
        "ncclCommResume"}) {
    void* const function = dlsym(RTLD_DEFAULT, name);
    ASSERT_NE(function, nullptr) << name;
    EXPECT_EQ(call_with_null(function), ncclInvalidUsage) << name;
    EXPECT_THAT(last_error(), HasSubstr(name));
  }
}

TEST(NcclArguments, ACommunicatorThatIsNoneIsAnInvalidArgument) {
  std::array<char, 4096> bytes{};
  for (ncclComm_t comm :
       {static_cast<ncclComm_t>(nullptr), reinterpret_cast<ncclComm_t>(bytes.data())}) {
    int number = 0;
    void* handle = nullptr;
    ncclComm_t other = nullptr;
    ncclResult_t state = ncclSuccess;
    EXPECT_EQ(ncclCommCount(comm, &number), ncclInvalidArgument);
    EXPECT_EQ(ncclCommUserRank(comm, &number), ncclInvalidArgument);
    EXPECT_EQ(ncclCommCuDevice(comm, &number), ncclInvalidArgument);
    EXPECT_EQ(ncclCommGetAsyncError(comm, &state), ncclInvalidArgument);
    EXPECT_EQ(ncclCommFinalize(comm), ncclInvalidArgument);
    EXPECT_EQ(ncclCommRevoke(comm, 0), ncclInvalidArgument);
    EXPECT_EQ(ncclCommSplit(comm, 0, 0, &other, nullptr), ncclInvalidArgument);
    EXPECT_EQ(ncclCommShrink(comm, &number, 1, &other, nullptr, 0), ncclInvalidArgument);
    EXPECT_EQ(ncclAllReduce(&number, &number, 1, ncclInt32, ncclSum, comm, nullptr),
              ncclInvalidArgument);
    EXPECT_EQ(ncclSend(&number, 1, ncclInt32, 0, comm, nullptr), ncclInvalidArgument);
    EXPECT_EQ(ncclCommRegister(comm, &number, 4, &handle), ncclInvalidArgument);
    EXPECT_EQ(ncclCommDestroy(comm), comm == nullptr ? ncclSuccess : ncclInvalidArgument);
    EXPECT_EQ(ncclCommAbort(comm), comm == nullptr ? ncclSuccess : ncclInvalidArgument);
    EXPECT_NE(last_error(), "");
  }
}

TEST(NcclArguments, BadArgumentsOfCallsAreRefusedAndTheCommunicatorGoesOn) {
  InOneThread alone(1);
  const ncclComm_t comm = alone.comms[0];
  int data = 3, number = 0;
  const auto type = static_cast<ncclDataType_t>(99);
  const auto op = static_cast<ncclRedOp_t>(17);
  EXPECT_EQ(ncclAllReduce(&data, &data, 1, type, ncclSum, comm, nullptr), ncclInvalidArgument);
  EXPECT_EQ(ncclAllReduce(&data, &data, 1, ncclInt32, op, comm, nullptr), ncclInvalidArgument);
  EXPECT_EQ(ncclAllReduce(nullptr, &data, 1, ncclInt32, ncclSum, comm, nullptr),
            ncclInvalidArgument);
  EXPECT_EQ(ncclBroadcast(&data, &data, 1, ncclInt32, 1, comm, nullptr), ncclInvalidArgument);
  EXPECT_EQ(ncclReduce(&data, &data, 1, ncclInt32, ncclSum, -1, comm, nullptr),
            ncclInvalidArgument);
  EXPECT_EQ(ncclSend(&data, 1, ncclInt32, 1, comm, nullptr), ncclInvalidArgument);
  EXPECT_EQ(ncclRecv(&data, 1, ncclInt32, -1, comm, nullptr), ncclInvalidArgument);
  EXPECT_EQ(ncclCommCount(comm, nullptr), ncclInvalidArgument);
  EXPECT_EQ(ncclCommRevoke(comm, 1), ncclInvalidArgument);
  EXPECT_EQ(ncclRedOpDestroy(ncclSum, comm), ncclInvalidArgument);
  EXPECT_EQ(ncclRedOpDestroy(op, comm), ncclInvalidArgument);
  EXPECT_EQ(ncclAllReduce(&data, &number, 1, ncclInt32, ncclSum, comm, nullptr), ncclSuccess);
  EXPECT_EQ(number, 3);
  EXPECT_EQ(ncclAllReduce(nullptr, nullptr, 0, ncclInt32, ncclSum, comm, nullptr), ncclSuccess);
}

TEST(NcclArguments, BadArgumentsOfStartsAreRefused) {
  ncclUniqueId id{};
  ncclComm_t comm = nullptr;
  EXPECT_EQ(ncclGetUniqueId(nullptr), ncclInvalidArgument);
  EXPECT_EQ(ncclCommInitRank(&comm, 1, id, 0), ncclInvalidArgument);
  EXPECT_THAT(last_error(), HasSubstr("was not made by ncclGetUniqueId"));
  ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
  EXPECT_EQ(ncclCommInitRank(nullptr, 1, id, 0), ncclInvalidArgument);
  EXPECT_EQ(ncclCommInitRank(&comm, 0, id, 0), ncclInvalidArgument);
  EXPECT_EQ(ncclCommInitRank(&comm, 1, id, 1), ncclInvalidArgument);
  ncclConfig_t config;
  config.magic = 0;
  EXPECT_EQ(ncclCommInitRankConfig(&comm, 1, id, 0, &config), ncclInvalidArgument);
  config = {};
  config.blocking = 2;
  EXPECT_EQ(ncclCommInitRankConfig(&comm, 1, id, 0, &config), ncclInvalidArgument);
  config = {};
  config.netName = "aws-ofi";
  EXPECT_EQ(ncclCommInitRankConfig(&comm, 1, id, 0, &config), ncclInvalidUsage);
  config = {};
  config.netName = "socket";
  EXPECT_EQ(ncclCommInitRankConfig(&comm, 1, id, 0, &config), ncclSuccess);
  EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
  EXPECT_EQ(ncclCommInitAll(&comm, 0, nullptr), ncclInvalidArgument);
}

// A program that was built with the header of NCCL 2.14 has a struct that ends behind `blocking`.
TEST(NcclArguments, AStructOfAnOldHeaderIsReadToItsEnd) {
  ncclUniqueId id;
  ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
  ncclConfig_t config;
  std::memset(&config.cgaClusterSize, 0x55, sizeof config - offsetof(ncclConfig_t, cgaClusterSize));
  config.size = 24;
  config.version = 21400;
  config.blocking = 1;
  ncclComm_t comm = nullptr;
  ASSERT_EQ(ncclCommInitRankConfig(&comm, 1, id, 0, &config), ncclSuccess) << last_error();
  EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
}

TEST(NcclArguments, AGroupWithAWrongCallDoesNothingAndReturnsItsError) {
  InOneThread ranks(2);
  int data[2] = {1, 2};
  EXPECT_EQ(ncclGroupEnd(), ncclInvalidUsage);
  ASSERT_EQ(ncclGroupStart(), ncclSuccess);
  ASSERT_EQ(ncclGroupStart(), ncclSuccess);
  EXPECT_EQ(ncclAllReduce(&data[0], &data[0], 1, ncclInt32, ncclSum, ranks.comms[0], nullptr),
            ncclSuccess);
  EXPECT_EQ(ncclAllReduce(&data[1], nullptr, 1, ncclInt32, ncclSum, ranks.comms[1], nullptr),
            ncclInvalidArgument);
  EXPECT_EQ(ncclGroupEnd(), ncclSuccess);
  EXPECT_EQ(ncclGroupEnd(), ncclInvalidArgument);
  EXPECT_EQ(data[0], 1);
  ASSERT_EQ(ncclGroupStart(), ncclSuccess);
  for (int r = 0; r < 2; ++r)
    EXPECT_EQ(ncclAllReduce(&data[r], &data[r], 1, ncclInt32, ncclSum,
                            ranks.comms[static_cast<std::size_t>(r)], nullptr),
              ncclSuccess);
  EXPECT_EQ(ncclGroupEnd(), ncclSuccess) << last_error();
  EXPECT_EQ(data[1], 3);
}

TEST(NcclArguments, CommunicatorsMayBeDestroyedInAGroupAndOnlyOnce) {
  std::vector<ncclComm_t> comms(2);
  ASSERT_EQ(ncclCommInitAll(comms.data(), 2, nullptr), ncclSuccess);
  float data[2] = {1, 2};
  ASSERT_EQ(ncclGroupStart(), ncclSuccess);
  for (std::size_t r = 0; r < 2; ++r) {
    EXPECT_EQ(ncclAllReduce(&data[r], &data[r], 1, ncclFloat32, ncclSum, comms[r], nullptr),
              ncclSuccess);
    EXPECT_EQ(ncclCommDestroy(comms[r]), ncclSuccess);
  }
  EXPECT_EQ(ncclGroupEnd(), ncclSuccess) << last_error();
  EXPECT_EQ(data[0], 3);
  ASSERT_EQ(ncclCommInitAll(comms.data(), 1, nullptr), ncclSuccess);
  ASSERT_EQ(ncclGroupStart(), ncclSuccess);
  EXPECT_EQ(ncclCommDestroy(comms[0]), ncclSuccess);
  EXPECT_EQ(ncclCommDestroy(comms[0]), ncclInvalidArgument);
  EXPECT_EQ(ncclGroupEnd(), ncclInvalidArgument);
}

// A watchdog's thread may abort a communicator whose group another thread is about to end.
TEST(NcclArguments, AGroupWhoseCommunicatorAnotherThreadAbortsReturnsAnError) {
  std::vector<ncclComm_t> comms(2);
  ASSERT_EQ(ncclCommInitAll(comms.data(), 2, nullptr), ncclSuccess);
  float data = 1;
  ASSERT_EQ(ncclGroupStart(), ncclSuccess);
  EXPECT_EQ(ncclAllReduce(&data, &data, 1, ncclFloat32, ncclSum, comms[0], nullptr), ncclSuccess);
  std::thread([&] { EXPECT_EQ(ncclCommAbort(comms[0]), ncclSuccess); }).join();
  EXPECT_EQ(ncclGroupEnd(), ncclInvalidUsage);
  EXPECT_EQ(ncclCommAbort(comms[1]), ncclSuccess);
}

TEST(NcclArguments, AnAlgorithmThatThereIsIsUsedAndAnotherIsRefused) {
  in_threads(2, [](ncclComm_t comm, int rank, int) {
    ncclCollConfig_t config{sizeof(ncclCollConfig_t),
                            kApiMagic,
                            kVersion,
                            nullptr,
                            kUndefined,
                            kUndefined,
                            kUndefined,
                            kUndefined,
                            "ring_ll128",
                            1,
                            kUndefined,
                            0,
                            nullptr};
    int value = rank, result = -1;
    CHECK_NCCL(ncclAllReduceConfig(&value, &result, 1, ncclInt32, ncclSum, comm, nullptr, &config));
    expect_equal(result, 1, "the sum");
    config.algSelection = "NVLS_SIMPLE";
    expect_equal(
        ncclAllReduceConfig(&value, &result, 1, ncclInt32, ncclSum, comm, nullptr, &config),
        ncclInvalidUsage, "an algorithm that there is not");
    config.forceAlgSelection = 0;
    CHECK_NCCL(ncclAllReduceConfig(&value, &result, 1, ncclInt32, ncclSum, comm, nullptr, &config));
    CHECK_NCCL(ncclAllReduceConfig(&value, &result, 1, ncclInt32, ncclSum, comm, nullptr, nullptr));
    config.magic = 1;
    expect_equal(
        ncclAllReduceConfig(&value, &result, 1, ncclInt32, ncclSum, comm, nullptr, &config),
        ncclInvalidArgument, "a struct that was not initialised");
  });
}

TEST(NcclArguments, MemoryIsAllocatedRegisteredAndFreed) {
  InOneThread alone(1);
  void *memory = nullptr, *handle = nullptr;
  ASSERT_EQ(ncclMemAlloc(&memory, 10'000), ncclSuccess);
  std::memset(memory, 1, 10'000);
  EXPECT_EQ(ncclCommRegister(alone.comms[0], memory, 10'000, &handle), ncclSuccess);
  EXPECT_EQ(ncclCommDeregister(alone.comms[0], handle), ncclSuccess);
  EXPECT_EQ(ncclCommDeregister(alone.comms[0], handle), ncclInvalidArgument);
  EXPECT_EQ(ncclMemFree(static_cast<char*>(memory) + 1), ncclInvalidArgument);
  EXPECT_EQ(ncclMemFree(memory), ncclSuccess);
  EXPECT_EQ(ncclMemFree(memory), ncclInvalidArgument);
  EXPECT_EQ(ncclMemFree(nullptr), ncclSuccess);
  std::uint64_t held = 0;
  EXPECT_EQ(ncclCommMemStats(alone.comms[0], ncclStatGpuMemTotal, &held), ncclSuccess);
  EXPECT_EQ(ncclCommMemStats(alone.comms[0], static_cast<ncclCommMemStat_t>(4), &held),
            ncclInvalidArgument);
}

TEST(NcclArguments, WindowsAreBuffersThatAreRegistered) {
  in_threads(2, [](ncclComm_t comm, int, int) {
    std::vector<float> data(1000, 1);
    const std::size_t bytes = data.size() * sizeof(float);
    ncclWindow_t window = nullptr, again = nullptr;
    void *buffer = nullptr, *handle = nullptr;
    CHECK_NCCL(ncclGroupStart());
    CHECK_NCCL(ncclCommWindowRegister(comm, data.data(), bytes, &window, 1));
    CHECK_NCCL(ncclCommWindowRegister(comm, data.data(), bytes, &again, 0));
    CHECK_NCCL(ncclGroupEnd());
    CHECK_NCCL(ncclCommRegister(comm, data.data(), bytes, &handle));
    CHECK_NCCL(ncclWinGetUserPtr(comm, window, &buffer));
    expect_equal(buffer, static_cast<void*>(data.data()), "the window's buffer");
    CHECK_NCCL(
        ncclAllReduce(data.data(), data.data(), data.size(), ncclFloat32, ncclSum, comm, nullptr));
    expect_equal(data, std::vector<float>(1000, 2), "the sum");
    const auto refused = [](ncclResult_t result, const char* what) {
      expect_equal(result, ncclInvalidArgument, what);
    };
    refused(ncclCommDeregister(comm, window), "a window as the handle of a buffer");
    refused(ncclCommWindowDeregister(comm, static_cast<ncclWindow_t>(handle)), "the reverse");
    CHECK_NCCL(ncclCommWindowDeregister(comm, window));
    CHECK_NCCL(ncclCommWindowDeregister(comm, nullptr));
    refused(ncclCommWindowDeregister(comm, window), "a window that is gone");
    refused(ncclWinGetUserPtr(comm, window, &buffer), "its buffer");
    refused(ncclCommWindowRegister(comm, data.data(), bytes, &window, 4), "an unknown flag");
    refused(ncclCommWindowRegister(comm, nullptr, bytes, &window, 0), "no buffer");
    refused(ncclCommWindowRegister(comm, data.data(), bytes, nullptr, 0), "no place");
  });
}

TEST(NcclArguments, SizesThatNoMemoryHasAreRefused) {
  InOneThread alone(1);
  void* memory = nullptr;
  for (const std::size_t less : {0, 100, 5000})
    EXPECT_EQ(ncclMemAlloc(&memory, SIZE_MAX - less), ncclSystemError);
  std::array<float, 64> data{};
  for (const ncclDataType_t type : {ncclInt8, ncclFloat32})
    EXPECT_EQ(ncclBroadcast(data.data(), &data[32], SIZE_MAX / 2, type, 0, alone.comms[0], nullptr),
              ncclInvalidArgument);
  EXPECT_EQ(ncclBroadcast(data.data(), &data[32], SIZE_MAX / 4 + 2, ncclFloat32, 0, alone.comms[0],
                          nullptr),
            ncclInvalidArgument);
  for (const std::size_t count : {SIZE_MAX, SIZE_MAX / 2, SIZE_MAX / 4 + 2}) {
    const auto refused = [&](auto* call, auto... rest) {
      EXPECT_EQ(call(data.data(), &data[32], count, ncclFloat32, rest..., alone.comms[0], nullptr),
                ncclInvalidArgument);
    };
    refused(ncclAllReduce, ncclSum);
    refused(ncclReduce, ncclSum, 0);
    refused(ncclReduceScatter, ncclSum);
    refused(ncclAllGather);
    refused(ncclAlltoAll);
    refused(ncclGather, 0);
    refused(ncclScatter, 0);
    EXPECT_EQ(ncclSend(data.data(), count, ncclFloat32, 0, alone.comms[0], nullptr),
              ncclInvalidArgument);
    EXPECT_EQ(ncclRecv(data.data(), count, ncclFloat32, 0, alone.comms[0], nullptr),
              ncclInvalidArgument);
  }
}

TEST(NcclArguments, AGroupThatFailsBroadcastsNothing) {
  InOneThread alone(1);
  int from = 5, to = 0;
  ASSERT_EQ(ncclGroupStart(), ncclSuccess);
  EXPECT_EQ(ncclBroadcast(&from, &to, 1, ncclInt32, 0, alone.comms[0], nullptr), ncclSuccess);
  EXPECT_EQ(ncclAllReduce(nullptr, &to, 1, ncclInt32, ncclSum, alone.comms[0], nullptr),
            ncclInvalidArgument);
  EXPECT_EQ(ncclGroupEnd(), ncclInvalidArgument);
  EXPECT_EQ(to, 0);
  ASSERT_EQ(ncclGroupStart(), ncclSuccess);
  EXPECT_EQ(ncclBroadcast(&from, &to, 1, ncclInt32, 0, alone.comms[0], nullptr), ncclSuccess);
  EXPECT_EQ(ncclGroupEnd(), ncclSuccess);
  EXPECT_EQ(to, 5);
}

// Threads of the library may run when a program closes it.
TEST(NcclArguments, TheLibraryStaysLoaded) {
  for (const char* name : {"libnccl.so.2", "libtutti.so.0"}) {
    void* const library = dlopen(name, RTLD_NOLOAD | RTLD_LAZY);
    ASSERT_NE(library, nullptr) << name;
    const link_map* map = nullptr;
    ASSERT_EQ(dlinfo(library, RTLD_DI_LINKMAP, &map), 0);
    bool stays = false;
    for (const ElfW(Dyn)* entry = map->l_ld; entry->d_tag != DT_NULL; ++entry)
      stays = stays || (entry->d_tag == DT_FLAGS_1 && (entry->d_un.d_val & DF_1_NODELETE) != 0);
    EXPECT_TRUE(stays) << name;
    dlclose(library);
  }
}

TEST(NcclArguments, QueriesTellTheTruth) {
  InOneThread ranks(2);
  int version = 0, device = 5;
  EXPECT_EQ(ncclGetVersion(&version), ncclSuccess);
  EXPECT_EQ(version, 23203);
  EXPECT_EQ(ncclCommCuDevice(ranks.comms[1], &device), ncclSuccess);
  EXPECT_EQ(device, -1);
  ncclCommProperties_t properties{};
  properties.size = sizeof properties;
  properties.magic = kApiMagic;
  properties.deviceApiSupport = true;
  EXPECT_EQ(ncclCommQueryProperties(ranks.comms[1], &properties), ncclSuccess);
  EXPECT_EQ(properties.rank, 1);
  EXPECT_EQ(properties.nRanks, 2);
  EXPECT_FALSE(properties.deviceApiSupport);
  for (int result = 0; result < 10; ++result)
    EXPECT_STRNE(ncclGetErrorString(static_cast<ncclResult_t>(result)), "");
}

TEST(NcclArguments, ParametersAreTheVariablesThatHaveAnEffect) {
  const char** keys = nullptr;
  int count = 0, length = 0;
  ASSERT_EQ(ncclParamGetAllParameterKeys(&keys, &count), ncclSuccess);
  EXPECT_GT(count, 5);
  ncclParamHandle_t handle = nullptr;
  EXPECT_EQ(ncclParamBind(&handle, "NCCL_BUFFSIZE"), ncclInvalidArgument);
  ASSERT_EQ(ncclParamBind(&handle, "NCCL_P2P_DISABLE"), ncclSuccess);
  ASSERT_EQ(setenv("NCCL_P2P_DISABLE", "1", 1), 0);
  std::int32_t number = 0;
  EXPECT_EQ(ncclParamGetI32(handle, &number), ncclSuccess);
  EXPECT_EQ(number, 1);
  const char* text = nullptr;
  EXPECT_EQ(ncclParamGetParameter("NCCL_P2P_DISABLE", &text, &length), ncclSuccess);
  EXPECT_STREQ(text, "1");
  ASSERT_EQ(setenv("NCCL_P2P_DISABLE", "maybe", 1), 0);
  EXPECT_EQ(ncclParamGetI32(handle, &number), ncclInvalidArgument);
  unsetenv("NCCL_P2P_DISABLE");
}

}  // namespace
}  // namespace tutti::test
