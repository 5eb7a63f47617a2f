// Runs a program as a user would, and observes it from outside.
#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>
#include <vector>

#include "common/fd.h"

namespace tutti::tools {

/// A program that runs with its output captured. All processes that it starts carry a mark in their
/// environment, so that those that are left can be found. Every wait ends after a minute at most.
class Command {
 public:
  /// The mark distinguishes this program's processes from those of other tests, and tests of one
  /// process run one after the other.
  explicit Command(const std::vector<std::string>& arguments, const std::string& stdin_path = "");
  ~Command();
  Command(const Command&) = delete;
  Command& operator=(const Command&) = delete;

  /// Reads until standard output or standard error contains `text`. Returns false if the program
  /// ends without it.
  [[nodiscard]] bool wait_for_output(std::string_view text);
  /// Returns the status that a shell would report: the exit status, or 128 + signal. Returns -1 if
  /// the program has not ended in time.
  [[nodiscard]] int wait();
  [[nodiscard]] bool has_ended();
  /// Waits until the program is stopped, as by SIGTSTP. Returns false if it ended instead.
  [[nodiscard]] bool stops() const;
  void signal(int number) const;
  /// From now on nobody reads its standard output, as with a pager.
  void leave_output_unread(bool unread = true) noexcept { unread_ = unread; }
  /// Closes this process's ends of its output pipes, like a reader that goes away.
  void stop_reading();

  /// Whether all processes that carry the mark end soon.
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
  int status_ = -1;  // set when it has ended
};

}  // namespace tutti::tools
