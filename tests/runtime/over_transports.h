// A fixture of tests whose ranks mostly wait: each test runs over several transports at the same
// time.
#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <exception>
#include <functional>
#include <string>
#include <vector>

#include "processes.h"

namespace tutti::test {

inline const std::vector<const char*> kBoth{"shm", "tcp"};

class OverTransports : public testing::Test {
 protected:
  /// Runs `body` for each transport in a process of its own. A failure there is printed there, and
  /// is one of this test. Called while the process has no other threads.
  void over(const std::vector<const char*>& transports, const std::function<void()>& body) {
    std::vector<pid_t> processes;
    for (const char* const transport : transports) {
      std::fflush(nullptr);
      const pid_t process = fork();
      if (process == 0) {
        transport_ = transport;
        port_ = unused_port();
        run(body);
      }
      processes.push_back(process);
    }
    for (std::size_t i = 0; i < processes.size(); ++i) {
      int status = -1;
      waitpid(processes[i], &status, 0);
      EXPECT_EQ(status, 0) << "over " << transports[i];
    }
  }

  const char* transport_ = nullptr;  // that of this process
  int port_ = 0;                     // which no other process uses

 private:
  [[noreturn]] void run(const std::function<void()>& body) const {
    try {
      const testing::ScopedTrace trace(__FILE__, __LINE__, transport_);
      body();
    } catch (const std::exception& error) {
      ADD_FAILURE() << "over " << transport_ << ": " << error.what();
    }
    std::fflush(nullptr);
    _exit(HasFailure() ? 1 : 0);
  }
};

}  // namespace tutti::test
