// The program that watchdog_test.py runs: tests that hang in ways that the stacks must show.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <thread>

#include "watchdog.h"

// These are neither lambdas nor in an unnamed namespace, because the test looks for their names.
[[gnu::noinline]] void hangs_in_a_thread() {
  for (;;) pause();
}
[[gnu::noinline]] void hangs_in_a_child() {
  for (;;) pause();
}
[[gnu::noinline]] void is_stopped() {
  for (;;) raise(SIGSTOP);
}

namespace {

TEST(Hangs, InAThreadInAChildAndInOneThatIsStopped) {
  std::thread thread(hangs_in_a_thread);
  for (const auto body : {hangs_in_a_child, is_stopped}) {
    const pid_t child = fork();
    if (child == 0) body();
    // The test needs the number of the child, and uses it to tell children that were still alive
    // from those that the watchdog has ended.
    printf("child %d\n", static_cast<int>(child));
  }
  fflush(stdout);
  thread.join();
}

// The parent of the process that hangs has ended.
TEST(Hangs, InAProgramWhoseParentHasEnded) {
  const pid_t child = fork();
  if (child == 0) {
    if (fork() == 0) execlp("sleep", "sleep", "1000", nullptr);
    _exit(0);
  }
  waitpid(child, nullptr, 0);
  hangs_in_a_thread();
}

TEST(Hangs, InsideMallocWithItsLock) {
  // While a buffer of standard output is written to, it is locked, as the arenas of malloc are.
  flockfile(stdout);
  std::thread([] { printf("never"); }).join();
}

TEST(Passes, AlthoughItTakesLongerThanOthersAsItSays) {
  tutti::watchdog::allow(std::chrono::seconds(60));
  usleep(1'500'000);  // It is longer than the limit that watchdog_test.py sets.
}

TEST(Passes, AndWritesStacksWhenItWants) { tutti::watchdog::write_stacks(); }

}  // namespace
