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
    struct Process {
      pid_t pid;
      std::FILE* failures;  // A file that the two processes share, whose offset is one.
    };
    std::vector<Process> processes;
    for (const char* const transport : transports) {
      std::fflush(nullptr);
      Process process{-1, std::tmpfile()};
      process.pid = fork();
      if (process.pid == 0) {
        transport_ = transport;
        port_ = unused_port();
        run(body, process.failures);
      }
      processes.push_back(process);
    }
    for (std::size_t i = 0; i < processes.size(); ++i) {
      int status = -1;
      waitpid(processes[i].pid, &status, 0);
      EXPECT_EQ(status, 0) << "over " << transports[i] << ": " << content(processes[i].failures);
    }
  }

  const char* transport_ = nullptr;  // that of this process
  int port_ = 0;                     // which no other process uses

 private:
  [[noreturn]] void run(const std::function<void()>& body, std::FILE* failures) const {
    try {
      const testing::ScopedTrace trace(__FILE__, __LINE__, transport_);
      body();
    } catch (const std::exception& error) {
      ADD_FAILURE() << "over " << transport_ << ": " << error.what();
    }
    const auto& result = *testing::UnitTest::GetInstance()->current_test_info()->result();
    for (int part = 0; part < result.total_part_count(); ++part)
      if (result.GetTestPartResult(part).failed())
        std::fprintf(failures, "%s\n", result.GetTestPartResult(part).message());
    std::fflush(nullptr);
    _exit(HasFailure() ? 1 : 0);
  }

  // Returns what is in the file, and closes it.
  static std::string content(std::FILE* file) {
    std::rewind(file);
    std::string text;
    for (int next = std::fgetc(file); next != EOF; next = std::fgetc(file))
      text.push_back(static_cast<char>(next));
    std::fclose(file);
    return text;
  }
};

}  // namespace tutti::test
