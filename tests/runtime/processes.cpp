#include "processes.h"

#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdint>
#include <cstdlib>

#include "threads.h"
#include "watchdog.h"

namespace tutti::test {

Processes::Processes(int size, const std::function<void(int)>& body)
    : ranks_(static_cast<std::size_t>(size)) {
  for (int rank = 0; rank < size; ++rank) {
    int ends[2];
    if (pipe(ends) != 0) throw std::runtime_error("no pipe");
    const pid_t pid = fork();
    if (pid == 0) {
      const std::string outcome = outcome_of([&] { body(rank); });
      const auto written = write(ends[1], outcome.data(), outcome.size());
      _exit(written == static_cast<ssize_t>(outcome.size()) ? 0 : 1);
    }
    close(ends[1]);
    ranks_[static_cast<std::size_t>(rank)] = {pid, ends[0]};
  }
}

Processes::~Processes() {
  for (const Rank& rank : ranks_) {
    if (rank.pid > 0) {
      kill(rank.pid, SIGKILL);
      waitpid(rank.pid, nullptr, 0);
    }
    close(rank.report);
  }
}

void Processes::signal(int rank, int number) const { kill(pid(rank), number); }

std::string Processes::outcome(int rank) {
  Rank& which = ranks_[static_cast<std::size_t>(rank)];
  constexpr int kPatienceMs = 60'000;
  std::string text;
  char buffer[4096];
  for (;;) {
    pollfd readable{which.report, POLLIN, 0};
    if (poll(&readable, 1, kPatienceMs) <= 0) {
      watchdog::write_stacks();
      return "still running after a minute";
    }
    const ssize_t bytes = read(which.report, buffer, sizeof buffer);
    if (bytes <= 0) break;
    text.append(buffer, static_cast<std::size_t>(bytes));
  }
  int status = 0;
  waitpid(which.pid, &status, 0);
  which.pid = -1;
  if (WIFSIGNALED(status)) return "ended by signal " + std::to_string(WTERMSIG(status));
  return text;
}

void set_environment(int rank, int size, int port) {
  setenv("RANK", std::to_string(rank).c_str(), 1);
  setenv("LOCAL_RANK", std::to_string(rank).c_str(), 1);
  setenv("WORLD_SIZE", std::to_string(size).c_str(), 1);
  setenv("MASTER_ADDR", "127.0.0.1", 1);
  setenv("MASTER_PORT", std::to_string(port).c_str(), 1);
}

Communicator join_soon(int rank, int size, int port) {
  set_environment(rank, size, port);
  Config config = quick_config();
  config.timeout = std::chrono::seconds(5);
  return Communicator::from_env(config);
}

int unused_port() {
  // Names of the rendezvous contain the port, so any number serves that no other test process uses.
  static int calls = 0;
  // Processes with neighbouring numbers, which run parts of one suite side by side, are far apart.
  // The kernel gives ports from 32768 on to whoever asks for any.
  return 10'000 + static_cast<int>((std::int64_t{getpid()} * 7'919 + calls++) % 22'000);
}

}  // namespace tutti::test
