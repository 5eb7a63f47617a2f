// Tests the C ABI. The work of one rank is written in C (calls.c); this file starts the ranks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include <tutti/tutti.hpp>

#include "../../runtime/asleep.h"
#include "../../runtime/processes.h"
#include "calls.h"
#include "rendezvous/store/memory_store.h"

namespace tutti::test {
namespace {

using testing::AllOf;
using testing::Each;
using testing::HasSubstr;
using testing::IsEmpty;

tuttiConfig_t quick() {
  tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
  config.timeout_ms = config.startup_timeout_ms = 20'000;
  return config;
}

std::string text(const char* wrong) { return wrong == nullptr ? "" : wrong; }

/// Runs `body` on each rank, each in a thread of its own, and returns what each returned.
std::vector<std::string> run(int size, RankBody body, const tuttiConfig_t& config = quick()) {
  std::vector<tuttiComm_t> comms(static_cast<std::size_t>(size));
  if (tuttiCommInitInProcess(comms.data(), size, &config) != tuttiSuccess)
    return {tuttiGetLastError(nullptr)};
  std::vector<std::string> said(comms.size());
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < comms.size(); ++rank)
    threads.emplace_back([&, rank] { said[rank] = text(body(comms[rank])); });
  for (auto& thread : threads) thread.join();
  for (const tuttiComm_t comm : comms) EXPECT_EQ(tuttiCommDestroy(comm), tuttiSuccess);
  return said;
}

void expect_well(RankBody body) {
  for (const int size : {2, 3, 4})
    EXPECT_THAT(run(size, body), Each(IsEmpty())) << size << " ranks";
}

TEST(CAbi, EveryReductionAndTheBroadcastGiveWhatTheirCommentsSay) {
  expect_well(reductions_and_broadcast);
}

TEST(CAbi, EveryGatherAndScatterGivesWhatItsCommentSays) { expect_well(gathers_and_scatters); }

TEST(CAbi, EveryOperationOnBlocksOfDifferentLengthsReadsTheirCountsAndDisplacements) {
  expect_well(blocks_of_different_lengths);
}

TEST(CAbi, MessagesAreMatchedBySourceAndTagAndSayWhatTheyWere) { expect_well(sends_and_receives); }

TEST(CAbi, AGroupStartsItsCallsTogetherSoThatCrossingMessagesDoNotWait) {
  expect_well(groups_of_calls);
}

TEST(CAbi, EveryOperationRunsInTheBackgroundWhereItIsGivenAWork) {
  expect_well(asynchronous_calls);
}

TEST(CAbi, ACallbackIsCalledOnceWithTheResultBeforeTheWorkIsDone) { expect_well(callbacks); }

TEST(CAbi, PersistentCallsRunManyTimesAndKeepTheirCommunicatorAlive) {
  expect_well(persistent_calls);
}

TEST(CAbi, PersistentCallsKeepTheLengthsOfTheirBlocks) {
  expect_well(persistent_blocks_of_different_lengths);
}

TEST(CAbi, PersistentMessagesSayWhatTheyWereEachTime) {
  expect_well(persistent_sends_and_receives);
}

TEST(CAbi, APremultiplierIsReadAtOnceAndF32IsAccumulatedInWhereACallAsks) {
  expect_well(premultipliers_and_accumulation);
}

TEST(CAbi, TheConfigurationSaysWhatIsAccumulatedIn) {
  tuttiConfig_t config = quick();
  config.accumulate = tuttiAccumulateF32;
  EXPECT_THAT(run(2, accumulation_as_configured, config), Each(IsEmpty()));
  config.accumulate = static_cast<tuttiAccumulate_t>(9);
  EXPECT_THAT(run(2, accumulation_as_configured, config), Each(HasSubstr("accumulation 9")));
}

TEST(CAbi, AReductionOfOnesOwnWorksInEveryFormAndMayFail) { expect_well(own_reductions); }

TEST(CAbi, PlansAndPricesOfCallsAreTold) { expect_well(plans_of_calls); }

TEST(CAbi, TheProgramsOwnFunctionSelectsAlgorithms) {
  tuttiConfig_t config = quick();
  std::string context = "context";
  config.select = selected_algorithm;
  config.select_context = context.data();
  config.accumulate = tuttiAccumulateF32;
  EXPECT_THAT(run(2, selected_calls, config), Each(IsEmpty()));
}

TEST(CAbi, AnAlgorithmOfOnesOwnIsProvedRunInheritedAndReleasedOnce) { expect_well(own_algorithms); }

TEST(CAbi, AWrongAlgorithmIsUsageThatSaysWhatItsPlannerGotWrong) { expect_well(wrong_algorithms); }

TEST(CAbi, SplitDupAndSubgroupMakeCommunicatorsAndNullForTheRest) {
  expect_well(parts_of_a_communicator);
}

TEST(CAbi, BuffersAreAllocatedUsedFreedAndNotFreedTwice) { expect_well(buffers_of_a_communicator); }
TEST(CAbi, MemoryOfTheProgramIsRegisteredOnceAndDeregisteredOnce) {
  expect_well(registered_memory_of_the_program);
}

/// Two ranks, the first of which sums memory of its communicator and destroys that communicator
/// meanwhile.
class DestroyedMeanwhile {
 public:
  DestroyedMeanwhile() {
    const tuttiConfig_t config = quick();
    EXPECT_EQ(tuttiCommInitInProcess(comms_, 2, &config), tuttiSuccess);
  }
  void start(tuttiWork_t* work) {
    void* memory = nullptr;
    ASSERT_EQ(tuttiMemAlloc(comms_[0], kElements * sizeof(float), &memory), tuttiSuccess);
    std::fill_n(static_cast<float*>(memory), kElements, 1.0F);
    ASSERT_EQ(
        tuttiAllReduce(memory, memory, kElements, tuttiFloat32, tuttiSum, comms_[0], nullptr, work),
        tuttiSuccess);
  }
  tuttiComm_t& first() { return comms_[0]; }
  tuttiComm_t second() { return comms_[1]; }
  /// Makes the second rank's call, and waits for its end.
  void finish() {
    std::vector<float> data(kElements, 2.0F);
    EXPECT_EQ(tuttiAllReduce(data.data(), data.data(), kElements, tuttiFloat32, tuttiSum, comms_[1],
                             nullptr, nullptr),
              tuttiSuccess);
    EXPECT_THAT(data, Each(3.0F));
    EXPECT_EQ(tuttiCommDestroy(comms_[1]), tuttiSuccess);
  }

 private:
  // So large that the memory is returned to the system when it is freed.
  static constexpr std::size_t kElements = 1u << 20;
  tuttiComm_t comms_[2] = {};
};

TEST(CAbi, MemoryOfACommunicatorIsFreedWhenItsEndHasWaitedForTheCallsThatUseIt) {
  DestroyedMeanwhile ranks;
  tuttiWork_t work = nullptr;
  ranks.start(&work);
  std::atomic<pid_t> ending = 0;
  std::atomic<bool> ended = false;
  std::thread end([&] {
    ending = gettid();
    EXPECT_EQ(tuttiCommDestroy(ranks.first()), tuttiSuccess);
    ended = true;
  });
  EXPECT_TRUE(falls_asleep(ending, ended));
  ranks.finish();
  end.join();
  EXPECT_EQ(tuttiWorkWait(work), tuttiSuccess);
  EXPECT_EQ(tuttiWorkFree(work), tuttiSuccess);
}

TEST(CAbi, MemoryOfACommunicatorThatACallbackDestroysIsThereForTheCallsBehind) {
  DestroyedMeanwhile ranks;
  tuttiWork_t before = nullptr;
  tuttiWork_t work = nullptr;
  ASSERT_EQ(tuttiBarrier(ranks.first(), nullptr, &before), tuttiSuccess);
  const auto destroy = [](tuttiResult_t, const char*, void* comm) {
    EXPECT_EQ(tuttiCommDestroy(*static_cast<tuttiComm_t*>(comm)), tuttiSuccess);
  };
  ASSERT_EQ(tuttiWorkThen(before, destroy, &ranks.first()), tuttiSuccess);
  ranks.start(&work);
  EXPECT_EQ(tuttiBarrier(ranks.second(), nullptr, nullptr), tuttiSuccess);
  for (int done = 0; done == 0;) EXPECT_EQ(tuttiWorkTest(before, &done), tuttiSuccess);
  ranks.finish();
  EXPECT_EQ(tuttiWorkWait(work), tuttiSuccess);
  for (const tuttiWork_t each : {before, work}) EXPECT_EQ(tuttiWorkFree(each), tuttiSuccess);
}

TEST(CAbi, OptionsChooseTheAlgorithmAndAreReadAsFarAsTheirSizeGoes) {
  expect_well(options_of_a_call);
}

TEST(CAbi, WrongArgumentsAreUsageWithATextAndTheCommunicatorGoesOn) {
  expect_well(wrong_arguments);
}

TEST(CAbi, RanksThatCallDifferentThingsGetAMismatchThatSaysBoth) {
  EXPECT_THAT(run(2, mismatched_call), Each(IsEmpty()));
}

TEST(CAbi, ARankThatNeverComesIsATimeoutThatNamesIt) {
  EXPECT_THAT(run(2, late_rank), Each(IsEmpty()));
}

TEST(CAbi, AKilledRanksSurvivorsGoOnInACommunicatorOfTheirOwn) {
  const int port = unused_port();
  Processes ranks(3, [&](int rank) {
    set_environment(rank, 3, port);
    const std::string wrong = text(survivor_of_a_killed_rank());
    if (!wrong.empty()) throw std::runtime_error(wrong);
  });
  for (const int rank : {0, 2}) EXPECT_EQ(ranks.outcome(rank), "");
  EXPECT_EQ(ranks.outcome(1), "ended by signal 9");
}

TEST(CAbi, RanksAsProcessesJoinByTheEnvironment) {
  const int port = unused_port();
  Processes ranks(2, [&](int rank) {
    set_environment(rank, 2, port);
    const std::string wrong = text(rank_of_the_environment());
    if (!wrong.empty()) throw std::runtime_error(wrong);
  });
  for (int rank = 0; rank < 2; ++rank) EXPECT_EQ(ranks.outcome(rank), "");
}

TEST(CAbi, AMissingEnvironmentIsAnErrorWithATextAndANullHandle) {
  Processes process(1, [](int) {
    for (const char* name : {"RANK", "WORLD_SIZE", "MASTER_PORT"}) unsetenv(name);
    setenv("TUTTI_TIMEOUT_MS", "soon", 1);
    tuttiComm_t comm = reinterpret_cast<tuttiComm_t>(1);
    const tuttiResult_t result = tuttiCommInitFromEnv(&comm, nullptr);
    throw Error(static_cast<ErrorKind>(result),
                std::string(comm == nullptr ? "null, " : "") + tuttiGetLastError(nullptr));
  });
  EXPECT_THAT(process.outcome(0), AllOf(HasSubstr("usage: null, "), HasSubstr("TUTTI_TIMEOUT_MS")));
}

// --- The program's own store, over one in memory ---

using Clock = std::chrono::steady_clock;
Clock::time_point in(std::int64_t ms) { return Clock::now() + std::chrono::milliseconds(ms); }
std::string_view view(const void* data, std::size_t bytes) {
  return {static_cast<const char*>(data), bytes};
}

/// Runs `body` on the store, and reports an exception as a C function would.
template <typename Body>
tuttiResult_t reported(void* store, Body&& body) {
  try {
    body(*static_cast<MemoryStore*>(store));
    return tuttiSuccess;
  } catch (const Error& error) {
    return static_cast<tuttiResult_t>(error.kind());
  }
}

tuttiStore_t functions_of(MemoryStore& store) {
  tuttiStore_t functions = TUTTI_STORE_INITIALIZER;
  functions.context = &store;
  functions.set = [](void* context, const void* key, std::size_t key_bytes, const void* value,
                     std::size_t value_bytes, std::int64_t ms) {
    return reported(
        context, [&](Store& s) { s.set(view(key, key_bytes), view(value, value_bytes), in(ms)); });
  };
  functions.get = [](void* context, const void* key, std::size_t key_bytes, void* value,
                     std::size_t capacity, std::size_t* value_bytes, std::int64_t ms) {
    return reported(context, [&](Store& s) {
      const std::string found = s.get(view(key, key_bytes), in(ms));
      *value_bytes = found.size();
      std::memcpy(value, found.data(), std::min(capacity, found.size()));
    });
  };
  functions.add = [](void* context, const void* key, std::size_t key_bytes, std::int64_t amount,
                     std::int64_t* sum, std::int64_t ms) {
    return reported(context, [&](Store& s) { *sum = s.add(view(key, key_bytes), amount, in(ms)); });
  };
  functions.wait = [](void* context, const void* key, std::size_t key_bytes, std::int64_t ms) {
    return reported(context, [&](Store& s) { s.wait(view(key, key_bytes), in(ms)); });
  };
  return functions;
}

TEST(CAbi, RanksJoinByTheProgramsOwnStore) {
  MemoryStore store;
  const tuttiStore_t functions = functions_of(store);
  const tuttiConfig_t config = quick();
  std::vector<std::string> said(3);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 3; ++rank)
    threads.emplace_back([&, rank] {
      tuttiComm_t comm = nullptr;
      if (tuttiCommInitWithStore(&comm, &functions, rank, 3, &config) != tuttiSuccess)
        said[static_cast<std::size_t>(rank)] = tuttiGetLastError(nullptr);
      else
        said[static_cast<std::size_t>(rank)] = text(gathers_and_scatters(comm));
      EXPECT_EQ(tuttiCommDestroy(comm), tuttiSuccess);
    });
  for (auto& thread : threads) thread.join();
  EXPECT_THAT(said, Each(IsEmpty()));
}

TEST(CAbi, AStoreWhoseValueHasAnImpossibleSizeIsAnErrorOfUse) {
  MemoryStore store;
  tuttiStore_t functions = functions_of(store);
  functions.get = [](void*, const void*, std::size_t, void*, std::size_t, std::size_t* value_bytes,
                     std::int64_t) {
    *value_bytes = SIZE_MAX;
    return tuttiSuccess;
  };
  const tuttiConfig_t config = quick();
  tuttiComm_t comm = nullptr;
  EXPECT_EQ(tuttiCommInitWithStore(&comm, &functions, 1, 2, &config), tuttiErrorUsage);
  EXPECT_THAT(tuttiGetLastError(nullptr), HasSubstr("bytes; a value has at most 1048576"));
}

TEST(CAbi, AStoreThatFailsPassesItsResultOnAndIsReleasedOnce) {
  struct Counted {
    int releases = 0;
  } counted;
  MemoryStore store;
  tuttiStore_t functions = functions_of(store);
  functions.context = &counted;
  functions.set = [](void*, const void*, std::size_t, const void*, std::size_t, std::int64_t) {
    return tuttiErrorPeerLost;
  };
  functions.get = [](void*, const void*, std::size_t, void*, std::size_t, std::size_t*,
                     std::int64_t) { return tuttiErrorPeerLost; };
  functions.add = [](void*, const void*, std::size_t, std::int64_t, std::int64_t*, std::int64_t) {
    return tuttiErrorPeerLost;
  };
  functions.wait = [](void*, const void*, std::size_t, std::int64_t) { return tuttiErrorPeerLost; };
  functions.release = [](void* context) { ++static_cast<Counted*>(context)->releases; };
  const tuttiConfig_t config = quick();
  tuttiComm_t comm = reinterpret_cast<tuttiComm_t>(1);
  EXPECT_EQ(tuttiCommInitWithStore(&comm, &functions, 0, 2, &config), tuttiErrorPeerLost);
  EXPECT_EQ(comm, nullptr);
  EXPECT_THAT(tuttiGetLastError(nullptr), HasSubstr("the program's store"));
  EXPECT_EQ(counted.releases, 1);

  functions.add = nullptr;
  EXPECT_EQ(tuttiCommInitWithStore(&comm, &functions, 0, 2, &config), tuttiErrorUsage);
  EXPECT_EQ(tuttiCommInitWithStore(&comm, nullptr, 0, 2, &config), tuttiErrorUsage);
}

TEST(CAbi, TheLogGoesToTheProgramsFunction) {
  tuttiConfig_t config = quick();
  std::string lines;
  config.log_level = tuttiLogDebug;
  config.log_context = &lines;
  config.log = [](tuttiLogLevel_t level, const char* line, void* context) {
    EXPECT_GE(level, tuttiLogError);
    EXPECT_LE(level, tuttiLogDebug);
    static_cast<std::string*>(context)->append(line).append("\n");
  };
  tuttiComm_t comms[2] = {};
  ASSERT_EQ(tuttiCommInitInProcess(comms, 2, &config), tuttiSuccess);
  std::thread other([&] { mismatched_call(comms[1]); });
  mismatched_call(comms[0]);
  other.join();
  for (const tuttiComm_t comm : comms) EXPECT_EQ(tuttiCommDestroy(comm), tuttiSuccess);
  EXPECT_THAT(lines, HasSubstr("communicator failed"));
  config.log_level = static_cast<tuttiLogLevel_t>(9);
  EXPECT_EQ(tuttiCommInitInProcess(comms, 2, &config), tuttiErrorUsage);
  EXPECT_THAT(tuttiGetLastError(nullptr), HasSubstr("log level 9"));
}

TEST(CAbi, AThreadThatCalledNothingLearnsWhatEndedACommunicator) {
  tuttiComm_t comms[2] = {};
  const tuttiConfig_t config = quick();
  ASSERT_EQ(tuttiCommInitInProcess(comms, 2, &config), tuttiSuccess);
  std::thread first([&] { mismatched_call(comms[0]); });
  std::thread second([&] { mismatched_call(comms[1]); });
  first.join();
  second.join();
  std::string said;
  std::thread([&] { said = tuttiGetLastError(comms[0]); }).join();
  EXPECT_THAT(said, HasSubstr("2 x int32"));
  for (const tuttiComm_t comm : comms) EXPECT_EQ(tuttiCommDestroy(comm), tuttiSuccess);
}

TEST(CAbi, ACommunicatorInWhoseCallAnotherThreadIsIsNotDestroyed) {
  tuttiComm_t comms[2] = {};
  const tuttiConfig_t config = quick();
  ASSERT_EQ(tuttiCommInitInProcess(comms, 2, &config), tuttiSuccess);
  std::thread blocked([&] {  // It is refused while the main thread is in a call.
    while (tuttiBarrier(comms[0], nullptr, nullptr) == tuttiErrorUsage) continue;
  });
  void* memory = nullptr;
  while (tuttiMemAlloc(comms[0], 1, &memory) == tuttiSuccess) {
    tuttiMemFree(comms[0], memory);
    // Two threads that begin a call within the same nanoseconds are not noticed.
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_THAT(tuttiGetLastError(nullptr), HasSubstr("another thread is in a call"));
  EXPECT_EQ(tuttiCommDestroy(comms[0]), tuttiErrorUsage);
  EXPECT_THAT(tuttiGetLastError(nullptr), HasSubstr("another thread is in a call"));
  EXPECT_EQ(tuttiBarrier(comms[1], nullptr, nullptr), tuttiSuccess);
  blocked.join();
  for (const tuttiComm_t comm : comms) EXPECT_EQ(tuttiCommDestroy(comm), tuttiSuccess);
}

TEST(CAbi, AStallIsLoggedAndAnAbortEndsTheCallThatAnotherThreadIsIn) {
  tuttiConfig_t config = quick();
  std::atomic<bool> reported = false;
  config.stall_ms = 50;
  config.log_context = &reported;
  config.log = [](tuttiLogLevel_t, const char* line, void* context) {
    EXPECT_THAT(line, HasSubstr("rank 1 has not called it"));
    static_cast<std::atomic<bool>*>(context)->store(true);
  };
  tuttiComm_t comms[2] = {};
  ASSERT_EQ(tuttiCommInitInProcess(comms, 2, &config), tuttiSuccess);
  std::thread blocked([&] {
    EXPECT_EQ(tuttiBarrier(comms[0], nullptr, nullptr), tuttiErrorPeerLost);
    EXPECT_THAT(tuttiGetLastError(nullptr), HasSubstr("rank 0 aborted the communicator: enough"));
  });
  while (!reported) std::this_thread::yield();
  EXPECT_EQ(tuttiCommAbort(comms[0], "enough"), tuttiSuccess);
  blocked.join();
  // Rank 0 may have taken part in this barrier before the abort.
  tuttiBarrier(comms[1], nullptr, nullptr);
  EXPECT_EQ(tuttiBarrier(comms[1], nullptr, nullptr), tuttiErrorPeerLost);
  EXPECT_EQ(tuttiCommAbort(nullptr, "nobody"), tuttiErrorUsage);
  for (const tuttiComm_t comm : comms) EXPECT_EQ(tuttiCommDestroy(comm), tuttiSuccess);
}

TEST(CAbi, CallsThatWaitEndOnceTheProgramIsInterrupted) {
  tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
  tuttiComm_t comms[2] = {};
  ASSERT_EQ(tuttiCommInitInProcess(comms, 2, &config), tuttiSuccess);
  tuttiInterruptWith([] { return 1; });
  EXPECT_EQ(tuttiBarrier(comms[0], nullptr, nullptr), tuttiErrorPeerLost);
  EXPECT_THAT(tuttiGetLastError(nullptr),
              HasSubstr("rank 0 aborted the communicator: interrupted"));
  tuttiInterruptWith(nullptr);
  for (const tuttiComm_t comm : comms) EXPECT_EQ(tuttiCommDestroy(comm), tuttiSuccess);
  ASSERT_EQ(tuttiCommInitInProcess(comms, 2, &config), tuttiSuccess);
  std::thread other([&] { EXPECT_EQ(tuttiBarrier(comms[1], nullptr, nullptr), tuttiSuccess); });
  EXPECT_EQ(tuttiBarrier(comms[0], nullptr, nullptr), tuttiSuccess) << "nobody asks any more";
  other.join();
  for (const tuttiComm_t comm : comms) EXPECT_EQ(tuttiCommDestroy(comm), tuttiSuccess);
}

TEST(CAbi, TheHeadersVersionIsTheLibrarys) {
  int code = 0;
  ASSERT_EQ(tuttiGetVersion(&code), tuttiSuccess);
  EXPECT_EQ(code, TUTTI_VERSION_CODE);
  EXPECT_EQ(std::to_string(code / 10000) + "." + std::to_string(code / 100 % 100) + "." +
                std::to_string(code % 100),
            tutti::version());
}

TEST(CAbi, EveryResultHasItsName) {
  EXPECT_STREQ(tuttiGetErrorString(tuttiSuccess), "success");
  EXPECT_STREQ(tuttiGetErrorString(tuttiErrorPeerLost), "peer_lost");
  EXPECT_STREQ(tuttiGetErrorString(static_cast<tuttiResult_t>(99)), "unknown");
}

}  // namespace
}  // namespace tutti::test
