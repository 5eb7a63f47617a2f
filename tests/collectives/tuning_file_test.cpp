#include "collectives/planning/tuning_file.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <functional>
#include <iterator>

#include <tutti/error.hpp>

#include "tests/common/errors.h"

namespace tutti {
namespace {

using testing::AllOf;
using testing::HasSubstr;

namespace fs = std::filesystem;

const MachineId kMachine{"Some Processor", 4, 1 << 20};

class TuningFile : public testing::Test {
 protected:
  TuningFile() { fs::create_directories(folder_); }
  ~TuningFile() override { fs::remove_all(folder_); }

  fs::path path() const { return folder_ / "tuning.json"; }

  std::string text() const {
    std::ifstream file(path());
    return {std::istreambuf_iterator<char>(file), {}};
  }
  /// Writes a tuning file and replaces `before` in it by `after`.
  void damage(const std::string& before, const std::string& after) const {
    write_tuning_file(path(), MachineCosts{}, kMachine);
    std::string changed = text();
    ASSERT_NE(changed.find(before), std::string::npos) << changed;
    changed.replace(changed.find(before), before.size(), after);
    std::ofstream(path()) << changed;
  }
  std::string reading_error() const {
    return usage_error([&] { read_tuning_file(path(), kMachine); });
  }

  const fs::path folder_ = fs::temp_directory_path() / fmt::format("tutti-tuning-{}", ::getpid());
};

TEST_F(TuningFile, KeepsWhatWasWritten) {
  MachineCosts costs;
  costs.step = 4711;
  costs.anywhere = LinkKind::other_package;
  costs.links[2].latency = 99;
  const fs::path deep = folder_ / "a" / "b" / "tuning.json";
  write_tuning_file(deep, costs, kMachine);
  EXPECT_EQ(read_tuning_file(deep, kMachine), costs);
  EXPECT_EQ(std::distance(fs::directory_iterator(deep.parent_path()), {}), 1)
      << "nothing else is left there";
}

TEST_F(TuningFile, ReadsTheNamesOfEarlierVersions) {
  damage("\"network_ps_per_kib\": 80000", "\"line_ps_per_kib\": 4711");
  EXPECT_EQ(read_tuning_file(path(), kMachine).network_kib, 4711);
}

TEST_F(TuningFile, DamageIsToldWithItsLine) {
  damage("\"call_ps\": 30000,", "\"call_ps\": 30000");
  EXPECT_THAT(reading_error(), AllOf(HasSubstr(path().string() + ":12:"), HasSubstr("no JSON")));
  std::ofstream(path()) << "";
  EXPECT_THAT(reading_error(), HasSubstr(path().string() + ":1: "));
  std::ofstream(path()) << "[1, 2]";
  EXPECT_THAT(reading_error(), HasSubstr("is no object"));
}

TEST_F(TuningFile, FileThatIsNotThereIsToldByItsName) {
  EXPECT_THAT(reading_error(), AllOf(HasSubstr(path().string()), HasSubstr("No such file")));
}

TEST_F(TuningFile, OnlyAPlainFileOfLimitedSizeIsRead) {
  fs::create_directory(path());
  EXPECT_THAT(reading_error(), AllOf(HasSubstr(path().string()), HasSubstr("not a plain file")));
  fs::remove(path());
  ASSERT_EQ(mkfifo(path().c_str(), 0600), 0);
  EXPECT_THAT(reading_error(), HasSubstr("not a plain file"));
  fs::remove(path());
  fs::create_symlink("/dev/zero", path());
  EXPECT_THAT(reading_error(), HasSubstr("not a plain file"));
  fs::remove(path());
  std::ofstream(path()) << std::string((1 << 20) + 1, ' ');
  EXPECT_THAT(reading_error(), HasSubstr("more than 1 MiB"));
}

TEST_F(TuningFile, NumberOutOfItsRangeIsToldWithFieldAndLine) {
  damage("\"step_ps\": 12200", "\"step_ps\": -1");
  EXPECT_THAT(reading_error(), AllOf(HasSubstr(":12:"), HasSubstr("\"step_ps\" is '-1'"),
                                     HasSubstr("from 0 to 100000000000")));
  damage("\"step_ps\": 12200", "\"step_ps\": 1.5");
  EXPECT_THAT(reading_error(), HasSubstr("\"step_ps\" is '1.5'"));
  damage("\"anywhere\": \"shared L3\"", "\"anywhere\": \"near\"");
  EXPECT_THAT(reading_error(), HasSubstr("no kind of link"));
}

TEST_F(TuningFile, FieldThatIsMissingIsTold) {
  damage("\"yield_ps\"", "\"yields\"");
  EXPECT_THAT(reading_error(), HasSubstr("lacks the field \"yield_ps\""));
  damage("\"other package\"", "\"elsewhere\"");
  EXPECT_THAT(reading_error(), HasSubstr("lacks the field \"other package\""));
  damage("\"format\": 2", "\"format\": 3");
  EXPECT_THAT(reading_error(),
              HasSubstr("is of format 3, and this version of tutti reads format 2"));
}

TEST_F(TuningFile, NumbersAndNestingBeyondAllBoundsAreToldAndEndNoProcess) {
  damage("\"format\": 2", "\"format\": 2e999");
  EXPECT_THAT(reading_error(), HasSubstr("has a number that is too large"));
  damage("\"format\": 2", "\"format\": " + std::string(400'000, '[') + std::string(400'000, ']'));
  EXPECT_THAT(reading_error(), HasSubstr("is nested more than 16 deep"));
}

TEST_F(TuningFile, FileOfAnotherMachineIsRefusedNamingBoth) {
  write_tuning_file(path(), MachineCosts{}, {"Other Processor", 8, 2 << 20});
  EXPECT_THAT(reading_error(), AllOf(HasSubstr("Other Processor, 8 cpus, 2048 KiB"),
                                     HasSubstr("Some Processor, 4 cpus, 1024 KiB")));
}

TEST_F(TuningFile, IsNotWrittenThroughALinkThatSomebodyHasPutInItsWay) {
  const fs::path victim = folder_ / "victim";
  std::ofstream(victim) << "mine";
  fs::create_symlink(victim, path().string() + fmt::format(".{}", ::getpid()));
  write_tuning_file(path(), MachineCosts{}, kMachine);
  EXPECT_EQ(read_tuning_file(path(), kMachine), MachineCosts{});
  EXPECT_EQ(fs::file_size(victim), 4u);
}

TEST_F(TuningFile, PathThatCannotBeWrittenIsTold) {
  std::ofstream(folder_ / "file") << "";
  const fs::path below = folder_ / "file" / "tuning.json";
  EXPECT_THAT(message_of(ErrorKind::unavailable,
                         [&] { write_tuning_file(below, MachineCosts{}, kMachine); }),
              AllOf(HasSubstr(below.string()), HasSubstr("Not a directory")));
}

TEST_F(TuningFile, FullDiskLeavesWhatWasThereAndNothingElse) {
  write_tuning_file(path(), MachineCosts{}, kMachine);
  const std::string before = text();
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit old{};
  getrlimit(RLIMIT_FSIZE, &old);
  const rlimit small{100, old.rlim_max};
  setrlimit(RLIMIT_FSIZE, &small);
  MachineCosts costs;
  costs.step = 1;
  EXPECT_THAT(
      message_of(ErrorKind::unavailable, [&] { write_tuning_file(path(), costs, kMachine); }),
      HasSubstr("File too large"));
  setrlimit(RLIMIT_FSIZE, &old);
  std::signal(SIGXFSZ, handler);
  EXPECT_EQ(text(), before);
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), {}), 1);
}

TEST_F(TuningFile, DefaultPlaceIsTheUsersCache) {
  const std::vector<std::string_view> both{"HOME=/home/u", "XDG_CACHE_HOME=/cache"};
  EXPECT_EQ(default_tuning_file(both), "/cache/tutti/tuning.json");
  const std::vector<std::string_view> home{"HOME=/home/u", "XDG_CACHE_HOME="};
  EXPECT_EQ(default_tuning_file(home), "/home/u/.cache/tutti/tuning.json");
  EXPECT_EQ(default_tuning_file({}), "");
}

TEST_F(TuningFile, MachineIsKnownByItsProcessorAndCaches) {
  fs::create_directories(folder_ / "proc");
  std::ofstream(folder_ / "proc" / "cpuinfo") << "processor\t: 0\nmodel name\t: Fast One @ 3 GHz\n";
  EXPECT_EQ(this_machine(folder_).model, "Fast One @ 3 GHz");
  EXPECT_EQ(this_machine(), this_machine());
}

}  // namespace
}  // namespace tutti
