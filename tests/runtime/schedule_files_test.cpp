// Tests of files of schedules: they serve calls in their window of sizes, over every transport, bit
// for bit, or are refused on every rank.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <numeric>

#include "runtime/schedule_files.h"
#include "tests/collectives/schedule_texts.h"
#include "threads.h"

namespace tutti::test {
namespace {

using schedule_texts::kMsccl;
using schedule_texts::kMscclAllToAll;
using schedule_texts::kMscclpp;

CallOptions by(std::string_view algorithm) { return {std::chrono::milliseconds(0), algorithm}; }

class ScheduleFilesOver : public testing::TestWithParam<const char*> {
 protected:
  ScheduleFilesOver() {
    std::string name = testing::TempDir() + "schedules_XXXXXX";
    folder_ = mkdtemp(name.data());
  }
  ~ScheduleFilesOver() override { std::filesystem::remove_all(folder_); }

  std::string write(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ / name) << text;
    return (folder_ / name).string();
  }
  /// A configuration that names the folder.
  Config with_folder() const {
    Config config = quick_config(GetParam());
    config.schedules = folder_.string();
    return config;
  }

  std::filesystem::path folder_;
};
INSTANTIATE_TEST_SUITE_P(Transports, ScheduleFilesOver, testing::Values("auto", "shm", "tcp"),
                         [](const auto& one) {
                           return std::string(one.param) == "auto" ? "local" : one.param;
                         });

/// Numbers that are small and whole, so that any order of a sum gives the same bits.
std::vector<float> numbers(std::size_t count, int rank) {
  std::vector<float> data(count);
  for (std::size_t i = 0; i < count; ++i)
    data[i] = static_cast<float>((i * 7 + static_cast<std::size_t>(rank) * 13) % 101);
  return data;
}

/// Computes each sum once for all ranks, which call this at the same time.
const std::vector<float>& sum_of(std::size_t count, int ranks) {
  static std::mutex mutex;
  static std::map<std::pair<std::size_t, int>, std::vector<float>> computed;
  const std::lock_guard lock(mutex);
  const auto [at, is_new] = computed.try_emplace({count, ranks}, count);
  std::vector<float>& sum = at->second;
  if (!is_new) return sum;
  for (int rank = 0; rank < ranks; ++rank) {
    const std::vector<float> part = numbers(count, rank);
    for (std::size_t i = 0; i < count; ++i) sum[i] += part[i];
  }
  return sum;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

/// Calls all_reduce in place and out of place, with sizes from nothing to several pieces.
void check_all_reduce(Communicator& comm, std::string_view name) {
  for (const std::size_t count : {0u, 1u, 3u, 1000u, 16'384u, 300'001u}) {
    const std::vector<float> input = numbers(count, comm.rank());
    std::vector<float> output(count), in_place = input;
    comm.all_reduce(input.data(), output.data(), count, DataType::f32, Op::sum, by(name));
    EXPECT_TRUE(same_bits(output, sum_of(count, comm.size()))) << name << ", " << count;
    comm.all_reduce(std::span(in_place), Op::sum, by(name));
    EXPECT_TRUE(same_bits(in_place, output)) << name << ", " << count << ", in place";
    std::vector<float> average = input;
    comm.all_reduce_async(std::span(average), Op::avg, by(name)).wait();
    for (float& value : output) value /= static_cast<float>(comm.size());
    EXPECT_TRUE(same_bits(average, output)) << name << ", " << count << ", average";
  }
}

void check_all_to_all(Communicator& comm, std::string_view name) {
  for (const std::size_t count : {1u, 100u, 70'000u}) {
    const auto ranks = static_cast<std::size_t>(comm.size());
    const std::vector<float> input = numbers(count * ranks, comm.rank());
    std::vector<float> output(count * ranks), in_place = input, expected;
    for (int from = 0; from < comm.size(); ++from) {
      const std::vector<float> sent = numbers(count * ranks, from);
      const auto begin = sent.begin() + static_cast<std::ptrdiff_t>(count) * comm.rank();
      expected.insert(expected.end(), begin, begin + static_cast<std::ptrdiff_t>(count));
    }
    comm.all_to_all(input.data(), output.data(), count, DataType::f32, by(name));
    EXPECT_TRUE(same_bits(output, expected)) << name << ", " << count;
    comm.all_to_all(in_place.data(), in_place.data(), count, DataType::f32, by(name));
    EXPECT_TRUE(same_bits(in_place, expected)) << name << ", " << count << ", in place";
  }
}

TEST_P(ScheduleFilesOver, RunEveryFormatBitForBitInPlaceAndOutOfPlace) {
  write("a.xml", kMsccl);
  write("b.json", kMscclpp);
  write("c.xml", kMscclAllToAll);
  write("not_read.txt", "neither XML nor JSON");
  EXPECT_THAT(run_ranks(2, with_folder(),
                        [](Communicator& comm) {
                          check_all_reduce(comm, "halves");
                          check_all_reduce(comm, "packets");
                          check_all_to_all(comm, "swap");
                        }),
              Each(IsEmpty()));
}

TEST_P(ScheduleFilesOver, OfOtherProgramsRunBitForBit) {
  const std::string shared = TUTTI_SHARED_DATA;
  if (!std::filesystem::exists(shared + "/msccl"))
    GTEST_SKIP() << "there are no files of other programs beside the sources";
  for (const auto& [file, ranks] : {std::pair{"/msccl/allreduce-allpairs-8n-simple.xml", 8},
                                    {"/msccl/all-reduce-ring-simple.xml", 16},
                                    {"/msccl/alltoall-8n-0-9kb.xml", 8},
                                    {"/mscclpp/allreduce.json", 2},
                                    {"/mscclpp/allreduce_packet.json", 2}})
    EXPECT_THAT(run_ranks(ranks, quick_config(GetParam()),
                          [&, path = shared + file](Communicator& comm) {
                            const std::vector<std::string> names = comm.add_schedules(path);
                            ASSERT_EQ(names.size(), 1u);
                            if (path.find("alltoall") == std::string::npos)
                              check_all_reduce(comm, names[0]);
                            else
                              check_all_to_all(comm, names[0]);
                          }),
                Each(IsEmpty()))
        << file;
}

TEST_P(ScheduleFilesOver, ServeCallsInTheirWindowAloneAndGiveWayToNames) {
  write("halves.xml", kMsccl);  // 64 to 4096 bytes
  EXPECT_THAT(run_ranks(2, with_folder(),
                        [](Communicator& comm) {
                          const auto chosen = [&](std::size_t count) {
                            for (const AlgorithmPrice& price :
                                 comm.prices(Collective::all_reduce, count, DataType::f32))
                              if (price.chosen) return price.algorithm;
                            return std::string("a file's");
                          };
                          EXPECT_NE(chosen(15), "a file's");
                          EXPECT_EQ(chosen(16), "a file's");
                          EXPECT_EQ(chosen(1024), "a file's");
                          EXPECT_NE(chosen(1025), "a file's");
                          for (const std::size_t count : {15u, 16u, 1024u, 1025u}) {
                            std::vector<float> data = numbers(count, comm.rank());
                            comm.all_reduce(std::span(data));
                            EXPECT_TRUE(same_bits(data, sum_of(count, 2)));
                          }
                        }),
              Each(IsEmpty()));
  Config named = with_folder();
  named.algorithm = "one_shot";
  EXPECT_THAT(run_ranks(2, named,
                        [](Communicator& comm) {
                          std::vector<float> data(100, 1);
                          comm.all_reduce(std::span(data));
                          EXPECT_THAT(data, AllAre(2.0F));
                          const auto list = comm.prices(Collective::all_reduce, 100, DataType::f32);
                          EXPECT_TRUE(std::any_of(list.begin(), list.end(), [](const auto& price) {
                            return price.chosen && price.algorithm == "one_shot";
                          }));
                        }),
              Each(IsEmpty()));
}

TEST_P(ScheduleFilesOver, AWrongFileIsRefusedOnEveryRankWithTheCounterExample) {
  std::string wrong = kMsccl;
  wrong.replace(wrong.find("type=\"rrcs\""), 11, "type=\"rcs\"");
  const std::string path = write("wrong.xml", wrong);
  const auto says_why =
      AllOf(HasSubstr("usage: "), HasSubstr("wrong.xml: the schedules of 'halves' are wrong"),
            HasSubstr("misses the contribution of rank"));
  EXPECT_THAT(run_ranks(2, quick_config(GetParam()),
                        [&](Communicator& comm) {
                          EXPECT_THAT(outcome_of([&] { comm.add_schedules(path); }), says_why);
                          std::vector<float> data(100, 1);
                          comm.all_reduce(std::span(data));  // the communicator goes on
                          EXPECT_THAT(data, AllAre(2.0F));
                        }),
              Each(IsEmpty()));
}

TEST_P(ScheduleFilesOver, FilesThatDifferBetweenRanksAreAMismatch) {
  const std::string own = write("own.xml", kMsccl);
  std::filesystem::create_directory(folder_ / "other");
  const std::string other = write("other/packets.json", kMscclpp);
  const auto outcomes = run_ranks(2, quick_config(GetParam()), [&](Communicator& comm) {
    const auto names = comm.add_schedules(comm.rank() == 0 ? own : other);
    std::vector<float> data(100, 1);
    comm.all_reduce(std::span(data), Op::sum, by(names[0]));
  });
  EXPECT_THAT(outcomes, Contains(HasSubstr("mismatch")));
  EXPECT_THAT(outcomes, testing::Not(Contains(IsEmpty())));
}

TEST_P(ScheduleFilesOver, AFileThatOneRankAloneHasIsAMismatchThatNamesFiles) {
  const std::string path = write("own.xml", kMsccl);
  const auto outcomes = run_ranks(2, quick_config(GetParam()), [&](Communicator& comm) {
    if (comm.rank() == 0) comm.add_schedules(path);
    std::vector<float> data(100, 1);
    comm.all_reduce(std::span(data), Op::sum, comm.rank() == 0 ? by("halves") : CallOptions());
  });
  EXPECT_THAT(outcomes, Contains(AllOf(HasSubstr("mismatch"), HasSubstr("TUTTI_SCHEDULES"))));
}

TEST_P(ScheduleFilesOver, SplitOffCommunicatorsHaveTheFilesOfTheirOwnNumberOfRanks) {
  write("halves.xml", kMsccl);
  EXPECT_THAT(run_ranks(4, with_folder(),
                        [](Communicator& comm) {
                          std::vector<float> data(100, 1);
                          EXPECT_THAT(outcome_of([&] {
                                        comm.all_reduce(std::span(data), Op::sum, by("halves"));
                                      }),
                                      HasSubstr("'halves' is unknown"));
                          auto half = comm.split(comm.rank() / 2, comm.rank());
                          ASSERT_TRUE(half.has_value());
                          half->all_reduce(std::span(data), Op::sum, by("halves"));
                          EXPECT_THAT(data, AllAre(2.0F));
                        }),
              Each(IsEmpty()));
}

TEST_P(ScheduleFilesOver, WhatAFileIsNotForIsRefusedByItsName) {
  const std::string path = write("halves.xml", kMsccl);
  EXPECT_THAT(run_ranks(2, quick_config(GetParam()),
                        [&](Communicator& comm) {
                          EXPECT_THAT(comm.add_schedules(path), ElementsAre("halves"));
                          EXPECT_THAT(outcome_of([&] { comm.add_schedules(path); }),
                                      HasSubstr("'halves' was added before"));
                          std::vector<float> data(100, 1);
                          EXPECT_THAT(
                              outcome_of([&] { comm.broadcast(std::span(data), 0, by("halves")); }),
                              AllOf(HasSubstr("usage"),
                                    HasSubstr("is for all_reduce, not for broadcast with root 0")));
                        }),
              Each(IsEmpty()));
  EXPECT_THAT(run_ranks(3, quick_config(GetParam()),
                        [&](Communicator& comm) {
                          EXPECT_THAT(
                              outcome_of([&] { comm.add_schedules(path); }),
                              HasSubstr("has no schedules of 3 ranks, but those of 2 ranks"));
                        }),
              Each(IsEmpty()));
}

TEST_P(ScheduleFilesOver, OfAFolderAreAddedAllOrNone) {
  const std::string halves = write("zz.xml", kMsccl);
  std::string other = kMsccl;
  other.replace(other.find("name=\"halves\""), 13, "name=\"other\"");
  write("aa.xml", other);
  EXPECT_THAT(run_ranks(2, quick_config(GetParam()),
                        [&](Communicator& comm) {
                          comm.add_schedules(halves);
                          EXPECT_THAT(outcome_of([&] { comm.add_schedules(folder_.string()); }),
                                      HasSubstr("'halves' was added before"));
                          EXPECT_THAT(comm.add_schedules((folder_ / "aa.xml").string()),
                                      ElementsAre("other"));
                        }),
              Each(IsEmpty()));
}

TEST(ScheduleFilesAtStart, AMalformedOrWrongOneIsRefusedBeforeThereIsACommunicator) {
  std::string name = testing::TempDir() + "schedules_XXXXXX";
  const std::filesystem::path folder = mkdtemp(name.data());
  Config config = quick_config();
  config.schedules = folder.string();
  const auto outcome = [&] { return outcome_of([&] { Communicator::in_process(2, config); }); };
  EXPECT_EQ(outcome(), "");
  std::ofstream(folder / "a.xml") << "<algo>\n<";
  EXPECT_THAT(outcome(), AllOf(HasSubstr("usage"), HasSubstr("a.xml, line")));
  std::string wrong = kMsccl;
  wrong.replace(wrong.find("type=\"rrcs\""), 11, "type=\"rcs\"");
  std::ofstream(folder / "a.xml") << wrong;
  EXPECT_THAT(outcome(), HasSubstr("are wrong for all_reduce of 2 ranks"));
  // Otherwise the communicator of the two ranks that are left could never be made.
  EXPECT_THAT(outcome_of([&] { Communicator::in_process(3, config); }),
              HasSubstr("are wrong for all_reduce of 2 ranks"));
  std::string taken = kMsccl;
  taken.replace(taken.find("name=\"halves\""), 13, "name=\"ring\"");
  std::ofstream(folder / "a.xml") << taken;
  EXPECT_THAT(outcome(), HasSubstr("tutti uses the name 'ring' itself"));
  std::ofstream(folder / "a.xml") << kMsccl;
  EXPECT_EQ(outcome(), "");
  std::ofstream(folder / "b.xml") << kMsccl;
  EXPECT_THAT(outcome(), HasSubstr("another file has an algorithm of the name 'halves'"));
  config.schedules = (folder / "none").string();
  EXPECT_THAT(outcome(), AllOf(HasSubstr("usage"), HasSubstr("No such file")));
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace tutti::test
