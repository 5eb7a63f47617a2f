// Runs the real tutti-perf with buffers on the stand-in for GPUs (tests/cuda), of which there are
// four; their kernels are those that nvcc compiles.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include <tutti/error.hpp>

#include "command.h"
#include "perf/gpus.h"
#include "perf_rows.h"

namespace tutti::tools {
namespace {

using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;

constexpr const char* kByHost = "# Bytes moved by       : the host, by way of pinned memory\n";
constexpr const char* kByKernels = "# Bytes moved by       : kernels of these GPUs\n";

/// Sets a variable of the environment, which has its earlier value again at the end of the scope.
class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) {
    if (const char* const earlier = std::getenv(name)) earlier_ = earlier;
    ::setenv(name, value, 1);
  }
  ~Variable() {
    if (earlier_)
      ::setenv(name_, earlier_->c_str(), 1);
    else
      ::unsetenv(name_);
  }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  const char* name_;
  std::optional<std::string> earlier_;
};

std::vector<std::string> perf(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), TUTTI_PERF);
  return arguments;
}

/// Matches what the table says of a rank and its GPU, in which the process may be any.
std::string device_line(int rank, int gpu) {
  return fmt::format(
      "#  Rank {:2} Group  0 Pid +[0-9]+ on +[^ ]+ device {:2} \\[0000:{:02x}:00\\] "
      "stand-in {}\n",
      rank, gpu, gpu + 1, gpu);
}

void expect_right(const Command& command, std::size_t row_count, const std::string& what) {
  EXPECT_THAT(command.out(), HasSubstr("# Out of bounds values : 0 OK\n")) << what;
  const auto table = rows(command.out());
  EXPECT_EQ(table.size(), row_count) << what << command.out();
  for (const auto& row : table) {
    ASSERT_EQ(row.size(), 13u) << what;
    EXPECT_EQ(row[8], "0") << what;
    EXPECT_TRUE(row[12] == "0" || row[12] == "N/A") << what << row[12];
  }
}

const std::vector<std::string> kOperations{"all_reduce", "all_gather",     "alltoall",  "alltoallv",
                                           "broadcast",  "gather",         "hypercube", "reduce",
                                           "scatter",    "reduce_scatter", "sendrecv"};

TEST(PerfGpus, ChecksEveryOperationThatTheHostMoves) {
  for (const std::string& operation : kOperations) {
    Command command(perf({operation, "-t", "2", "-g", "2", "-b", "4", "-e", "20000", "-f", "5000",
                          "-n", "2", "-w", "0", "-d", "half"}));
    ASSERT_EQ(command.wait(), 0) << operation << command.err();
    expect_right(command, 2, operation);
    EXPECT_THAT(command.out(), HasSubstr(kByHost)) << operation;
  }
}

TEST(PerfGpus, ChecksEveryOperationThatKernelsMove) {
  const Variable device("TUTTI_DEVICE", "rank");
  for (const std::string& operation : kOperations) {
    Command command(perf({operation, "-t", "2", "-g", "2", "-b", "4", "-e", "20000", "-f", "5000",
                          "-n", "2", "-w", "0", "-d", "half"}));
    ASSERT_EQ(command.wait(), 0) << operation << command.err();
    expect_right(command, 2, operation);
    const bool transfers = operation == "sendrecv" || operation == "hypercube";
    EXPECT_THAT(command.out(), HasSubstr(transfers ? "the host, which does all sends" : kByKernels))
        << operation;
  }
}

TEST(PerfGpus, EachRankOfEachThreadHasAGpuAsInNcclTests) {
  Command command(perf({"-t", "2", "-g", "2", "-b", "64", "-e", "64", "-n", "1"}));
  ASSERT_EQ(command.wait(), 0) << command.err();
  EXPECT_THAT(command.out(), HasSubstr("# nThread 2 nGpus 2 "));
  for (const int rank : {0, 1, 2, 3})
    EXPECT_THAT(command.out(), ContainsRegex(device_line(rank, rank)));
}

TEST(PerfGpus, ProcessesOfALauncherHaveSeveralGpusEach) {
  for (const char* const device : {"none", "rank"}) {
    const Variable variable("TUTTI_DEVICE", device);
    Command command({TUTTI_RUN, "-n", "2", "--no-tag", "--", TUTTI_PERF, "all_gather", "-g", "2",
                     "-b", "20000", "-e", "20000", "-n", "2"});
    ASSERT_EQ(command.wait(), 0) << command.err();
    expect_right(command, 1, device);
    for (const int rank : {0, 1, 2, 3})
      EXPECT_THAT(command.out(), ContainsRegex(device_line(rank, rank)));
    EXPECT_THAT(command.out(), HasSubstr(device == std::string("none") ? kByHost : kByKernels));
  }
}

TEST(PerfGpus, WhoSaysNothingGetsARankForEachGpu) {
  const Variable devices("FAKE_CUDA_DEVICES", "3");
  Command command(perf({"--device", "-b", "64", "-e", "64", "-n", "1"}));
  ASSERT_EQ(command.wait(), 0) << command.err();
  expect_right(command, 1, "--device");
  EXPECT_THAT(command.out(), HasSubstr("# nThread 1 nGpus 1 "));
  EXPECT_THAT(command.out(), ContainsRegex(device_line(2, 2)));
  EXPECT_THAT(command.out(), Not(HasSubstr("Rank  3")));
}

TEST(PerfGpus, RanksMayShareOne) {
  for (const char* const kernels : {"none", "rank", "2"}) {
    const Variable variable("TUTTI_DEVICE", kernels);
    Command command(perf({"--device=1", "-g", "2", "-b", "4K", "-e", "4K", "-n", "2"}));
    ASSERT_EQ(command.wait(), 0) << kernels << command.err();
    expect_right(command, 1, kernels);
    EXPECT_THAT(command.out(), ContainsRegex(device_line(1, 1))) << kernels;
  }
  const Variable variable("TUTTI_DEVICE", "2");
  Command command(perf({"--device", "--ranks", "2", "-b", "64", "-e", "64", "-n", "1"}));
  ASSERT_EQ(command.wait(), 0) << command.err();
  EXPECT_THAT(command.out(), ContainsRegex(device_line(1, 2))) << "kernels need the buffers there";
}

TEST(PerfGpus, TheHostCopiesBuffersToPinnedMemoryAndKernelsDoNot) {
  const Variable small_rings("TUTTI_RING_BYTES", "96K");  // Large ones would hide the copies.
  const auto communicator_memory = [](const char* kernels) {
    const Variable variable("TUTTI_DEVICE", kernels);
    Command command(
        perf({"-g", "2", "-b", "1M", "-e", "1M", "-n", "1", "-w", "0", "-M", "1", "-c", "0"}));
    EXPECT_EQ(command.wait(), 0) << command.err();
    double amount = 0;
    char unit = 0;
    const std::size_t at = command.out().find("Communicator ");
    EXPECT_NE(at, std::string::npos);
    std::sscanf(command.out().c_str() + at, "Communicator %lf %c", &amount, &unit);
    return unit == 'M' ? amount : amount / 1024;
  };
  EXPECT_GE(communicator_memory("none"), 2) << "an input and an output of 1 MB";
  EXPECT_LT(communicator_memory("rank"), 2);
}

TEST(PerfGpus, CallsMayBeAggregatedBlockingUnalignedTimedEachAndOnTheDefaultStream) {
  for (const char* const kernels : {"none", "rank"}) {
    const Variable variable("TUTTI_DEVICE", kernels);
    for (const std::vector<std::string>& more :
         {std::vector<std::string>{"-n", "70"},  // more than are given ahead
          {"-m", "2", "-n", "3"},
          {"-m", "2", "-z", "1", "-n", "3"},
          {"-z", "2", "-n", "3"},
          {"-z", "3", "-n", "3"},
          {"-u", "1", "--rotate", "-n", "3"},
          {"-y", "1", "-n", "3"},
          {"-N", "2", "-n", "3"}}) {
      std::vector<std::string> arguments = perf({"-g", "2", "-b", "1K", "-e", "3K", "-i", "2K"});
      arguments.insert(arguments.end(), more.begin(), more.end());
      Command command(arguments);
      ASSERT_EQ(command.wait(), 0) << more[0] << command.err();
      expect_right(command, more[0] == "-N" ? 4 : 2, more[0]);
    }
    Command each(perf({"-g", "2", "-b", "8", "-e", "8", "-n", "5", "-I", "1", "-C", "1"}));
    ASSERT_EQ(each.wait(), 0) << each.err();
    ASSERT_EQ(rows(each.out()).size(), 1u);
    EXPECT_EQ(rows(each.out())[0].size(), 21u);
  }
}

TEST(PerfGpus, GroupsMeasureSideBySide) {
  const Variable split("NCCL_TESTS_SPLIT", "MOD 2");
  Command command(perf({"all_gather", "-t", "2", "-g", "2", "-b", "4K", "-e", "4K", "-n", "2"}));
  ASSERT_EQ(command.wait(), 0) << command.err();
  expect_right(command, 1, "MOD 2");
  EXPECT_EQ(rows(command.out())[0][1], "512") << "a block of each of two ranks";
  EXPECT_THAT(command.out(), HasSubstr("#  Rank  3 Group  1 Pid "));
}

TEST(PerfGpus, JsonNamesThem) {
  const std::string path = fmt::format("{}perf_gpus.{}.json", testing::TempDir(), ::getpid());
  const Variable variable("TUTTI_DEVICE", "rank");
  Command command(perf({"-g", "2", "-b", "8", "-e", "8", "-n", "1", "-J", path}));
  ASSERT_EQ(command.wait(), 0) << command.err();
  std::ifstream file(path);
  const auto config = nlohmann::json::parse(file)["config"];
  std::remove(path.c_str());
  EXPECT_EQ(config["ngpus"], 2);
  EXPECT_EQ(config["moved_by"], "kernels");
  EXPECT_EQ(config["devices"][1]["device"], 1);
  EXPECT_EQ(config["devices"][1]["device_hex"], "0000:02:00");
  EXPECT_EQ(config["devices"][1]["device_info"], "stand-in 1");
}

TEST(PerfGpus, SaysWhatIsMissing) {
  const std::string too_few = "need a GPU each, and the CUDA driver finds 4";
  for (const auto& [arguments, why] : std::vector<std::pair<std::vector<std::string>, std::string>>{
           {{"-g", "5"}, "5 ranks of this machine " + too_few},
           {{"-t", "3", "-g", "2"}, "6 ranks of this machine " + too_few},
           {{"--device", "--ranks", "8"}, "8 ranks of this machine " + too_few},
           {{"--device=4"}, "--device=4: the last GPU that the CUDA driver finds is 3"},
           {{"-g", "2", "-y", "1", "--device=0"}, "would share the default stream of GPU 0"},
           {{"-g", "2", "-b", "200T", "-e", "200T"},
            "memory for a buffer (choose a smaller -e)"}}) {
    Command command(perf(arguments));
    EXPECT_EQ(command.wait(), 2) << why;
    EXPECT_EQ(rows(command.out()).size(), 0u) << why;
    EXPECT_THAT(command.err(), HasSubstr("tutti-perf: unavailable: ")) << why;
    EXPECT_THAT(command.err(), HasSubstr(why));
  }
  Command launched({TUTTI_RUN, "-n", "3", "--no-tag", "--", TUTTI_PERF, "-g", "2"});
  EXPECT_EQ(launched.wait(), 2);
  EXPECT_THAT(launched.err(), HasSubstr("6 ranks of this machine " + too_few));
  const Variable devices("FAKE_CUDA_DEVICES", "0");
  Command none(perf({"--device"}));
  EXPECT_EQ(none.wait(), 2);
  EXPECT_THAT(none.err(), HasSubstr("the CUDA driver finds no GPU"));
}

TEST(PerfGpus, TheErrorIsThatOfTheRankThatFailedFirstNotOfThoseThatLostIt) {
  for (const char* const full : {"0", "3"}) {
    const Variable device("FAKE_CUDA_FULL_DEVICE", full);
    Command command(perf({"-t", "2", "-g", "2", "-b", "8", "-e", "8", "-n", "1"}));
    EXPECT_EQ(command.wait(), 2) << full;
    EXPECT_THAT(command.err(), HasSubstr(fmt::format("tutti-perf: unavailable: GPU {}: ", full)));
    EXPECT_THAT(command.err(), HasSubstr("memory for a buffer"));
  }
}

TEST(PerfGpus, ADriverThatCountsLessThanNoGpuHasNone) {
  const Variable devices("FAKE_CUDA_DEVICES", "-1");
  Command command(perf({"--device=0"}));
  EXPECT_EQ(command.wait(), 2);
  EXPECT_THAT(command.err(), HasSubstr("the CUDA driver finds no GPU"));
  const Variable kernels("TUTTI_DEVICE", "rank");
  Command host(perf({"--ranks", "2", "-b", "8", "-e", "8", "-n", "1"}));
  EXPECT_EQ(host.wait(), 2);
  EXPECT_THAT(host.err(), HasSubstr("the CUDA driver finds no GPU: set TUTTI_DEVICE=none"));
}

TEST(PerfGpus, ProcessesThatDisagreeOnTheirGpusAreToldSo) {
  Command command({TUTTI_RUN, "-n", "2", "--no-tag", "--", "sh", "-c",
                   fmt::format("exec {} -g $((2 + RANK)) -b 8 -e 8 -n 1 --device=0", TUTTI_PERF)});
  EXPECT_EQ(command.wait(), 2);
  EXPECT_THAT(command.err(), ContainsRegex("process [01] has [23] ranks .-t times -g., and process "
                                           "[01] has [23]: give all of them the same"));
}

TEST(PerfGpus, ACallThatTakesTooLongEndsTheRun) {
  const Variable variable("TUTTI_DEVICE", "rank");
  Command command(
      perf({"--device", "--ranks", "2", "-b", "8", "-e", "8", "-n", "1000000000", "-T", "1"}));
  ASSERT_TRUE(command.wait_for_output("(us)")) << command.err();
  const std::size_t pid = command.out().find("Rank  1 Group  0 Pid") + 20;
  ::kill(std::stoi(command.out().substr(pid)), SIGSTOP);
  EXPECT_EQ(command.wait(), 1);
  EXPECT_THAT(command.err(), HasSubstr("tutti-perf: rank 0: timeout: "));
}

using perf::gpu_of;
using perf::GpuPlan;

TEST(PerfGpus, RanksHaveThoseThatNcclTestsGivesThem) {
  const GpuPlan second_process{"rank", 2, 2, 4};
  EXPECT_EQ(gpu_of(second_process, 0, 4), 2);
  EXPECT_EQ(gpu_of(second_process, 1, 8), 3);
  EXPECT_THROW((void)gpu_of(second_process, 0, 3), Error);
  EXPECT_THROW((void)gpu_of({"rank", 0, 2, 4}, 0, 2), Error) << "the other process has none";
  EXPECT_EQ(gpu_of({"1", 2, 2, 4}, 1, 2), 1);
  EXPECT_THROW((void)gpu_of({"2", 0, 1, 1}, 0, 2), Error);
}

}  // namespace
}  // namespace tutti::tools
