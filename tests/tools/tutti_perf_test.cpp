// Runs the real tutti-perf, with ranks that it starts and with a launcher's.
#include <dlfcn.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "command.h"
#include "perf_rows.h"
#include "xml.h"

namespace tutti::tools {
namespace {

using testing::HasSubstr;

std::vector<std::string> perf(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), TUTTI_PERF);
  return arguments;
}

const std::vector<std::string> kOperations{"all_reduce", "all_gather",     "alltoall",  "alltoallv",
                                           "broadcast",  "gather",         "hypercube", "reduce",
                                           "scatter",    "reduce_scatter", "sendrecv"};

bool has_root(const std::string& operation) {
  return operation == "broadcast" || operation == "reduce" || operation == "gather" ||
         operation == "scatter";
}

void expect_right_rows(const std::string& operation, std::vector<std::string> options,
                       std::size_t count) {
  options.insert(options.begin(), operation);
  Command command(perf(options));
  ASSERT_EQ(command.wait(), 0) << operation << command.out() << command.err();
  EXPECT_THAT(command.out(), HasSubstr("# Out of bounds values : 0 OK\n"));
  const bool reduces = operation.find("reduce") != std::string::npos;
  const bool rooted = has_root(operation);
  const auto table = rows(command.out());
  EXPECT_EQ(table.size(), count) << operation << command.out();
  for (const auto& row : table) {
    ASSERT_EQ(row.size(), 13u) << operation;
    EXPECT_EQ(row[8], "0") << operation << ' ' << row[2] << ' ' << row[3];
    const bool has_in_place = operation != "alltoallv" && operation != "sendrecv";
    EXPECT_EQ(row[12], has_in_place ? "0" : "N/A") << operation << ' ' << row[2] << ' ' << row[3];
    EXPECT_EQ(row[3] == "none", !reduces && operation != "sendrecv");
    EXPECT_EQ(row[4] == "-1", !rooted);
  }
}

TEST(TuttiPerf, ChecksEveryTypeAndReductionOfEveryOperation) {
  for (const std::string& operation : kOperations) {
    const bool reduces = operation.find("reduce") != std::string::npos;
    expect_right_rows(operation,
                      {"--ranks", "2", "-b", "20000", "-e", "20000", "-n", "1", "-w", "0", "-o",
                       "all", "-d", "all"},
                      reduces ? 72 : 12);
  }
}

TEST(TuttiPerf, ShowsAPremultipliedSumAsNcclTestsDo) {
  Command command(perf({"reduce", "-t", "3", "-b", "4K", "-e", "4K", "-o", "mulsum", "-m", "2"}));
  ASSERT_EQ(command.wait(), 0) << command.err();
  const auto table = rows(command.out());
  ASSERT_EQ(table.size(), 1u);
  EXPECT_EQ(table[0][3], "mulsum");
  EXPECT_EQ(table[0][8], "0");
  EXPECT_EQ(table[0][12], "0");
}

TEST(TuttiPerf, ChecksEverySizeAndRootOfEveryOperation) {
  for (const std::string& operation : kOperations) {
    expect_right_rows(operation,
                      {"--ranks", operation == "hypercube" ? "4" : "3", "-b", "1", "-e", "1M", "-f",
                       "1000", "-n", "1", "-w", "0", "-r", "all"},
                      has_root(operation) ? 9 : 3);
  }
}

TEST(TuttiPerf, JoinsTheRanksOfALauncher) {
  Command command(
      {TUTTI_RUN, "-n", "2", "--", TUTTI_PERF, "all_reduce_perf", "-b", "8", "-e", "8"});
  EXPECT_EQ(command.wait(), 0) << command.err();
  EXPECT_THAT(command.out(), HasSubstr("[0] # Collective test starting: all_reduce_perf\n"));
  EXPECT_THAT(command.out(), HasSubstr("[0] #  Rank  1 Group  0 Pid "));
  EXPECT_THAT(command.out(),
              HasSubstr("[0]            8             2     float     sum      -1 "));
  EXPECT_THAT(command.out(), testing::Not(HasSubstr("[1]"))) << "rank 0 alone writes";
}

TEST(TuttiPerf, RefusesAnotherNumberOfRanksThanTheLauncherStarted) {
  const auto under_launcher = [](const std::string& ranks) {
    return Command({TUTTI_RUN, "-n", "2", "--no-tag", "--", TUTTI_PERF, "all_reduce", "-b", "8",
                    "-e", "8", "--ranks", ranks});
  };
  Command refused = under_launcher("4");
  EXPECT_EQ(refused.wait(), 2) << refused.err();
  EXPECT_THAT(refused.err(), HasSubstr("usage: --ranks 4: a launcher started 2 ranks"));
  Command equal = under_launcher("2");
  EXPECT_EQ(equal.wait(), 0) << equal.err();
}

TEST(TuttiPerf, ExplainsWhatEachAlgorithmWouldTakeAndTakes) {
  for (const char* operation : {"all_reduce", "alltoall"}) {
    Command command(perf(
        {operation, "--explain", "--ranks", "3", "-b", "64", "-e", "4K", "-f", "64", "-n", "3"}));
    ASSERT_EQ(command.wait(), 0) << command.err();
    std::size_t chosen = 0, fastest = 0;
    for (const auto& row : rows(command.out())) {
      ASSERT_GE(row.size(), 6u) << command.out();
      EXPECT_TRUE(row[0] == "48" || row[0] == "64" || row[0] == "4080" || row[0] == "4096");
      for (const std::string& field : row) {
        chosen += field == "*" || field == "*<" ? 1 : 0;
        fastest += field == "<" || field == "*<" ? 1 : 0;
      }
    }
    EXPECT_EQ(chosen, 2u) << "one a size" << command.out();
    EXPECT_EQ(fastest, 2u) << command.out();
    EXPECT_THAT(command.out(), HasSubstr("predictions are off by less than"));
  }
}

TEST(TuttiPerf, CannotExplainWhatNoAlgorithmServes) {
  Command command(perf({"sendrecv", "--explain"}));
  EXPECT_EQ(command.wait(), 2);
  EXPECT_THAT(command.err(), HasSubstr("no algorithm is chosen for it"));
}

/// A folder that is removed at the end of its scope.
class Folder {
 public:
  Folder()
      : path_(std::filesystem::temp_directory_path() / fmt::format("tutti-tune-{}", getpid())) {
    std::filesystem::create_directories(path_);
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  std::string file(const std::string& name) const { return path_ / name; }

 private:
  const std::filesystem::path path_;
};

TEST(TuttiPerf, TunesAndKeepsWhatItFoundWhereRanksReadIt) {
  const Folder folder;
  const std::string path = folder.file("tuning.json");
  Command command(perf({"--tune", "--tune-file", path, "-n", "2"}));
  const int status = command.wait();
  EXPECT_THAT(command.out(), HasSubstr("Three of four of these"));
  if (status == 1) {  // With two calls each, a busy machine may have disturbed it.
    EXPECT_THAT(command.out(), HasSubstr("Nothing is kept"));
    EXPECT_FALSE(std::filesystem::exists(path));
    return;
  }
  ASSERT_EQ(status, 0) << command.err();
  setenv("TUTTI_TUNING_FILE", path.c_str(), 1);
  Command ranks(perf({"--ranks", "2", "-b", "64", "-e", "64", "-n", "1"}));
  EXPECT_EQ(ranks.wait(), 0) << ranks.err();
  std::ofstream(path) << "{";
  Command damaged(perf({"--ranks", "2", "-b", "64", "-e", "64", "-n", "1"}));
  EXPECT_NE(damaged.wait(), 0);
  unsetenv("TUTTI_TUNING_FILE");
  EXPECT_THAT(damaged.err(), HasSubstr("tuning.json:1: the tuning file is no JSON here"));
}

TEST(TuttiPerf, TuneSaysAtOnceThatItCannotWrite) {
  const Folder folder;
  std::ofstream(folder.file("file")) << "";
  Command command(perf({"--tune", "--tune-file", folder.file("file") + "/tuning.json"}));
  EXPECT_EQ(command.wait(), 2);
  EXPECT_THAT(command.err(), HasSubstr("cannot be written: Not a directory"));
  EXPECT_THAT(command.out(), testing::Not(HasSubstr("Measuring")));
  Command missing(perf({"--tune", "--tune-file", folder.file("none") + "/tuning.json"}));
  EXPECT_EQ(missing.wait(), 2);
  EXPECT_THAT(missing.err(), HasSubstr("tuning.json: cannot write there: No such file"));
  EXPECT_FALSE(std::filesystem::exists(folder.file("none"))) << "perhaps a misspelt name";
}

TEST(TuttiPerf, TuneSaysWhichVariableNamesAFolderForTemporaryFilesThatIsNotThere) {
  const Folder folder;
  std::vector<std::string> command{"env", "TMPDIR=" + folder.file("not here")};
  for (const std::string& word : perf({"--tune", "--tune-file", folder.file("tuning.json")}))
    command.push_back(word);
  Command tune(command);
  EXPECT_EQ(tune.wait(), 2);
  EXPECT_THAT(tune.err(), HasSubstr("(TMPDIR)"));
}

TEST(TuttiPerf, OneRankMeasuresItsCopy) {
  Command command(perf({"--ranks", "1", "-b", "64", "-e", "64", "--phase", "--rotate"}));
  EXPECT_EQ(command.wait(), 0) << command.err();
  ASSERT_EQ(rows(command.out()).size(), 1u);
  EXPECT_EQ(rows(command.out())[0].back(), "N/A") << "there are no two cores to go between";
}

TEST(TuttiPerf, JsonHasTheTablesRowsAndThePhaseOfEach) {
  const std::string path = fmt::format("{}tutti_perf.{}.json", testing::TempDir(), ::getpid());
  Command command(perf(
      {"--ranks", "2", "-b", "8", "-e", "64", "-f", "8", "-J", path, "-a", "3", "--show-limits"}));
  ASSERT_EQ(command.wait(), 0) << command.err();
  std::ifstream file(path);
  const auto json = nlohmann::json::parse(file);
  ASSERT_EQ(json["results"].size(), 2u);
  EXPECT_EQ(json["config"]["devices"].size(), 2u);
  for (const auto& row : json["results"]) {
    EXPECT_GT(row["limit_us"], 0);
    for (const char* place : {"out_of_place", "in_place"}) {
      EXPECT_GT(row[place]["time"], 0);
      EXPECT_GT(row[place]["one_way_ns"], 0);
      EXPECT_EQ(row[place]["nwrong"], 0);
    }
  }
  std::remove(path.c_str());
}

TEST(TuttiPerf, WritesJsonToStandardOutputAlsoWhereThatIsAFile) {
  const std::string path = fmt::format("{}tutti_perf.{}.out", testing::TempDir(), ::getpid());
  std::vector<std::string> words{"sh", "-c", "exec \"$@\" >\"$0\"", path};
  for (const std::string& word : perf({"--ranks", "1", "-b", "8", "-e", "8", "-J", "/dev/stdout"}))
    words.push_back(word);
  Command command(words);
  ASSERT_EQ(command.wait(), 0) << command.err();
  std::ifstream file(path);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  EXPECT_THAT(text, testing::AllOf(HasSubstr("# Avg bus bandwidth"), HasSubstr("\"results\"")));
  EXPECT_FALSE(std::filesystem::exists("/dev/stdout.0"));
  std::remove(path.c_str());
}

TEST(TuttiPerf, RefusesToMeasureTheLimitsInEachRankOfALauncher) {
  Command command({TUTTI_RUN, "-n", "2", TUTTI_PERF, "--limits"});
  EXPECT_EQ(command.wait(), 2);
  EXPECT_THAT(command.err(), HasSubstr("--limits measures two cores of its own: run it without"));
}

TEST(TuttiPerf, MeasuresTheLimitsOfTheMachine) {
  Command command(perf({"--limits", "-b", "8", "-e", "4K", "-f", "512"}));
  const int status = command.wait();
  if (::sysconf(_SC_NPROCESSORS_ONLN) < 2) {
    EXPECT_EQ(status, 2);
    EXPECT_THAT(command.err(), HasSubstr("--limits needs two cores"));
    return;
  }
  EXPECT_EQ(status, 0) << command.err();
  EXPECT_THAT(command.out(), HasSubstr("# One way of a cache line: "));
  EXPECT_EQ(rows(command.out()).size(), 2u);
}

TEST(TuttiPerf, ChecksTheSameOfAggregatedBlockingUnalignedAndRepeatedCalls) {
  for (const std::string& operation : kOperations) {
    expect_right_rows(operation, {"--ranks", "2",  "-b", "3000", "-e",       "3000", "-n",
                                  "2",       "-m", "3",  "-z",   "1",        "-u",   "1",
                                  "-N",      "2",  "-d", "half", "--rotate", "-T",   "60"},
                      2);
  }
  for (const char* blocking : {"0", "2", "3"})
    expect_right_rows("all_reduce", {"-b", "8", "-e", "8", "-n", "2", "-m", "2", "-z", blocking},
                      1);
}

TEST(TuttiPerf, RanksMayBeThreadsOfOneProcess) {
  Command command(perf({"all_gather", "-t", "3", "-b", "3000", "-e", "3000", "-n", "2", "-C", "1",
                        "-S", "1", "-M", "1"}));
  ASSERT_EQ(command.wait(), 0) << command.err();
  EXPECT_THAT(command.out(), HasSubstr("# nThread 3 nGpus 1 "));
  EXPECT_THAT(command.out(),
              HasSubstr(fmt::format("#  Rank  2 Group  0 Pid {:6} ", command.pid())));
  EXPECT_THAT(command.out(), HasSubstr("cputime"));
  EXPECT_THAT(command.out(), HasSubstr("# Memory usage         : Communicator "));
  ASSERT_EQ(rows(command.out()).size(), 1u);
  EXPECT_EQ(rows(command.out())[0].size(), 15u) << "the row ends with date and time";
}

TEST(TuttiPerf, SingleIterationsAreShown) {
  Command command(perf({"-b", "8", "-e", "8", "-n", "10", "-I", "1", "-K", "2"}));
  ASSERT_EQ(command.wait(), 0) << command.err();
  const auto table = rows(command.out());
  ASSERT_EQ(table.size(), 1u);
  ASSERT_EQ(table[0].size(), 21u);
  const double least = std::stod(table[0][9]), greatest = std::stod(table[0][10]);
  EXPECT_GT(least, 0);
  EXPECT_GE(greatest, least);
}

TEST(TuttiPerf, DrawsAWellFormedPicture) {
  const std::string path = fmt::format("{}tutti_perf.{}.svg", testing::TempDir(), ::getpid());
  Command command(perf({"-b", "8", "-e", "1M", "-f", "8", "-n", "2", "--plot", path}));
  ASSERT_EQ(command.wait(), 0) << command.err();
  EXPECT_THAT(command.out(), HasSubstr(fmt::format("# Drawing into {}\n", path)));
  std::ifstream file(path);
  const std::string svg(std::istreambuf_iterator<char>(file), {});
  EXPECT_EQ(xml_mistake(svg), "");
  EXPECT_THAT(svg, HasSubstr(">float sum, in place</text>"));
  std::remove(path.c_str());
}

TEST(TuttiPerf, ALinkedNameBehavesAsTheProgramOfNcclTests) {
  const std::string folder = fmt::format("{}tutti_perf.{}", testing::TempDir(), ::getpid());
  std::filesystem::create_directory(folder);
  const std::string link = folder + "/alltoall_perf";
  std::filesystem::create_symlink(TUTTI_PERF, link);
  Command alone({link, "-b", "8", "-e", "64", "-f", "8"});
  EXPECT_EQ(alone.wait(), 0) << alone.err();
  EXPECT_THAT(alone.out(), HasSubstr("# Collective test starting: alltoall_perf\n"));
  EXPECT_THAT(alone.out(), HasSubstr(" iters: 20 agg iters: 1 "));
  EXPECT_THAT(alone.out(), testing::Not(HasSubstr("Rank  1"))) << "one rank unless asked for more";
  Command launched({TUTTI_RUN, "-n", "2", "--", link, "-b", "64", "-e", "64"});
  EXPECT_EQ(launched.wait(), 0) << launched.err();
  EXPECT_THAT(launched.out(), HasSubstr("#  Rank  1 Group  0 Pid "));
  Command wrong({link, "all_reduce"});
  EXPECT_EQ(wrong.wait(), 2) << "it has its operation already";
  std::filesystem::remove_all(folder);
}

TEST(TuttiPerf, ACallThatTakesTooLongEndsTheRun) {
  Command command(perf({"--ranks", "2", "-b", "8", "-e", "8", "-n", "1000000000", "-T", "1"}));
  ASSERT_TRUE(command.wait_for_output("(us)"));
  const std::size_t pid = command.out().find("Rank  1 Group  0 Pid") + 20;
  ::kill(std::stoi(command.out().substr(pid)), SIGSTOP);
  EXPECT_EQ(command.wait(), 1);
  EXPECT_THAT(command.err(), HasSubstr("tutti-perf: rank 0: timeout: "));
}

TEST(TuttiPerf, FailsBelowTheBandwidthThatWasAskedFor) {
  ::setenv("NCCL_TESTS_MIN_BW", "1000000", 1);
  Command command(perf({"-b", "8", "-e", "8", "-n", "5"}));
  EXPECT_EQ(command.wait(), 1) << command.err();
  EXPECT_THAT(command.out(), HasSubstr(" FAILED\n"));
  ::unsetenv("NCCL_TESTS_MIN_BW");
}

TEST(TuttiPerf, SplitsItsRanksIntoGroupsThatMeasureSideBySide) {
  ::setenv("NCCL_TESTS_SPLIT", "MOD 2", 1);
  for (const char* ranks : {"--ranks", "-t"}) {
    Command command(perf({"all_gather", ranks, "5", "-b", "4096", "-e", "4096", "-n", "5"}));
    EXPECT_EQ(command.wait(), 0) << command.err();
    EXPECT_THAT(command.out(), HasSubstr("#  Rank  0 Group  0 Pid "));
    EXPECT_THAT(command.out(), HasSubstr("#  Rank  3 Group  1 Pid "));
    EXPECT_THAT(command.out(), HasSubstr("# Out of bounds values : 0 OK\n"));
    const auto table = rows(command.out());
    ASSERT_EQ(table.size(), 1u);
    // The size is made of blocks of 16 bytes for each of the three ranks of rank 0's group.
    EXPECT_EQ(table[0][0], "4080");
    EXPECT_EQ(table[0][1], "340");
  }
  ::unsetenv("NCCL_TESTS_SPLIT");
}

TEST(TuttiPerf, RefusesBadArgumentsBeforeItStartsRanks) {
  for (const auto& [arguments, why] : std::vector<std::pair<std::vector<std::string>, std::string>>{
           {{"-b", "x"}, "tutti-perf: usage: -b x: expected a size"},
           {{"broadcast", "-r", "2", "--ranks", "2"}, "tutti-perf: usage: -r 2: there are 2 ranks"},
           {{"hypercube_perf", "--ranks", "3"},
            "tutti-perf: unavailable: hypercube: its ranks are a power of two, and 3 is none"},
           {{"-G", "4"}, "tutti-perf: unavailable: -G,--cudagraph 4: it captures"},
           {{"-t", "2", "-r", "2"}, "tutti-perf: usage: -r 2: there are 2 ranks"},
           {{"--plot", "/nonexistent/x.svg", "--ranks", "2"},
            "tutti-perf: usage: --plot /nonexistent/x.svg: cannot write there"},
           {{"--ranks", "0"}, "tutti-perf: usage: --ranks"}}) {
    Command command(perf(arguments));
    EXPECT_EQ(command.wait(), 2) << why;
    EXPECT_EQ(command.out(), "");
    EXPECT_THAT(command.err(), HasSubstr(why));
  }
}

TEST(TuttiPerf, SaysThatBuffersOnGpusNeedADriver) {
  if (::dlopen("libcuda.so.1", RTLD_NOW) != nullptr) GTEST_SKIP() << "there is a CUDA driver";
  for (const std::vector<std::string>& arguments :
       {std::vector<std::string>{"-g", "2"}, {"--device"}, {"-t", "2", "--device=0"}}) {
    Command command(perf(arguments));
    EXPECT_EQ(command.wait(), 2);
    EXPECT_EQ(command.out(), "");
    EXPECT_THAT(command.err(), HasSubstr("tutti-perf: unavailable: buffers on GPUs (--device, -g) "
                                         "need the CUDA driver: libcuda.so.1"));
  }
}

TEST(TuttiPerf, ARankThatDiesEndsTheRun) {
  Command command(perf({"--ranks", "2", "-b", "8", "-e", "8", "-n", "1000000000"}));
  ASSERT_TRUE(command.wait_for_output("(us)"));
  const std::size_t pid = command.out().find("Rank  1 Group  0 Pid") + 20;
  ::kill(std::stoi(command.out().substr(pid)), SIGKILL);
  EXPECT_NE(command.wait(), 0);
  EXPECT_THAT(command.err(), HasSubstr("tutti-perf: rank "));
  EXPECT_THAT(command.marked_processes(), testing::ElementsAre());
}

}  // namespace
}  // namespace tutti::tools
