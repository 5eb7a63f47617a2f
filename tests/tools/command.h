// Runs a program as a user would, and watches it from outside.
#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>
#include <vector>

#include "common/fd.h"

namespace tutti::tools {

/// A program that runs, with its output captured. Everything that it starts carries a mark in its
/// environment, so that what is left of it can be found. Every wait ends after a minute at most.
class Command {
 public:
  /// Tests of one process run one after the other: `mark` tells this program's processes from those
  /// of other tests.
  explicit Command(const std::vector<std::string>& arguments, const std::string& stdin_path = "");
  ~Command();
  Command(const Command&) = delete;
  Command& operator=(const Command&) = delete;

  /// Reads until standard output or error holds `text`. False: it ended without.
  [[nodiscard]] bool wait_for_output(std::string_view text);
  /// As a shell reports it: the exit status, or 128 + signal. -1: it has not ended in time.
  [[nodiscard]] int wait();
  [[nodiscard]] bool has_ended();
  /// Waits until it is stopped, as by SIGTSTP. False: it ended instead.
  [[nodiscard]] bool stops() const;
  void signal(int number) const;
  /// From now on its standard output is not read, as by a pager.
  void leave_output_unread(bool unread = true) noexcept { unread_ = unread; }
  /// Closes our ends of its output pipes, as a reader that goes away.
  void stop_reading();

  /// Whether all processes that carry the mark end, soon.
  [[nodiscard]] bool nothing_is_left() const;
  [[nodiscard]] std::vector<pid_t> marked_processes() const;

  pid_t pid() const noexcept { return pid_; }
  const std::string& out() const noexcept { return out_; }
  const std::string& err() const noexcept { return err_; }
  std::vector<std::string> out_lines() const;

 private:
  bool pump();

  std::string mark_;
  pid_t pid_ = -1;
  Fd out_fd_, err_fd_;
  std::string out_, err_;
  bool unread_ = false;
  int status_ = -1;  // once it has ended
};

}  // namespace tutti::tools
