// Implements the watchdog with a timer of the process and not with a thread, because tests fork and
// count threads. When the timer fires, a separate program, stacks.py, does the work, because the
// thread that gets the signal may hold any lock.
#include "watchdog.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <stdexcept>
#include <string>

namespace tutti::watchdog {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int kSlower = 5;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
constexpr int kSlower = 5;
#else
constexpr int kSlower = 1;
#endif
#else
constexpr int kSlower = 1;
#endif

constexpr int kSignalsBeforeLast = 3;  // A program would choose SIGRTMAX itself first.

/// The state of the watchdog. main() makes it once, and it is never destroyed, because the signal
/// handler reads it.
struct Watch {
  std::chrono::seconds patience = kPatience * kSlower;
  bool is_on = false;
  timer_t timer = {};
  // Standard error as it was at the start, because a test may capture it.
  int error_fd = -1;
  std::array<char, 256> what{};
  std::array<char, 16> pid{};
};

Watch& watch() {
  static Watch& made = *new Watch;
  return made;
}

// Calls only functions that a signal handler may call: the interrupted thread can be anywhere, also
// in malloc() or fork().
void run_stacks(bool ends) {
  Watch& mine = watch();
  const char* const arguments[] = {TUTTI_TEST_PYTHON, TUTTI_TEST_STACKS, ends ? "--kill" : "--show",
                                   mine.pid.data(),   mine.what.data(),  nullptr};
  const auto child = static_cast<pid_t>(syscall(SYS_clone, SIGCHLD, nullptr, nullptr, nullptr, 0));
  if (child == 0) {
    dup2(mine.error_fd, STDERR_FILENO);
    execve(TUTTI_TEST_PYTHON, const_cast<char**>(arguments), environ);
    constexpr char kNone[] = "watchdog: no Python to write stacks with: " TUTTI_TEST_PYTHON "\n";
    [[maybe_unused]] const ssize_t reported = write(STDERR_FILENO, kNone, sizeof kNone - 1);
    _exit(1);
  }
  // stacks.py spends a few seconds on each process, and at most a minute on all of them.
  constexpr timespec kLook{0, 50'000'000};
  int status = 0;
  for (int look = 0; child > 0 && look < 1800 && waitpid(child, &status, WNOHANG) == 0; ++look)
    nanosleep(&kLook, nullptr);
}

void end_of_patience(int) {
  run_stacks(true);
  _exit(1);
}

void let_anybody_trace() { prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0); }

void fail(const char* what) { throw std::runtime_error(std::string("watchdog: ") + what); }

void set_up() {
  Watch& mine = watch();
  if (const char* const said = std::getenv("TUTTI_TEST_PATIENCE"))
    mine.patience = std::chrono::seconds(std::atoi(said));
  std::snprintf(mine.pid.data(), mine.pid.size(), "%d", static_cast<int>(getpid()));
  // This variable identifies processes whose parents have ended.
  setenv("TUTTI_TEST_WATCHED", mine.pid.data(), 1);
  // Yama allows only ancestors to trace a process, and stacks.py is none.
  let_anybody_trace();
  pthread_atfork(nullptr, nullptr, let_anybody_trace);
  mine.error_fd = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 200);
  struct sigaction action = {};
  action.sa_handler = end_of_patience;
  sigfillset(&action.sa_mask);
  sigevent event = {};
  event.sigev_notify = SIGEV_SIGNAL;
  event.sigev_signo = SIGRTMAX - kSignalsBeforeLast;
  if (sigaction(event.sigev_signo, &action, nullptr) != 0) fail("sigaction");
  if (timer_create(CLOCK_MONOTONIC, &event, &mine.timer) != 0) fail("timer_create");
  mine.is_on = true;
}

/// Starts the time limit. A later call replaces it.
void start(std::chrono::seconds patience, const std::string& what) {
  Watch& mine = watch();
  std::snprintf(mine.what.data(), mine.what.size(), "%s has taken more than %lld s", what.c_str(),
                static_cast<long long>(patience.count()));
  itimerspec after = {};
  after.it_value.tv_sec = patience.count();
  if (timer_settime(mine.timer, 0, &after, nullptr) != 0) fail("timer_settime");
}

std::string name_of(const testing::TestInfo& test) {
  return std::string(test.test_suite_name()) + "." + test.name();
}

class Listener : public testing::EmptyTestEventListener {
  void OnTestProgramStart(const testing::UnitTest&) override { next("what is before all tests"); }
  void OnTestStart(const testing::TestInfo& test) override { next(name_of(test)); }
  void OnTestEnd(const testing::TestInfo& test) override { next("what is after " + name_of(test)); }
  void OnTestProgramEnd(const testing::UnitTest&) override { next("what is after all tests"); }

  static void next(const std::string& what) { start(watch().patience, what); }
};

}  // namespace

void allow(std::chrono::seconds patience) {
  const Watch& mine = watch();
  if (!mine.is_on || mine.patience.count() == 0) return;
  start(std::max(mine.patience, patience * kSlower),
        name_of(*testing::UnitTest::GetInstance()->current_test_info()));
}

void write_stacks() {
  std::snprintf(watch().what.data(), watch().what.size(), "a test has found something stuck");
  run_stacks(false);
}

}  // namespace tutti::watchdog

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  if (!testing::GTEST_FLAG(list_tests)) {
    tutti::watchdog::set_up();
    testing::UnitTest::GetInstance()->listeners().Append(new tutti::watchdog::Listener);
  }
  return RUN_ALL_TESTS();
}
