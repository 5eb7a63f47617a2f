// Runs the real tutti-run. The job is a shell script, and the tests check what can be seen from
// outside.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <vector>

#include <tutti/tutti.hpp>

#include "command.h"
#include "topology/discover.h"
#include "topology/placement.h"

namespace tutti::tools {
namespace {

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED
#endif
#endif
#ifdef SANITIZED
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::UnorderedElementsAre;

std::vector<std::string> job(int ranks, const std::string& script,
                             std::vector<std::string> options = {}) {
  std::vector<std::string> arguments{TUTTI_RUN, "-n", std::to_string(ranks)};
  arguments.insert(arguments.end(), options.begin(), options.end());
  arguments.insert(arguments.end(), {"--", "sh", "-c", script});
  return arguments;
}

/// A job with processes that resist: a grandchild that ignores SIGTERM, and one in a session of its
/// own.
const std::string kStubbornGrandchildren =
    "(trap '' TERM INT HUP; sleep 1000; sleep 1000) & setsid sleep 1000 & ";

TEST(TuttiRun, SaysItsVersionAndLeavesThatOptionOfTheProgramAlone) {
  Command own({TUTTI_RUN, "--version"});
  EXPECT_EQ(own.wait(), 0) << own.err();
  EXPECT_EQ(own.out(), std::string(version()) + "\n");
  Command programs({TUTTI_RUN, "-n", "1", "--no-tag", "echo", "--version", "x"});
  EXPECT_EQ(programs.wait(), 0) << programs.err();
  EXPECT_THAT(programs.out(), HasSubstr("x"));
}

TEST(TuttiRun, GivesEachRankItsPlaceInTheJob) {
  Command command(job(2, "echo $RANK $WORLD_SIZE $LOCAL_RANK $LOCAL_WORLD_SIZE $MASTER_ADDR $A $B",
                      {"--env", "A=1", "--env", "B=x=y"}));
  EXPECT_EQ(command.wait(), 0) << command.err();
  EXPECT_THAT(command.out_lines(),
              UnorderedElementsAre("[0] 0 2 0 2 127.0.0.1 1 x=y", "[1] 1 2 1 2 127.0.0.1 1 x=y"));
}

TEST(TuttiRun, PutsTuttisNcclBeforeAnyOther) {
  if (kSanitized) GTEST_SKIP() << "a shell without sanitizers cannot load a library with them";
  const std::string script = "echo ${LD_PRELOAD%%:*} ${LD_LIBRARY_PATH%%:*}";
  Command command(job(1, script, {"--no-tag", "--nccl"}));
  EXPECT_EQ(command.wait(), 0) << command.err();
  const std::string folder =
      std::string(NCCL_LIBRARY).substr(0, std::string(NCCL_LIBRARY).rfind('/'));
  EXPECT_THAT(command.out(), HasSubstr(std::string(NCCL_LIBRARY) + " " + folder + "\n"));
}

TEST(TuttiRun, MakesASecretForTheJobUnlessItHasOne) {
  Command first(job(2, "echo $TUTTI_SECRET", {"--no-tag"})), second(job(1, "echo $TUTTI_SECRET"));
  EXPECT_EQ(first.wait() + second.wait(), 0) << first.err();
  const std::vector<std::string> secrets = first.out_lines();
  ASSERT_EQ(secrets.size(), 2u);
  EXPECT_EQ(secrets[0].size(), 64u);
  EXPECT_EQ(secrets[0], secrets[1]);
  EXPECT_THAT(second.out(), Not(HasSubstr(secrets[0])));
  for (const std::string own :
       {"TUTTI_SECRET=mine, and long enough", "TUTTI_SECRET_FILE=/a/file"}) {
    std::vector<std::string> arguments = job(1, "env | grep ^TUTTI_SECRET", {"--no-tag"});
    arguments.insert(arguments.begin(), {"env", own});
    Command command(arguments);
    EXPECT_EQ(command.wait(), 0);
    EXPECT_EQ(command.out(), own + "\n");
  }
}

/// Returns the cpus of each rank, in the order of ranks.
std::vector<Cpus> cpus_of_ranks(int ranks, const std::vector<std::string>& options) {
  Command command(job(ranks, "sed -n 's/Cpus_allowed_list://p' /proc/self/status", options));
  EXPECT_EQ(command.wait(), 0) << command.err();
  std::vector<Cpus> cpus(static_cast<std::size_t>(ranks));
  for (const std::string& line : command.out_lines()) {
    const std::size_t end = line.find(']');
    cpus[std::stoul(line.substr(1, end))] = parse_cpus(line.substr(end + 1)).value_or(Cpus());
  }
  return cpus;
}

TEST(TuttiRun, BindsRanksAsTopologyPlacesThem) {
  const Machine machine = discover();
  for (int ranks = 1; ranks <= 3; ++ranks) {
    std::vector<Cpus> expected = place(machine, ranks, "auto").ranks;
    if (expected.empty()) expected.assign(static_cast<std::size_t>(ranks), affinity());
    EXPECT_EQ(cpus_of_ranks(ranks, {}), expected);
    EXPECT_EQ(cpus_of_ranks(ranks, {"--bind", "none"}),
              std::vector<Cpus>(static_cast<std::size_t>(ranks), affinity()));
  }
}

TEST(TuttiRun, BindsRanksToTheCpusThatAreListed) {
  const std::string cpu = std::to_string(affinity().back());
  EXPECT_EQ(cpus_of_ranks(2, {"--bind", cpu + "," + cpu}),
            (std::vector<Cpus>{{affinity().back()}, {affinity().back()}}));
  EXPECT_EQ(cpus_of_ranks(1, {"--env", "TUTTI_BIND=none", "--bind", cpu}),
            (std::vector<Cpus>{{affinity().back()}}));
}

TEST(TuttiRun, RefusesCpusThatItCannotGive) {
  Command strange(job(2, "true", {"--bind", "0,65535"}));
  EXPECT_EQ(strange.wait(), 2);
  EXPECT_THAT(strange.err(), HasSubstr("rank 1"));
  Command few(job(2, "true", {"--bind", "0"}));
  EXPECT_EQ(few.wait(), 2);
  EXPECT_THAT(few.err(), HasSubstr("there are 2"));
  Command wrong(job(2, "true", {"--bind", "cores"}));
  EXPECT_EQ(wrong.wait(), 2);
  EXPECT_THAT(wrong.err(), HasSubstr("it must be auto, none"));
}

TEST(TuttiRun, JobsAtTheSameTimeHaveDifferentPorts) {
  Command first(job(1, "echo port $MASTER_PORT; sleep 1000"));
  Command second(job(1, "echo port $MASTER_PORT; sleep 1000"));
  ASSERT_TRUE(first.wait_for_output("\n"));
  ASSERT_TRUE(second.wait_for_output("\n"));
  EXPECT_NE(first.out(), second.out());
  Command chosen(job(1, "echo port $MASTER_PORT", {"--port", "4711"}));
  EXPECT_EQ(chosen.wait(), 0);
  EXPECT_EQ(chosen.out(), "[0] port 4711\n");
}

// In a network of its own there are two ports. A store on one machine has the name of a port, and
// does not listen at it.
TEST(TuttiRun, ChoosesNoPortThatNamesTheStoreOfAnotherJob) {
  if (Command({"unshare", "--net", "ip", "link", "set", "lo", "up"}).wait() != 0)
    GTEST_SKIP() << "no network namespaces can be made here";
  constexpr const char* kInNamespace =
      "ip link set lo up && echo 40000 40001 >/proc/sys/net/ipv4/ip_local_port_range && "
      "exec python3 -c '\n"
      "import os, socket, subprocess, sys\n"
      "def port(): return subprocess.check_output(sys.argv[1:], text=True).split()[-1]\n"
      "first = port()\n"
      "store = socket.socket(socket.AF_UNIX)\n"
      "store.bind(f\"\\0tutti-{os.geteuid()}-{first}\")\n"
      "store.listen()\n"
      "print([port() != first for _ in range(4)])' \"$@\"";
  std::vector<std::string> line{"unshare", "--net", "sh", "-c", kInNamespace, "sh"};
  for (const std::string& word : job(1, "echo $MASTER_PORT")) line.push_back(word);
  Command command(line);
  EXPECT_EQ(command.wait(), 0) << command.err();
  EXPECT_EQ(command.out(), "[True, True, True, True]\n");
}

TEST(TuttiRun, KeepsStandardErrorApartAndEndsPartialLines) {
  Command command(job(1, "echo out; echo err >&2; printf 'no newline'"));
  EXPECT_EQ(command.wait(), 0);
  EXPECT_EQ(command.out(), "[0] out\n[0] no newline\n");
  EXPECT_EQ(command.err(), "[0] err\n");
}

TEST(TuttiRun, LetsRanksWriteDirectlyWhenToldNotToTag) {
  Command command(job(1, "printf 'a\\rb'; echo err >&2", {"--no-tag"}));
  EXPECT_EQ(command.wait(), 0);
  EXPECT_EQ(command.out(), "a\rb");
  EXPECT_EQ(command.err(), "err\n");
}

TEST(TuttiRun, LosesNoLineAndMixesNoneAtAHighRate) {
  constexpr int kRanks = 4, kLines = 50'000;
  Command command(job(kRanks,
                      "seq -f 'line %.0f of some length that is cut at any place' 50000; "
                      "seq -f 'error %.0f' 1000 >&2"));
  ASSERT_EQ(command.wait(), 0);
  std::map<std::string, int> next;
  for (const std::string& line : command.out_lines()) {
    const std::string tag = line.substr(0, line.find(' '));
    ASSERT_EQ(line,
              fmt::format("{} line {} of some length that is cut at any place", tag, ++next[tag]));
  }
  EXPECT_EQ(next.size(), kRanks);
  for (const auto& [tag, count] : next) EXPECT_EQ(count, kLines) << tag;
  EXPECT_EQ(std::count(command.err().begin(), command.err().end(), '\n'), kRanks * 1000);
}

TEST(TuttiRun, ASlowReaderLosesNothing) {
  Command command(job(2, "echo begun >&2; seq 200000"));
  command.leave_output_unread();
  ASSERT_TRUE(command.wait_for_output("[0] begun"));
  ASSERT_TRUE(command.wait_for_output("[1] begun"));
  command.leave_output_unread(false);
  ASSERT_EQ(command.wait(), 0);
  EXPECT_EQ(std::count(command.out().begin(), command.out().end(), '\n'), 400'000);
  EXPECT_THAT(command.out(), HasSubstr("[1] 200000\n"));
}

TEST(TuttiRun, StartsSixtyFourRanks) {
  Command command(job(64, "echo $RANK"));
  EXPECT_EQ(command.wait(), 0);
  const auto lines = command.out_lines();
  const std::set<std::string> different(lines.begin(), lines.end());
  EXPECT_EQ(different.size(), 64u);
  EXPECT_TRUE(different.contains("[63] 63"));
}

TEST(TuttiRun, RankZeroAloneReadsStandardInput) {
  const std::string path = fmt::format("{}tutti_run_stdin.{}", testing::TempDir(), ::getpid());
  std::ofstream(path) << "from the file\n";
  Command command(job(2, "read line; echo \"got $line\""), path);
  EXPECT_EQ(command.wait(), 0) << command.err();
  EXPECT_THAT(command.out_lines(), UnorderedElementsAre("[0] got from the file", "[1] got "));
  std::remove(path.c_str());
}

TEST(TuttiRun, AFailedRankEndsTheOthersAndTheirGrandchildren) {
  Command command(job(3, kStubbornGrandchildren + "echo ready; [ $RANK = 1 ] || sleep 1000; exit 3",
                      {"--grace", "0.2"}));
  EXPECT_EQ(command.wait(), 3);
  EXPECT_THAT(command.err(), HasSubstr("tutti-run: rank 1 (pid "));
  EXPECT_THAT(command.err(), HasSubstr(") exited with status 3; ending the other 2\n"));
  EXPECT_THAT(command.marked_processes(), ElementsAre()) << "when tutti-run has ended, all has";
}

TEST(TuttiRun, SaysWhichSignalEndedARankAfterItsLastWords) {
  Command command(
      job(2, "if [ $RANK = 1 ]; then printf 'last words' >&2; kill -SEGV $$; fi; sleep 1000"));
  EXPECT_EQ(command.wait(), 128 + SIGSEGV);
  EXPECT_THAT(
      command.err(),
      testing::MatchesRegex("\\[1\\] last words\ntutti-run: rank 1 \\(pid [0-9]+\\) was ended by "
                            "signal 11 \\(Segmentation fault.*\\); ending the other 1\n"));
}

TEST(TuttiRun, GivesRanksTimeToCleanUpBeforeItKills) {
  const std::string ready = fmt::format("{}tutti_run_ready.{}", testing::TempDir(), ::getpid());
  Command command(
      job(2,
          "if [ $RANK = 1 ]; then until [ -e $READY ]; do sleep 0.01; done; exit 5; fi; "
          "trap 'echo cleaned; exit 0' TERM; : > $READY; while :; do sleep 0.01; done",
          {"--env", "READY=" + ready, "--grace", "50"}));
  EXPECT_EQ(command.wait(), 5);
  EXPECT_EQ(command.out(), "[0] cleaned\n");
  std::remove(ready.c_str());
}

TEST(TuttiRun, AStoppedRankIsEndedAsTheOthersAre) {
  const std::string path = fmt::format("{}tutti_run_stopped.{}", testing::TempDir(), ::getpid());
  Command command(
      job(2,
          "if [ $RANK = 1 ]; then until grep -qs 'State:.*T' /proc/$(cat $FILE)/status; "
          "do sleep 0.01; done; exit 6; fi; "
          "trap 'echo cleaned; exit 0' TERM; echo $$ > $FILE; kill -STOP $$; sleep 1000",
          {"--env", "FILE=" + path, "--grace", "50"}));
  EXPECT_EQ(command.wait(), 6);
  EXPECT_EQ(command.out(), "[0] cleaned\n");
  std::remove(path.c_str());
}

TEST(TuttiRun, NamesARankThatHadToBeKilled) {
  Command command(job(2, "trap '' TERM; if [ $RANK = 1 ]; then exit 4; fi; sleep 1000; sleep 1000",
                      {"--grace", "0.2"}));
  EXPECT_EQ(command.wait(), 4);
  // Rank 0 may not have set its trap yet; then SIGTERM has ended it, which is fine, too.
  EXPECT_THAT(command.marked_processes(), ElementsAre());
}

TEST(TuttiRun, LeftoversOfASuccessfulJobAreEnded) {
  Command command(job(2, "sleep 1000 & setsid sleep 1000 & exit 0"));
  EXPECT_EQ(command.wait(), 0) << command.err();
  EXPECT_THAT(command.marked_processes(), ElementsAre());
}

TEST(TuttiRun, ForwardsSignalsToEveryRanksProcessGroup) {
  for (const auto& [number, name] :
       {std::pair(SIGUSR1, "USR1"), {SIGHUP, "HUP"}, {SIGTERM, "TERM"}}) {
    Command command(job(2, fmt::format("trap 'echo got {0}; exit 0' {0}; echo ready >&2; "
                                       "while :; do sleep 0.01; done",
                                       name)));
    ASSERT_TRUE(command.wait_for_output("[0] ready"));
    ASSERT_TRUE(command.wait_for_output("[1] ready"));
    command.signal(number);
    EXPECT_EQ(command.wait(), 0) << name << command.err();
    EXPECT_THAT(command.out_lines(), UnorderedElementsAre(fmt::format("[0] got {}", name),
                                                          fmt::format("[1] got {}", name)));
  }
}

TEST(TuttiRun, AnInterruptEndsAJobThatDoesNotCatchIt) {
  Command command(job(2, "echo ready; sleep 1000"));
  ASSERT_TRUE(command.wait_for_output("[0] ready"));
  ASSERT_TRUE(command.wait_for_output("[1] ready"));
  command.signal(SIGINT);
  EXPECT_EQ(command.wait(), 128 + SIGINT);
  EXPECT_THAT(command.err(), HasSubstr("signal 2 (Interrupt)"));
  EXPECT_THAT(command.marked_processes(), ElementsAre());
}

TEST(TuttiRun, ASecondInterruptEndsAJobThatIgnoresTheFirst) {
  Command command(
      job(2, "trap 'echo ignored' INT; trap '' TERM; echo ready; while :; do sleep 0.01; done",
          {"--grace", "0.1"}));
  ASSERT_TRUE(command.wait_for_output("[0] ready"));
  ASSERT_TRUE(command.wait_for_output("[1] ready"));
  command.signal(SIGINT);
  ASSERT_TRUE(command.wait_for_output("[0] ignored"));
  ASSERT_TRUE(command.wait_for_output("[1] ignored"));
  command.signal(SIGINT);
  EXPECT_EQ(command.wait(), 128 + SIGINT);
  EXPECT_THAT(command.err(), HasSubstr("interrupted twice"));
  EXPECT_THAT(command.err(), HasSubstr("did not end on SIGTERM; killing it"));
}

TEST(TuttiRun, StopsAndContinuesWithItsRanks) {
  Command command(
      job(1, "trap 'echo continued; exit 0' CONT; echo ready; while :; do sleep 0.01; done"));
  ASSERT_TRUE(command.wait_for_output("ready"));
  command.signal(SIGTSTP);
  EXPECT_TRUE(command.stops());
  command.signal(SIGCONT);
  EXPECT_EQ(command.wait(), 0);
  EXPECT_THAT(command.out(), HasSubstr("continued"));
}

TEST(TuttiRun, LeavesNothingBehindWhenItIsKilled) {
  Command command(job(2, kStubbornGrandchildren + "echo ready; sleep 1000"));
  ASSERT_TRUE(command.wait_for_output("[0] ready"));
  ASSERT_TRUE(command.wait_for_output("[1] ready"));
  command.signal(SIGKILL);
  EXPECT_EQ(command.wait(), 128 + SIGKILL);
  EXPECT_TRUE(command.nothing_is_left());
}

TEST(TuttiRun, LeavesNothingBehindWhenItsSupervisorIsKilled) {
  Command command(job(2, kStubbornGrandchildren + "echo parent=$PPID.; sleep 1000"));
  ASSERT_TRUE(command.wait_for_output("[0] parent="));
  ASSERT_TRUE(command.wait_for_output("[1] parent="));
  ::kill(std::stoi(command.out().substr(command.out().find('=') + 1)), SIGKILL);
  EXPECT_EQ(command.wait(), 128 + SIGKILL);
  EXPECT_THAT(command.err(), HasSubstr("the supervisor"));
  EXPECT_TRUE(command.nothing_is_left());
}

TEST(TuttiRun, EndsAJobWhoseOutputNobodyReads) {
  Command command(job(2, "yes"));
  ASSERT_TRUE(command.wait_for_output("[0] y"));
  command.stop_reading();
  EXPECT_EQ(command.wait(), 128 + SIGPIPE);
  EXPECT_THAT(command.marked_processes(), ElementsAre());
}

TEST(TuttiRun, SaysWhyItCannotWrite) {
  Command command({"sh", "-c", TUTTI_RUN " -n 2 -- echo written >/dev/full"});
  EXPECT_EQ(command.wait(), 1);
  EXPECT_THAT(command.err(), HasSubstr("cannot write our output: No space left on device"));
}

TEST(TuttiRun, CanBeInterruptedAndKilledWhileNobodyReadsItsOutput) {
  Command interrupted(job(1, "echo ready >&2; yes"));
  interrupted.leave_output_unread();
  ASSERT_TRUE(interrupted.wait_for_output("ready"));
  while (!interrupted.has_ended()) interrupted.signal(SIGINT);
  EXPECT_EQ(interrupted.wait(), 128 + SIGINT);

  Command killed(job(1, "echo ready >&2; yes"));
  killed.leave_output_unread();
  ASSERT_TRUE(killed.wait_for_output("ready"));
  killed.signal(SIGKILL);
  EXPECT_TRUE(killed.nothing_is_left());
}

TEST(TuttiRun, EndsAJobAfterItsTimeout) {
  Command command(job(2, "sleep 1000", {"--timeout", "0.2"}));
  EXPECT_EQ(command.wait(), 124);
  EXPECT_EQ(command.err(),
            "tutti-run: the job did not end within 0.2 s; ending the 2 ranks that run\n");
}

TEST(TuttiRun, ItsTimeoutEndsTheWaitForAReaderThatDoesNotRead) {
  Command command(job(1, "seq 25000", {"--timeout", "0.2", "--grace", "0.1"}));
  command.leave_output_unread();
  EXPECT_EQ(command.wait(), 124);
  EXPECT_THAT(command.err(), HasSubstr("nobody reads our output: "));
}

/// A file that does not exist yet, for which the ranks of a job can wait.
class Sign {
 public:
  explicit Sign(const std::string& name = "sign")
      : path_(fmt::format("{}tutti_run_{}.{}", testing::TempDir(), name, ::getpid())) {
    std::remove(path_.c_str());
  }
  ~Sign() { std::remove(path_.c_str()); }
  Sign(const Sign&) = delete;
  Sign& operator=(const Sign&) = delete;

  void give() const { std::ofstream(path_) << "now\n"; }
  std::string option(const std::string& variable = "SIGN") const { return variable + "=" + path_; }

 private:
  std::string path_;
};

const std::string kAwaitSign = "until [ -e $SIGN ]; do sleep 0.01; done; ";

TEST(TuttiRun, TheOthersGoOnAfterAFailureThatIsAllowed) {
  const Sign sign;
  Command command(job(3, "[ $RANK != 1 ] || kill -KILL $$; " + kAwaitSign + "echo done",
                      {"--max-failures", "1", "--env", sign.option()}));
  ASSERT_TRUE(command.wait_for_output("was ended by signal 9 (Killed); the job goes on"));
  sign.give();
  EXPECT_EQ(command.wait(), 0) << command.err();
  EXPECT_THAT(command.out_lines(), UnorderedElementsAre("[0] done", "[2] done"));
  EXPECT_THAT(command.err(),
              testing::MatchesRegex("tutti-run: rank 1 \\(pid [0-9]+\\) was ended by "
                                    "signal 9 \\(Killed\\); the job goes on with the "
                                    "other 2\n"));
}

TEST(TuttiRun, OneFailureMoreThanIsAllowedEndsTheJobWithItsStatus) {
  Command command(job(3, "[ $RANK = 0 ] || exit 3; sleep 1000", {"--max-failures", "1"}));
  EXPECT_EQ(command.wait(), 3);
  EXPECT_THAT(command.err(), HasSubstr("exited with status 3; the job goes on with the other 2\n"));
  EXPECT_THAT(command.err(), HasSubstr("that is one failure too many; ending the other 1\n"));
  EXPECT_THAT(command.marked_processes(), ElementsAre());
}

TEST(TuttiRun, AJobOfWhichNoRankEndsWellHasTheStatusOfItsFirstFailure) {
  for (const std::vector<std::string>& allowed :
       {std::vector<std::string>{"--max-failures", "5"}, {"--keep-going"}}) {
    Command command(job(2, "exit 3", allowed));
    EXPECT_EQ(command.wait(), 3);
    EXPECT_THAT(command.err(), HasSubstr("exited with status 3; none is left\n"));
  }
}

TEST(TuttiRun, StartsANewcomerInThePlaceOfARankThatFails) {
  const Sign sign;
  Command command(
      job(2,
          "[ \"$RANK\" != 1 ] || exit 7; if [ -z \"$RANK\" ]; then "
          "echo newcomer ${RANK-none} ${WORLD_SIZE-none} ${LOCAL_WORLD_SIZE-none} $LOCAL_RANK; "
          "else " +
              kAwaitSign + "echo rank $RANK; fi; echo $MASTER_ADDR:$MASTER_PORT $TUTTI_SECRET >&2",
          {"--max-restarts", "1", "--env", sign.option()}));
  ASSERT_TRUE(command.wait_for_output("[2] newcomer"));
  sign.give();
  EXPECT_EQ(command.wait(), 0) << command.err();
  EXPECT_THAT(command.out_lines(),
              UnorderedElementsAre("[2] newcomer none none none 1", "[0] rank 0"));
  EXPECT_THAT(command.err(), HasSubstr("exited with status 7; the job goes on with the other 1, "
                                       "and newcomer 2 is started\n"));
  // The newcomer finds the job, and knows its secret.
  const std::string& said = command.err();
  const auto said_by = [&](const std::string& tag) {
    const std::size_t begin = said.find(tag);
    return begin == std::string::npos
               ? "nothing by " + tag
               : said.substr(begin + tag.size(), said.find('\n', begin) - begin - tag.size());
  };
  EXPECT_EQ(said_by("[2] "), said_by("[0] "));
  EXPECT_THAT(said_by("[2] "), testing::MatchesRegex("127.0.0.1:[0-9]+ [0-9a-f]{64}"));
}

TEST(TuttiRun, ANewcomerThatCameTooLateDoesNotFailTheJob) {
  const Sign begun("begun"), pid("pid");
  Command command(
      job(2,
          "if [ -z \"$RANK\" ]; then : > $BEGUN; until [ -s $PID ]; do sleep 0.01; done; "
          "while kill -0 $(cat $PID); do sleep 0.01; done; exit 9; fi; "
          "[ $RANK = 0 ] || exit 7; echo $$ > $PID; "
          "until [ -e $BEGUN ]; do sleep 0.01; done",
          {"--max-restarts", "1", "--env", begun.option("BEGUN"), "--env", pid.option("PID")}));
  EXPECT_EQ(command.wait(), 0) << command.err();
  EXPECT_THAT(command.err(), HasSubstr("exited with status 9 after a rank had ended"));
}

TEST(TuttiRun, ANewcomerThatHearsOfTheJobsEndBeforeTheLauncherDoesNotFailTheJob) {
  const Sign pid("pid");
  Command command(job(2,
                      "if [ -z \"$RANK\" ]; then echo $$ > $PID; exit 9; fi; "
                      "[ $RANK = 0 ] || exit 7; until [ -s $PID ]; do sleep 0.01; done; "
                      "while kill -0 $(cat $PID); do sleep 0.01; done; sleep 0.3",
                      {"--max-restarts", "1", "--env", pid.option("PID")}));
  EXPECT_EQ(command.wait(), 0) << command.err();
  EXPECT_THAT(command.err(), HasSubstr("exited with status 9 after a rank had ended"));
}

TEST(TuttiRun, ANewcomerThatFailsWhileTheRanksGoOnFailsTheJob) {
  Command command(job(2, "[ -n \"$RANK\" ] || exit 9; [ $RANK = 0 ] || exit 7; sleep 1000",
                      {"--max-restarts", "1"}));
  EXPECT_EQ(command.wait(), 9);
  EXPECT_THAT(command.err(), testing::ContainsRegex(
                                 "newcomer 2 \\(pid [0-9]+\\) exited with status 9; that is one "
                                 "failure too many; ending the other 1\n"));
}

TEST(TuttiRun, ANewcomersFailureIsNamedAlthoughARankFailsSoonAfterIt) {
  Command command(job(3,
                      "[ -n \"$RANK\" ] || exit 9; [ $RANK != 1 ] || exit 7; "
                      "[ $RANK != 0 ] || { sleep 1; exit 5; }; sleep 1000",
                      {"--max-restarts", "1"}));
  EXPECT_EQ(command.wait(), 5) << command.err();
  EXPECT_THAT(command.err(), HasSubstr("exited with status 9"));
}

TEST(TuttiRun, ANewcomersFailureIsNamedAlthoughNoProcessIsLeft) {
  Command command(job(2, "[ -n \"$RANK\" ] || exit 9; [ $RANK != 1 ] || exit 7; sleep 1; exit 5",
                      {"--max-restarts", "1", "--max-failures", "3"}));
  EXPECT_EQ(command.wait(), 7);
  EXPECT_THAT(command.err(), HasSubstr("exited with status 9"));
}

TEST(TuttiRun, EachNewcomersFailureHasTheTimeInWhichARankMaySucceed) {
  Command command(job(3,
                      "if [ -z \"$RANK\" ]; then [ $LOCAL_RANK = 1 ] || sleep 4.5; exit 9; fi; "
                      "[ $RANK = 0 ] || exit 7; sleep 5.7",
                      {"--max-restarts", "2", "--max-failures", "3"}));
  EXPECT_EQ(command.wait(), 0) << command.err();
}

TEST(TuttiRun, RanksThatASignalToTheJobEndsAreNotReplaced) {
  Command command(job(2, "echo ready; sleep 1000", {"--max-restarts", "5"}));
  ASSERT_TRUE(command.wait_for_output("[0] ready"));
  ASSERT_TRUE(command.wait_for_output("[1] ready"));
  command.signal(SIGTERM);
  EXPECT_EQ(command.wait(), 128 + SIGTERM);
  EXPECT_THAT(command.err(), Not(HasSubstr("newcomer")));
}

TEST(TuttiRun, StartsNewcomersToAJobOfAnotherLauncher) {
  const auto said = [](const std::string& job) {
    Command command({"env", "RANK=3", "WORLD_SIZE=4", "LOCAL_RANK=3", TUTTI_RUN, "-n", "1",
                     "--join", job, "--", "sh", "-c",
                     "echo ${RANK-none} ${WORLD_SIZE-none} ${LOCAL_RANK-none} "
                     "${TUTTI_SECRET-none} ${MASTER_ADDR-none} ${MASTER_PORT-none} "
                     "${TUTTI_STORE-none}"});
    EXPECT_EQ(command.wait(), 0) << command.err();
    return command.out();
  };
  EXPECT_EQ(said("4711"), "[0] none none none none 127.0.0.1 4711 none\n");
  EXPECT_EQ(said("node7:4711"), "[0] none none none none node7 4711 none\n");
  EXPECT_EQ(said("[fe80::1]:4711"), "[0] none none none none fe80::1 4711 none\n");
  EXPECT_EQ(said("file:///jobs/7"), "[0] none none none none none none file:///jobs/7\n");
}

TEST(TuttiRun, SaysWhatIsWrongWithItsArguments) {
  const auto refused = [](std::vector<std::string> arguments, int status, const char* why) {
    arguments.insert(arguments.begin(), TUTTI_RUN);
    Command command(arguments);
    EXPECT_EQ(command.wait(), status);
    EXPECT_EQ(command.out(), "");
    EXPECT_THAT(command.err(), HasSubstr(why));
  };
  refused({"-n", "0", "--", "true"}, 2, "--ranks: Value 0 not in range 1 to 4096");
  refused({"-n", "two", "--", "true"}, 2, "--ranks");
  refused({"--", "true"}, 2, "--ranks is required");
  refused({"-n", "2"}, 2, "program is required");
  refused({"-n", "2", "--tiemout", "3", "--", "true"}, 2, "--tiemout");
  refused({"-n", "2", "--env", "A", "--", "true"}, 2, "'A' is not NAME=VALUE");
  refused({"-n", "2", "--join", "here", "--", "true"}, 2, "'here' is not [HOST:]PORT");
  refused({"-n", "2", "--join", "", "--", "true"}, 2, "the address of the job is empty");
  refused({"-n", "2", "--join", "http://here", "--", "true"}, 2, "is not [HOST:]PORT");
  refused({"-n", "2", "--env", "RANK=5", "--", "true"}, 2, "RANK is what tutti-run itself sets");
  refused({"-n", "2", "--join", "1", "--port", "2", "--", "true"}, 2, "--port excludes --join");
  refused({"-n", "2", "--max-failures", "-1", "--", "true"}, 2, "--max-failures");
  refused({"-n", "2", "--timeout", "nan", "--", "true"}, 2, "--timeout");
  refused({"-n", "2", "--", "no-such-program"}, 127,
          "cannot start rank 0: 'no-such-program': No such file or directory");
  refused({"-n", "2", "--", "/etc/passwd"}, 126, "'/etc/passwd': Permission denied");
}

}  // namespace
}  // namespace tutti::tools
