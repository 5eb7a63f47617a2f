// tutti-trace beside real jobs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "command.h"
#include "trace/source.h"

namespace tutti::tools {
namespace {

namespace fs = std::filesystem;

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

// A job of three ranks, which ends with the object, and the processes of its ranks.
class TracedJobOf {
 public:
  explicit TracedJobOf(const std::string& what, std::vector<std::string> before = {})
      : command_([&] {
          before.insert(before.end(), {TUTTI_RUN, "-n", "3", "--no-tag", TRACED_PROGRAM, what});
          return before;
        }()) {}
  ~TracedJobOf() {
    command_.signal(SIGTERM);
    static_cast<void>(command_.wait());
  }

  Command& command() { return command_; }
  std::vector<std::string> ranks() const {
    std::vector<std::string> found;
    const auto traced = find_processes();
    for (const pid_t pid : command_.marked_processes())
      if (std::find(traced.begin(), traced.end(), pid) != traced.end())
        found.push_back(std::to_string(pid));
    return found;
  }

 private:
  Command command_;
};

struct Said {
  int status = -1;
  std::string out, err;
};

Said trace(const std::vector<std::string>& arguments) {
  std::vector<std::string> all{TUTTI_TRACE};
  all.insert(all.end(), arguments.begin(), arguments.end());
  Command command(all);
  const int status = command.wait();
  return {status, command.out(), command.err()};
}

// Asks again and again until tutti-trace says it of the job's three ranks, for half a minute at
// most.
std::string report_with(const TracedJobOf& job, const std::string& wanted,
                        std::vector<std::string> options = {"--job"}) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  std::string last;
  while (std::chrono::steady_clock::now() < end) {
    std::vector<std::string> arguments = options;
    const auto ranks = job.ranks();
    if (ranks.size() < 3) continue;
    arguments.insert(arguments.end(), ranks.begin(), ranks.end());
    last = trace(arguments).out;
    if (last.find(wanted) != std::string::npos) return last;
  }
  return "it was never said: " + wanted + "\n" + last;
}

TEST(TuttiTrace, NamesTheRankThatIsLate) {
  TracedJobOf job("slow");
  ASSERT_TRUE(job.command().wait_for_output("waits"));
  const std::string said = report_with(job, "of 31 operations");
  EXPECT_THAT(said, AllOf(HasSubstr("of 3 ranks"), HasSubstr("Straggler: rank 1 entered last in "),
                          Not(HasSubstr("Never came"))));
  const std::string first = "Straggler: rank ";  // the one that costs most
  EXPECT_EQ(said.substr(said.find(first) + first.size(), 1), "1") << said;
}

TEST(TuttiTrace, NamesTheRankThatNeverCameEvenIfItIsFrozen) {
  TracedJobOf job("absent");
  ASSERT_TRUE(job.command().wait_for_output("waits"));
  EXPECT_THAT(report_with(job, "Never came: rank 1"),
              AllOf(HasSubstr("rank 1 has not called #2 all_reduce(2 x f32, sum)"),
                    HasSubstr("rank 0 waits for rank 1"), HasSubstr("ends at rank 1"),
                    Not(HasSubstr("Deadlock"))));
  const auto ranks = job.ranks();
  for (const std::string& each : ranks) kill(std::stoi(each), SIGSTOP);
  EXPECT_THAT(report_with(job, "stopped by a signal"), HasSubstr("Never came: rank 1"));
  for (const std::string& each : ranks) kill(std::stoi(each), SIGCONT);
}

TEST(TuttiTrace, FindsTheDeadlock) {
  TracedJobOf job("cycle");
  EXPECT_THAT(
      report_with(job, "Deadlock"),
      HasSubstr("Deadlock: rank 0 waits for rank 1, rank 1 waits for rank 2, rank 2 waits for "
                "rank 0."));
}

TEST(TuttiTrace, NamesTheCallsWhoseRanksAgreeOverTheStoreAndForWhomTheyWait) {
  for (const std::string call : {"agree", "shrink"}) {
    SCOPED_TRACE(call);
    TracedJobOf job(call);
    report_with(job, "rank 0 waits for rank 1 in " + call + ", for ");
    report_with(job, "rank 2 waits for rank 1 in " + call + ", for ");
    const std::string end = "All that waits there ends at rank 1 of tutti/1: in no operation";
    EXPECT_THAT(report_with(job, end), AllOf(HasSubstr(end), HasSubstr("in " + call + " for "),
                                             Not(HasSubstr("Deadlock"))));
  }
  TracedJobOf job("grow");
  EXPECT_THAT(report_with(job, "waits for newcomers"), HasSubstr("in grow for "));
}

TEST(TuttiTrace, ListsTheCommunicatorsOfAProcess) {
  TracedJobOf job("group");
  std::string said;  // Ranks come to the last call one after the other.
  for (const char* const wanted :
       {"all_reduce(2 x f32, max)", " rank 2 of 3: ", " rank 0 of 1: ", " rank 1 of 2: "})
    said = report_with(job, wanted, {});
  EXPECT_THAT(said, AllOf(HasSubstr("traced_program group"), HasSubstr(" rank 2 of 3: "),
                          HasSubstr(" rank 0 of 1: "), HasSubstr(" rank 1 of 2: ")));
}

TEST(TuttiTrace, WritesATraceThatIsValid) {
  TracedJobOf job("slow");
  ASSERT_TRUE(job.command().wait_for_output("waits"));
  const fs::path path = fs::path(testing::TempDir()) / fmt::format("trace.{}.json", getpid());
  report_with(job, "of 31 operations", {"-o", path});
  const Said full = trace({"--job", "-o", "/dev/full", job.ranks().front()});
  EXPECT_THAT(full.err, HasSubstr("/dev/full: it cannot be written: No space left on device"));
  std::ifstream file(path);
  const auto written = nlohmann::json::parse(file);
  int reductions = 0;
  for (const auto& event : written.at("traceEvents")) {
    if (event.at("ph") != "X") continue;
    EXPECT_GE(event.at("ts").get<double>(), 0.0);
    EXPECT_GE(event.at("dur").get<double>(), 0.0);
    reductions += event.at("name") == "all_reduce(2 x f32, sum)";
  }
  EXPECT_EQ(reductions, 90);
  // What cannot be read or written costs neither the rest of the report nor the older file.
  const Said some = trace({"--job", "4194305", "-o", path, job.ranks().front()});
  EXPECT_EQ(some.status, 1);
  EXPECT_THAT(some.err, HasSubstr("process 4194305: there is no such process"));
  EXPECT_THAT(some.out, HasSubstr("of 3 ranks"));
  const auto before = fs::file_size(path);
  fs::create_directory(path.string() + ".part");
  const Said unwritten = trace({"--job", "-o", path, job.ranks().front()});
  EXPECT_EQ(unwritten.status, 1);
  EXPECT_THAT(unwritten.err, HasSubstr("it cannot be written: "));
  EXPECT_THAT(unwritten.out, HasSubstr("of 3 ranks"));
  EXPECT_EQ(fs::file_size(path), before);
  fs::remove(path.string() + ".part");
  fs::remove(path);
}

TEST(TuttiTrace, WatchesAJobThatRuns) {
  TracedJobOf job("alive");
  ASSERT_TRUE(job.command().wait_for_output("goes on"));
  std::vector<std::string> arguments = job.ranks();
  ASSERT_EQ(arguments.size(), 3u);
  arguments.insert(arguments.end(), {"--watch=0.3", "--times", "3"});
  const Said said = trace(arguments);
  EXPECT_EQ(said.status, 0) << said.err;
  EXPECT_THAT(said.out, AllOf(HasSubstr("rank 1     last in"), Not(HasSubstr("\x1b"))));
}

TEST(TuttiTrace, ReadsWhatRanksDumpedAfterTheyEnded) {
  const fs::path folder = fs::path(testing::TempDir()) / fmt::format("dumps.{}", getpid());
  fs::create_directory(folder);
  {
    TracedJobOf job("different", {"env", "TUTTI_TRACE_DIR=" + folder.string()});
    EXPECT_EQ(job.command().wait(), 3) << job.command().err();
  }
  const Said said = trace({folder});
  EXPECT_EQ(said.status, 0) << said.err;
  EXPECT_THAT(said.out, AllOf(HasSubstr("Mismatch: under number 1"), HasSubstr("all_gather"),
                              HasSubstr("failed: ")));
  fs::remove_all(folder);
}

TEST(TuttiTrace, RanksDumpBeforeTuttiRunEndsThemForAFailure) {
  const fs::path folder = fs::path(testing::TempDir()) / fmt::format("killed.{}", getpid());
  fs::create_directory(folder);
  TracedJobOf job("absent", {"env", "TUTTI_TRACE_DIR=" + folder.string()});
  ASSERT_TRUE(job.command().wait_for_output("waits"));
  report_with(job, "Never came");
  for (const std::string& each : job.ranks())
    if (trace({each}).out.find("rank 1 of 3") != std::string::npos) kill(std::stoi(each), SIGKILL);
  // A rank that finds its connection to rank 1 closed may end before rank 1 has quite ended.
  EXPECT_THAT(job.command().wait(), testing::AnyOf(128 + SIGKILL, 3)) << job.command().err();
  EXPECT_THAT(job.command().err(), HasSubstr("ending the other 2 when they have written"));
  EXPECT_THAT(trace({folder}).out,
              AllOf(HasSubstr("rank 0: failed: "), HasSubstr("rank 2: failed: "),
                    HasSubstr("rank 1: no record")));
  fs::remove_all(folder);
}

// The signal goes to tutti-run, which passes it on to all ranks; two of them are in a call.
TEST(TuttiTrace, ReadsWhatRanksDumpedWhenASignalAskedForIt) {
  const fs::path folder = fs::path(testing::TempDir()) / fmt::format("asked.{}", getpid());
  fs::create_directory(folder);
  TracedJobOf job("absent",
                  {"env", "TUTTI_TRACE_DIR=" + folder.string(), "TUTTI_TRACE_SIGNAL=USR2"});
  ASSERT_TRUE(job.command().wait_for_output("waits"));
  report_with(job, "Never came");
  job.command().signal(SIGUSR2);
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  const auto dumps = [&] {
    int files = 0;
    for (const auto& each : fs::directory_iterator(folder))
      files += each.path().extension() == ".tuttitrace";
    return files;
  };
  while (dumps() < 3 && std::chrono::steady_clock::now() < end) continue;
  EXPECT_THAT(trace({folder}).out, AllOf(HasSubstr("Never came: rank 1 has not called #2"),
                                         HasSubstr("rank 2 waits for rank 1")));
  std::ofstream(folder / "damaged.tuttitrace") << "no dump";  // it hides none of the others
  const auto beside = trace({folder});
  EXPECT_EQ(beside.status, 1);
  EXPECT_THAT(beside.out, HasSubstr("Never came: rank 1 has not called #2"));
  EXPECT_THAT(beside.err, HasSubstr("damaged.tuttitrace"));
  fs::remove_all(folder);
}

TEST(TuttiTrace, LeavesNothingBehindWhenARankIsKilled) {
  TracedJobOf job("absent");
  ASSERT_TRUE(job.command().wait_for_output("waits"));
  report_with(job, "Never came");
  const auto ranks = job.ranks();
  ASSERT_EQ(ranks.size(), 3u);
  for (const std::string& each : ranks) kill(std::stoi(each), SIGKILL);
  static_cast<void>(job.command().wait());
  EXPECT_TRUE(job.ranks().empty());
}

TEST(TuttiTrace, SaysWhatItDoes) {
  const Said said = trace({"--help"});
  EXPECT_EQ(said.status, 0);
  EXPECT_THAT(said.out,
              AllOf(HasSubstr("--watch"), HasSubstr("--job"), HasSubstr("TUTTI_TRACE_DIR")));
}

TEST(TuttiTrace, SaysInWordsWhatCannotBeRead) {
  const Said nobody = trace({"4194305"});
  EXPECT_EQ(nobody.status, 1);
  EXPECT_THAT(nobody.err, HasSubstr("process 4194305: there is no such process"));
  const Said own = trace({std::to_string(getpid())});
  EXPECT_EQ(own.status, 1);
  EXPECT_THAT(own.err, HasSubstr("it does not use tutti"));
  const Said file = trace({"/proc/self/status"});
  EXPECT_EQ(file.status, 1);
  EXPECT_THAT(file.err, HasSubstr("it is no trace of tutti"));
  const Said missing = trace({"/no/such/file"});
  EXPECT_EQ(missing.status, 1);
  EXPECT_THAT(missing.err, HasSubstr("No such file"));
  const fs::path fifo = fs::path(testing::TempDir()) / fmt::format("fifo.{}", getpid());
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  EXPECT_THAT(trace({fifo}).err, HasSubstr("it is no trace of tutti"));
  fs::remove(fifo);
  EXPECT_EQ(trace({"--times", "3"}).status, 2);
}

TEST(TuttiTrace, NamesTheLimitOnTheSizeOfFilesWithWhichRecordsArePrivate) {
  TracedJobOf job("slow", {"sh", "-c", "ulimit -f 1000000; exec \"$@\"", "sh"});
  ASSERT_TRUE(job.command().wait_for_output("waits"));
  for (const pid_t pid : job.command().marked_processes()) {
    const Said said = trace({std::to_string(pid)});
    EXPECT_EQ(said.status, 1);
    EXPECT_THAT(said.err, HasSubstr("a limit on the size of files (ulimit -f)"));
  }
}

TEST(TuttiTrace, RefusesOptionsThatMeanNothing) {
  for (const std::vector<std::string>& wrong :
       {std::vector<std::string>{"--watch", "nan"}, {"-o", ""}, {"--watch", "1", "--job"}}) {
    const Said said = trace(wrong);
    EXPECT_EQ(said.status, 2) << said.out;
    EXPECT_THAT(said.err, HasSubstr(wrong.back().starts_with("--") ? "--job" : wrong.front()));
  }
}

TEST(TuttiTrace, RefusesADumpOfAnotherVersionAndOneThatIsCut) {
  const fs::path path = fs::path(testing::TempDir()) / fmt::format("version.{}", getpid());
  TraceHead head{};
  head.magic = kTraceMagic;
  head.version = kTraceVersion + 1;
  const auto write = [&] {
    std::ofstream(path, std::ios::binary).write(reinterpret_cast<const char*>(&head), sizeof head);
  };
  write();
  EXPECT_THAT(trace({path}).err, HasSubstr("use the tutti-trace of the program's tutti"));
  head.version = kTraceVersion;
  head.capacity = 64;
  head.extents = 3;
  write();
  EXPECT_THAT(trace({path}).err, HasSubstr("damaged or incomplete"));
  head.extents = 0;
  head.capacity = 63;
  write();
  EXPECT_THAT(trace({path}).err, HasSubstr("damaged or incomplete"));
  fs::remove(path);
}

// One record says that four thousand million calls followed it.
TEST(TuttiTrace, PassesOverARecordOfMoreCallsThanThereCanBe) {
  const fs::path path = fs::path(testing::TempDir()) / fmt::format("calls.{}", getpid());
  TraceHead head{};
  head.magic = kTraceMagic;
  head.version = kTraceVersion;
  head.capacity = 64;
  head.extents = 1;
  RingHead ring{};
  ring.size = 1;
  ring.state = RingState::open;
  std::array<Record, 2> records{};
  for (std::uint64_t number = 0; number < records.size(); ++number) {
    records[number].sequence = number + 1;
    records[number].number = number;
    records[number].ended = Record::kSoon;
  }
  records[1].more = 0xffff'fff0;
  {
    std::ofstream file(path, std::ios::binary);
    file.write(reinterpret_cast<const char*>(&head), sizeof head);
    file.seekp(extent_offset(0, 64));
    file.write(reinterpret_cast<const char*>(&ring), sizeof ring);
    file.seekp(extent_offset(0, 64) + kRingHeadBytes);
    file.write(reinterpret_cast<const char*>(records.data()), sizeof records);
  }
  fs::resize_file(path, extent_offset(1, 64));
  const auto read = read_dump(path);
  ASSERT_EQ(read.ranks.size(), 1u);
  ASSERT_EQ(read.ranks[0].operations.size(), 1u);
  EXPECT_EQ(read.ranks[0].operations[0].record.number, 0u);
  EXPECT_EQ(trace({"--job", path}).status, 0);
  fs::remove(path);
}

}  // namespace
}  // namespace tutti::tools
