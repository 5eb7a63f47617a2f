// Tests of real processes over shm, which are started by the environment, killed, frozen and left
// idle.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <new>
#include <stdexcept>
#include <string_view>
#include <thread>

#include "processes.h"
#include "signs.h"
#include "threads.h"
#include "topology/discover.h"
#include "topology/placement.h"

namespace tutti::test {
namespace {

Communicator join(int rank, int size, int port,
                  std::chrono::milliseconds timeout = std::chrono::seconds(20)) {
  set_environment(rank, size, port);
  Config config = quick_config();
  config.timeout = timeout;
  return Communicator::from_env(config);
}

// Calls all_reduce until the communicator fails.
void sum_for_ever(Communicator& comm) {
  std::vector<float> data(50'000, 0);
  for (;;) comm.all_reduce(std::span(data));
}

TEST(Processes, RanksStartedByTheEnvironmentReduceTogether) {
  const int port = unused_port();
  Processes ranks(4, [&](int rank) {
    Communicator comm = join(rank, 4, port);
    std::vector<double> data(100'000, rank);
    for (int i = 0; i < 10; ++i) comm.all_reduce(std::span(data), Op::max);
    if (data != std::vector<double>(100'000, 3)) throw Error(ErrorKind::internal, "wrong sum");
  });
  for (int rank = 0; rank < 4; ++rank) EXPECT_THAT(ranks.outcome(rank), IsEmpty());
}

// Returns the cpus to which a rank is bound, in its calling thread and in a thread that it starts.
std::vector<Cpus> bound_by(const std::string& bind, int rank, int port) {
  set_environment(rank, 2, port);
  Config config = quick_config();
  config.bind = bind;
  Communicator comm = Communicator::from_env(config);
  comm.barrier();
  std::vector<Cpus> all{affinity()};
  std::thread([&] { all.push_back(affinity()); }).join();
  return all;
}

TEST(Processes, AreBoundByTheLibraryOnlyWhereTheSettingSaysSo) {
  const Cpus before = affinity();
  const std::string last = std::to_string(before.back());
  const std::vector<Cpus> shares = place(discover(), 2, "auto").ranks;
  for (const std::string& bind : {std::string("none"), std::string("auto"), last + "," + last}) {
    const int port = unused_port();
    Processes ranks(2, [&](int rank) {
      Cpus expected = before;
      if (bind == "auto" && !shares.empty()) expected = shares[static_cast<std::size_t>(rank)];
      if (bind.starts_with(last)) expected = {before.back()};
      for (const Cpus& cpus : bound_by(bind, rank, port))
        if (cpus != expected) throw Error(ErrorKind::internal, "bound to " + to_text(cpus));
    });
    for (const int rank : {0, 1}) EXPECT_THAT(ranks.outcome(rank), IsEmpty()) << bind;
  }
}

TEST(Processes, CpusThatARankMayNotUseAreAUsageErrorThere) {
  const int port = unused_port();
  Processes ranks(2, [&](int rank) { bound_by("0-65535,0-65535", rank, port); });
  EXPECT_THAT(ranks.outcome(0), HasSubstr("this process may use"));
  // The store ends with rank 0, perhaps before rank 1 has come that far.
  EXPECT_THAT(ranks.outcome(1), AnyOf(HasSubstr("this process may use"), HasSubstr("store")));
}

TEST(Processes, AKilledRankIsReportedByAllOthersWithinASecond) {
  const int port = unused_port();
  Processes ranks(3, [&](int rank) {
    Communicator comm = join(rank, 3, port);
    comm.barrier();
    comm.store()->add("running", 1, std::chrono::steady_clock::time_point::max());
    if (rank == 1) raise(SIGKILL);
    sum_for_ever(comm);
  });
  EXPECT_EQ(ranks.outcome(1), "ended by signal 9");
  const auto start = std::chrono::steady_clock::now();
  for (const int rank : {0, 2})
    EXPECT_THAT(ranks.outcome(rank), AllOf(StartsWith("peer_lost: "), HasSubstr("rank 1")));
  // The limit is far above the time that a report takes and far below any deadline, which shows
  // that the report did not wait for a deadline.
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));
}

TEST(Processes, AKilledRankIsReportedToARankThatSleeps) {
  const int port = unused_port();
  Sign goes_to_sleep;
  Processes ranks(2, [&](int rank) {
    set_environment(rank, 2, port);
    Config config = quick_config();
    config.spin_polls = 0;
    Communicator comm = Communicator::from_env(config);
    comm.barrier();
    if (rank == 1) pause();
    goes_to_sleep.give();
    comm.barrier();
  });
  goes_to_sleep.wait();
  wait_until_asleep(ranks.pid(0));
  ranks.signal(1, SIGKILL);
  EXPECT_THAT(ranks.outcome(0), AllOf(StartsWith("peer_lost: "), HasSubstr("rank 1")));
}

// Returns whether each thread of a process is asleep and there are at least `least` threads.
bool all_sleep(const std::string& process, std::size_t least) {
  std::size_t threads = 0;
  for (const auto& task : std::filesystem::directory_iterator("/proc/" + process + "/task")) {
    std::ifstream file(task.path() / "stat");
    std::string stat;
    std::getline(file, stat);
    const std::size_t name_end = stat.rfind(") ");
    if (name_end == std::string::npos || stat[name_end + 2] != 'S') return false;
    ++threads;
  }
  return threads >= least;
}

class ManyCommunicators : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Over, ManyCommunicators, testing::Values("shm", "tcp"),
                         [](const auto& transport) { return std::string(transport.param); });

// Only one thread receives the report of the loss from the connection that all communicators share.
// Nothing else ends these calls before their deadline.
TEST_P(ManyCommunicators, OfAProcessAllHearOfAKilledRankWhoeverOfThemTakesTheNews) {
  constexpr std::size_t kCommunicators = 24;
  const int port = unused_port();
  Processes ranks(2, [&](int rank) {
    set_environment(rank, 2, port);
    Config config = quick_config(GetParam());
    config.stall = std::chrono::milliseconds(0);
    // This is longer than the test waits for a rank.
    config.timeout = std::chrono::minutes(10);
    Communicator comm = Communicator::from_env(config);
    std::vector<Communicator> parts;
    for (std::size_t i = 0; i < kCommunicators; ++i) parts.push_back(comm.dup());
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    if (rank == 1) {
      const std::string other = comm.store()->get("process", limit);
      while (!all_sleep(other, kCommunicators + 1))
        if (std::chrono::steady_clock::now() > limit) throw std::runtime_error("rank 0 is awake");
      raise(SIGKILL);
    }
    comm.store()->set("process", std::to_string(getpid()), limit);
    Outcomes outcomes(kCommunicators);
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < kCommunicators; ++i)
      threads.emplace_back([&, i] { outcomes[i] = outcome_of([&] { parts[i].barrier(); }); });
    for (std::thread& thread : threads) thread.join();
    for (const std::string& outcome : outcomes)
      if (!outcome.starts_with("peer_lost: ")) throw std::runtime_error(outcome);
  });
  EXPECT_EQ(ranks.outcome(1), "ended by signal 9");
  EXPECT_THAT(ranks.outcome(0), IsEmpty());
}

// The parameter is "shm", "tcp" or "tls".
class ForkingProcesses : public testing::TestWithParam<const char*> {
 protected:
  /// Returns a page that all ranks share, for the process that one of them has forked.
  static std::atomic<pid_t>& shared_pid() {
    void* const page = mmap(nullptr, sizeof(std::atomic<pid_t>), PROT_READ | PROT_WRITE,
                            MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED) throw std::runtime_error("no shared page");
    return *new (page) std::atomic<pid_t>(-1);
  }
};

// A data loader's worker is such a process: it has copies of all descriptors of its parent.
TEST_P(ForkingProcesses, AKilledRankIsLostAlthoughAProcessThatItForkedLives) {
  ASSERT_EQ(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
  const bool tls = std::string_view(GetParam()) == "tls";
  const int port = unused_port();
  std::atomic<pid_t>& forked = shared_pid();
  Processes ranks(3, [&](int rank) {
    set_environment(rank, 3, port);
    Config config = quick_config(tls ? "tcp" : GetParam());
    config.tls = tls;
    Communicator comm = Communicator::from_env(config);
    comm.barrier();
    if (rank == 1) {
      const pid_t child = fork();
      if (child == 0) {
        alarm(60);
        pause();
        _exit(0);
      }
      forked = child;
      raise(SIGKILL);
    }
    sum_for_ever(comm);
  });
  const auto lost = AllOf(StartsWith("peer_lost: "), HasSubstr("rank 1"));
  EXPECT_THAT(ranks.outcome(2), lost);
  ASSERT_GT(forked.load(), 0);
  EXPECT_EQ(kill(forked, SIGKILL), 0);
  int status = 0;
  EXPECT_EQ(waitpid(forked, &status, 0), forked);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << "it did not live until then";
  EXPECT_EQ(ranks.outcome(1), "ended by signal 9");
  EXPECT_THAT(ranks.outcome(0), lost);
}

INSTANTIATE_TEST_SUITE_P(Over, ForkingProcesses, testing::Values("shm", "tcp", "tls"),
                         [](const auto& param) { return std::string(param.param); });

// Makes close_range fail, as a kernel before 5.9, or the filter of a container, does.
void refuse_close_range() {
  sock_filter program[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_close_range, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog filter{std::size(program), program};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
      prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) != 0 ||
      syscall(SYS_close_range, ~0u, ~0u, 0) == 0)
    throw std::runtime_error("no filter");
}

TEST(Processes, AKernelThatGivesThreadsNoFileTablesOfTheirOwnServesAsWell) {
  const int port = unused_port();
  Processes ranks(3, [&](int rank) {
    refuse_close_range();
    set_environment(rank, 3, port);
    Communicator comm = Communicator::from_env(quick_config("tcp"));
    comm.barrier();
    // The test is about this time, in which all peers are checked and found alive.
    std::this_thread::sleep_for(std::chrono::seconds(1));
    comm.barrier();
    if (rank == 2) raise(SIGKILL);
    sum_for_ever(comm);
  });
  for (const int rank : {0, 1})
    EXPECT_THAT(ranks.outcome(rank),
                AllOf(StartsWith("peer_lost: "), HasSubstr("all_reduce"), HasSubstr("rank 2")));
}

TEST(Processes, AFrozenRankIsATimeoutThatNamesIt) {
  const int port = unused_port();
  Sign failed;
  Processes ranks(3, [&](int rank) {
    Communicator comm = join(rank, 3, port, std::chrono::milliseconds(500));
    comm.barrier();
    if (rank == 2) raise(SIGSTOP);
    try {
      sum_for_ever(comm);
    } catch (...) {
      failed.give();
      throw;
    }
  });
  failed.wait(2);
  ranks.signal(2, SIGKILL);  // Otherwise rank 0's store would wait some seconds for it to leave.
  for (const int rank : {0, 1})
    EXPECT_THAT(ranks.outcome(rank),
                AllOf(StartsWith("timeout: "), HasSubstr("rank 2 has not called it")));
}

/// Makes the call. If `waits`, the call takes a second, and this function throws if it has used the
/// processor for longer than polling may last.
void expect_sleep_of(bool waits, const std::function<void()>& call) {
  rusage before{}, after{};
  getrusage(RUSAGE_SELF, &before);
  call();
  getrusage(RUSAGE_SELF, &after);
  const auto micros = [](const timeval& t) { return t.tv_sec * 1'000'000L + t.tv_usec; };
  const long used = micros(after.ru_utime) + micros(after.ru_stime) - micros(before.ru_utime) -
                    micros(before.ru_stime);
  if (waits && used > 50'000)  // Polling ends after 400 us, but under a sanitizer it takes longer.
    throw Error(ErrorKind::internal, "used " + std::to_string(used) + " us in a second of waiting");
}

TEST(Processes, ARankThatSleepsUsesNoProcessorTime) {
  const int port = unused_port();
  Processes ranks(2, [&](int rank) {
    Communicator comm = join(rank, 2, port);
    comm.barrier();
    // The test is about the time that rank 0 waits here.
    if (rank == 1) std::this_thread::sleep_for(std::chrono::seconds(1));
    expect_sleep_of(rank == 0, [&] { comm.barrier(); });
  });
  for (const int rank : {0, 1}) EXPECT_THAT(ranks.outcome(rank), IsEmpty());
}

TEST(Processes, NorDoesOneWhoseMessagesHadADeadlineThatHasPassedSince) {
  const int port = unused_port();
  Processes ranks(2, [&](int rank) {
    Communicator comm = join(rank, 2, port);
    std::int32_t value = 1;
    CallOptions soon;
    soon.timeout = std::chrono::milliseconds(300);
    Work message = rank == 0 ? comm.recv_async(std::span(&value, 1), 1, 0, soon)
                             : comm.send_async(std::span(&value, 1), 0, 0, soon);
    message.wait();
    // The test is about this time: the deadline passes, and then rank 0 waits for a second.
    std::this_thread::sleep_for(std::chrono::milliseconds(rank == 0 ? 400 : 1400));
    expect_sleep_of(rank == 0, [&] { comm.barrier_async().wait(); });
  });
  for (const int rank : {0, 1}) EXPECT_THAT(ranks.outcome(rank), IsEmpty());
}

TEST(Processes, NoWakeUpIsLostWhenRanksSleepBetweenMessages) {
  const int port = unused_port();
  Processes ranks(2, [&](int rank) {
    set_environment(rank, 2, port);
    Config config = quick_config();
    config.spin_polls = 0;
    Communicator comm = Communicator::from_env(config);
    std::vector<float> data(1000, 1);
    for (int i = 0; i < 300; ++i) {
      // The other rank goes to sleep in this time, or is about to. It must wake up in both cases.
      if (i % 2 == rank) std::this_thread::sleep_for(std::chrono::microseconds(500));
      comm.all_reduce(std::span(data).first(i % 2 == 0 ? 2 : 1000), Op::max);
    }
  });
  for (const int rank : {0, 1}) EXPECT_THAT(ranks.outcome(rank), IsEmpty());
}

TEST(Processes, ARankThatGetsNoThreadIsUnavailableAndSaysWhichLimitsThereAre) {
  Processes ranks(1, [](int) {
    // root has no limit on its processes.
    if (geteuid() == 0 && setuid(65534) != 0) throw std::runtime_error("no other user");
    const rlimit none{0, 0};
    setrlimit(RLIMIT_NPROC, &none);
    Communicator::in_process(1, quick_config());
  });
  EXPECT_THAT(ranks.outcome(0), AllOf(StartsWith("unavailable: "), HasSubstr("ulimit -u")));
}

TEST(Processes, TwoRanksWithTheSameNumberAreAMismatch) {
  const int port = unused_port();
  Sign runs;
  Processes ranks(3, [&](int process) {
    runs.give();
    runs.wait(3);  // The start-up timeout is short, because rank 0 waits until it has passed.
    set_environment(process == 0 ? 0 : 1, 3, port);
    Config config = quick_config();
    config.startup_timeout = std::chrono::milliseconds(3000);
    Communicator::from_env(config);
  });
  std::vector<std::string> outcomes{ranks.outcome(1), ranks.outcome(2)};
  EXPECT_THAT(outcomes, testing::Contains(AllOf(StartsWith("mismatch: "), HasSubstr("rank 1"))));
  EXPECT_THAT(ranks.outcome(0), AllOf(StartsWith("timeout: "), HasSubstr("2")));
}

TEST(Processes, NothingIsLeftBehindByKilledRanks) {
  const auto in_dev_shm = [] {
    return std::distance(std::filesystem::directory_iterator("/dev/shm"),
                         std::filesystem::directory_iterator());
  };
  const auto before = in_dev_shm();
  const int port = unused_port();
  {
    Processes ranks(2, [&](int rank) {
      Communicator comm = join(rank, 2, port);
      std::vector<float> data(1'000'000, 1);
      comm.all_reduce(std::span(data));
      raise(SIGKILL);
    });
    for (const int rank : {0, 1}) ranks.outcome(rank);
  }
  EXPECT_EQ(in_dev_shm(), before);
  // The same port serves the next job at once.
  Processes again(2, [&](int rank) { join(rank, 2, port).barrier(); });
  for (const int rank : {0, 1}) EXPECT_THAT(again.outcome(rank), IsEmpty());
}

}  // namespace
}  // namespace tutti::test
