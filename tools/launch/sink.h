// Writes the ranks' tagged lines to standard output or standard error without blocking.
#pragma once

#include <cerrno>
#include <csignal>
#include <cstddef>
#include <string>

#include "common/fd.h"

namespace tutti::tools {

/// Bytes that wait to be written to one of this process's outputs. A reader that does not read (a
/// pager) must not keep the launcher from forwarding signals, so nothing here blocks: the caller
/// stops reading from the ranks while full() is true, and waits for pollable_fd().
///
/// Not thread-safe.
class Sink {
 public:
  /// Writes to `fd`, which it does not own, and whose flags it leaves as they are, since other
  /// processes share them.
  explicit Sink(int fd);

  /// The buffer to which the caller appends before flush().
  std::string& buffer() noexcept { return buffer_; }
  /// Writes as much as can be written now.
  void flush();

  /// Returns how many bytes wait to be written.
  std::size_t bytes() const noexcept { return buffer_.size() - written_; }
  bool empty() const noexcept { return bytes() == 0; }
  bool full() const noexcept { return bytes() >= kFullBytes; }
  /// Returns whether nothing can be written any more. Everything that was and will be appended is
  /// dropped.
  bool broken() const noexcept { return error_ != 0; }
  /// Says why, where it is broken.
  std::string complaint() const;
  /// Returns the exit status that says so.
  int status() const noexcept { return error_ == EPIPE ? 128 + SIGPIPE : 1; }
  int pollable_fd() const noexcept { return fd_; }

 private:
  static constexpr std::size_t kFullBytes = 256 * 1024;

  Fd own_;  // a non-blocking open file description of our own; none for files and sockets
  int fd_;
  std::string buffer_;
  std::size_t written_ = 0;  // bytes of buffer_ that have been written
  int error_ = 0;            // errno of the write that failed
};

}  // namespace tutti::tools
