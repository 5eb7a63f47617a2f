// Tests that schedules which were synthesized for a graph run for real, bit for bit.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "collectives/formats/schedule_file.h"
#include "collectives/synthesis/synthesize.h"
#include "tests/topology/graphs.h"
#include "threads.h"

namespace tutti::test {
namespace {

constexpr int kRanks = 6;

class Synthesized : public testing::TestWithParam<const char*> {
 protected:
  Synthesized() {
    std::string name = testing::TempDir() + "synthesized_XXXXXX";
    folder_ = mkdtemp(name.data());
    const Paths paths(random_graph(11, kRanks, 0.5));
    for (const Collective what :
         {Collective::all_gather, Collective::reduce_scatter, Collective::all_reduce,
          Collective::broadcast, Collective::reduce}) {
      StepBudget budget("the search for trees", kForestSteps);
      ScheduleFile file;
      file.name = "graph_" + std::string(to_string(what));
      file.schedules = synthesize(paths, {what, 2, 3}, budget).schedules;
      std::ofstream(folder_ / (file.name + ".json")) << write_schedules(file);
    }
  }
  ~Synthesized() override { std::filesystem::remove_all(folder_); }

  std::filesystem::path folder_;
};
INSTANTIATE_TEST_SUITE_P(Transports, Synthesized, testing::Values("auto", "shm", "tcp"),
                         [](const auto& one) {
                           return std::string(one.param) == "auto" ? "local" : one.param;
                         });

CallOptions by(std::string_view algorithm) { return {std::chrono::milliseconds(0), algorithm}; }

/// Numbers that are small and whole, so that any order of a sum gives the same bits.
float number(std::size_t at, int rank) {
  return static_cast<float>((at * 7 + static_cast<std::size_t>(rank) * 13) % 101);
}

std::vector<float> numbers(std::size_t count, int rank, std::size_t first = 0) {
  std::vector<float> data(count);
  for (std::size_t at = 0; at < count; ++at) data[at] = number(first + at, rank);
  return data;
}

std::vector<float> sum(std::size_t count, std::size_t first = 0) {
  std::vector<float> data(count);
  for (int rank = 0; rank < kRanks; ++rank)
    for (std::size_t at = 0; at < count; ++at) data[at] += number(first + at, rank);
  return data;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

void check_vectors(Communicator& comm, std::size_t count) {
  const std::vector<float> input = numbers(count, comm.rank());
  std::vector<float> output(count), in_place = input;
  comm.all_reduce(input.data(), output.data(), count, DataType::f32, Op::sum,
                  by("graph_all_reduce"));
  EXPECT_TRUE(same_bits(output, sum(count))) << count;
  comm.all_reduce(std::span(in_place), Op::sum, by("graph_all_reduce"));
  EXPECT_TRUE(same_bits(in_place, output)) << count;

  in_place = input;
  comm.broadcast(std::span(in_place), 2, by("graph_broadcast"));
  EXPECT_TRUE(same_bits(in_place, numbers(count, 2))) << count;

  comm.reduce(input.data(), comm.rank() == 2 ? output.data() : nullptr, count, DataType::f32,
              Op::sum, 2, by("graph_reduce"));
  EXPECT_TRUE(same_bits(output, sum(count))) << count;
}

void check_blocks(Communicator& comm, std::size_t count) {
  const std::size_t all = count * kRanks, own = count * static_cast<std::size_t>(comm.rank());
  const std::vector<float> block = numbers(count, comm.rank());
  std::vector<float> gathered(all), expected;
  comm.all_gather(block.data(), gathered.data(), count, DataType::f32, by("graph_all_gather"));
  for (int rank = 0; rank < kRanks; ++rank) {
    const std::vector<float> part = numbers(count, rank);
    expected.insert(expected.end(), part.begin(), part.end());
  }
  EXPECT_TRUE(same_bits(gathered, expected)) << count;

  const std::vector<float> vector = numbers(all, comm.rank());
  std::vector<float> result(count);
  comm.reduce_scatter(vector.data(), result.data(), count, DataType::f32, Op::sum,
                      by("graph_reduce_scatter"));
  EXPECT_TRUE(same_bits(result, sum(count, own))) << count;
}

TEST_P(Synthesized, SchedulesGiveTheSameBitsAsASumInAnyOrder) {
  Config config = quick_config(GetParam());
  config.schedules = folder_.string();
  EXPECT_THAT(run_ranks(kRanks, config,
                        [](Communicator& comm) {
                          for (const std::size_t count : {0U, 1U, 5U, 1000U, 70'001U}) {
                            check_vectors(comm, count);
                            check_blocks(comm, count);
                          }
                        }),
              Each(IsEmpty()));
}

}  // namespace
}  // namespace tutti::test
