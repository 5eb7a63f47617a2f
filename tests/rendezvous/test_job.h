// Helpers that the tests of this folder share: a job with an address of its own, child processes
// and deadlines.
#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <exception>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include <tutti/error.hpp>
#include <tutti/store.hpp>

#include "common/log.h"
#include "rendezvous/store/join.h"
#include "rendezvous/store/socket_store.h"
#include "tests/common/errors.h"

namespace tutti {

using std::chrono::milliseconds;
using std::chrono::seconds;

inline Store::Deadline in(milliseconds time) { return std::chrono::steady_clock::now() + time; }

/// A deadline that is reached only if something hangs.
inline Store::Deadline in_time() { return in(seconds(60)); }

/// An address that no other test on this machine uses. Its port is beyond 65535, so that no real
/// job has it.
inline JobAddress job_of(int size) {
  const testing::TestInfo& test = *testing::UnitTest::GetInstance()->current_test_info();
  const auto hash = std::hash<std::string>()(std::string(test.test_suite_name()) + test.name());
  return {100'000 + getpid() % 1'000'000 * 1000 + static_cast<int>(hash % 1000), size, "test"};
}

/// The listeners of a server that only ranks on this machine can reach.
inline std::vector<Listener> at_unix_socket(const JobAddress& job) {
  std::vector<Listener> listeners;
  listeners.push_back(unix_listener(job));
  return listeners;
}

inline rendezvous::Joined join_by(rendezvous::Route& route, const JobAddress& job, int rank,
                                  Store::Deadline deadline = in_time()) {
  Log log(LogLevel::error, {});
  return rendezvous::join_store(route, job, rank, deadline, log);
}

inline rendezvous::Joined join_locally(const JobAddress& job, int rank,
                                       Store::Deadline deadline = in_time(),
                                       uid_t server_uid = geteuid()) {
  return join_by(*rendezvous::local_route(job, rank, server_uid), job, rank, deadline);
}

inline std::shared_ptr<SocketStore> join(const JobAddress& job, int rank,
                                         Store::Deadline deadline = in_time()) {
  return std::make_shared<SocketStore>(join_locally(job, rank, deadline), rank);
}

/// A child process that runs `body` and exits. The destructor kills it if it has not exited.
class Child {
 public:
  explicit Child(const std::function<void()>& body) : pid_(fork()) {
    if (pid_ != 0) return;
    int status = 0;
    try {
      body();
    } catch (const std::exception& error) {
      fprintf(stderr, "child: %s\n", error.what());
      status = 1;
    }
    _exit(status);
  }
  ~Child() {
    if (pid_ > 0) end(SIGKILL);
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  pid_t pid() const noexcept { return pid_; }

  /// The exit status, or 128 plus the number of the signal that killed the process.
  int wait() {
    int status = 0;
    waitpid(pid_, &status, 0);
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }
  int end(int signal) {
    kill(pid_, signal);
    return wait();
  }

 private:
  pid_t pid_;
};

inline std::size_t open_descriptors() {
  std::size_t count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd"))
    ++count;
  return count;
}

}  // namespace tutti
