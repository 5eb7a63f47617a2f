// Ranks whose GPUs a file joins in a ring that is not the order of their numbers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <tutti/tutti.hpp>

#include "tests/kernels/gpu_buffers.h"
#include "tests/runtime/threads.h"

namespace tutti::test {
namespace {

/// Four GPUs at the addresses that the stand-in gives its own, in the ring 0, 2, 1, 3.
class GpuOrder : public testing::TestWithParam<const char*> {
 protected:
  GpuOrder()
      : file_(std::filesystem::temp_directory_path() /
              ("tutti-test-order-" + std::to_string(getpid()) + ".xml")) {
    std::ofstream xml(file_);
    xml << "<system version=\"1\"><cpu numaid=\"0\">\n";
    for (const auto& [gpu, one, other] : {std::array{1, 3, 4}, {2, 3, 4}, {3, 1, 2}, {4, 1, 2}})
      xml << "<pci busid=\"0000:0" << gpu << ":00.0\" class=\"0x030200\"><gpu sm=\"80\">"
          << "<nvlink target=\"0000:0" << one << ":00.0\" tclass=\"0x030200\"/>"
          << "<nvlink target=\"0000:0" << other << ":00.0\" tclass=\"0x030200\"/>"
          << "</gpu></pci>\n";
    xml << "</cpu></system>\n";
    config_ = quick_config(GetParam());
    config_.device = "rank";
    config_.topology_file = file_.string();
    config_.algorithm = "ring";
  }
  ~GpuOrder() override { std::filesystem::remove(file_); }

  const std::filesystem::path file_;
  Config config_;
};

TEST_P(GpuOrder, IsTheOrderOfTheRanksAroundARing) {
  if (gpu_count() < 4) GTEST_SKIP() << "four ranks need four GPUs";
  EXPECT_THAT(
      run_ranks(4, config_,
                [](Communicator& comm) {
                  const std::string plan =
                      comm.explain(Collective::all_gather, 1000, DataType::f32);
                  // Neither 0 and 1 nor 2 and 3 are neighbours.
                  const int opposite = comm.rank() ^ 1;
                  EXPECT_THAT(plan, Not(HasSubstr("rank " + std::to_string(opposite) + "\n")));
                  const GpuContext context(comm.device());
                  const GpuBuffer<int> buffer(3000, comm.rank() + 1);
                  comm.all_reduce(buffer.data(), buffer.data(), 3000, DataType::int32, Op::sum);
                  EXPECT_THAT(buffer.read(), Each(10));
                  Communicator part = comm.dup();
                  EXPECT_THAT(part.explain(Collective::all_gather, 1000, DataType::f32),
                              Not(HasSubstr("rank " + std::to_string(opposite) + "\n")));
                }),
      Each(IsEmpty()));
}

TEST_P(GpuOrder, StaysAfterAFailureWhateverHasBecomeOfTheFile) {
  if (gpu_count() < 4) GTEST_SKIP() << "four ranks need four GPUs";
  if (GetParam() == std::string("auto")) return;  // threads of one process do not shrink
  EXPECT_THAT(run_ranks(4, config_,
                        [&](Communicator& comm) {
                          comm.barrier();
                          std::error_code gone;
                          std::filesystem::remove(file_, gone);
                          Communicator rest = comm.shrink(std::chrono::seconds(5));
                          EXPECT_THAT(
                              rest.explain(Collective::all_gather, 1000, DataType::f32),
                              Not(HasSubstr("rank " + std::to_string(comm.rank() ^ 1) + "\n")));
                        }),
              Each(IsEmpty()));
}

TEST_P(GpuOrder, IsRefusedOnEveryRankWhereTheFileIsMalformed) {
  std::ofstream(file_) << "<system><cpu/>";
  const auto refused = AllOf(StartsWith("usage"), HasSubstr(file_.filename().string()));
  if (GetParam() == std::string("auto"))
    EXPECT_THAT(outcome_of([&] { Communicator::in_process(2, config_); }), refused);
  else
    EXPECT_THAT(run_ranks(2, config_, [](Communicator&) {}), Each(refused));
}

INSTANTIATE_TEST_SUITE_P(Over, GpuOrder, testing::Values("auto", "cuda_ipc,shm"),
                         [](const auto& param) {
                           return std::string(param.param) == "auto" ? "Local" : "Shm";
                         });

}  // namespace
}  // namespace tutti::test
