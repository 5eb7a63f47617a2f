// Where the ranks' tagged lines go: standard output or standard error, written without blocking.
#pragma once

#include <cstddef>
#include <string>

#include "common/fd.h"

namespace tutti::tools {

/// Bytes on their way to one of our own outputs. A reader that does not read (a pager) must not
/// keep us from forwarding signals, so nothing here blocks; the caller stops reading from the ranks
/// while full() and waits for pollable_fd().
///
/// Not thread-safe.
class Sink {
 public:
  /// Writes to `fd`, which is not owned and whose flags, shared with other processes, stay.
  explicit Sink(int fd);

  /// Append here, then flush().
  std::string& buffer() noexcept { return buffer_; }
  /// Writes what can be written now.
  void flush();

  bool empty() const noexcept { return buffer_.size() == written_; }
  bool full() const noexcept { return buffer_.size() - written_ >= kFullBytes; }
  /// Nobody will ever read it; what was and will be appended is dropped.
  bool broken() const noexcept { return broken_; }
  int pollable_fd() const noexcept { return fd_; }

 private:
  static constexpr std::size_t kFullBytes = 256 * 1024;

  Fd own_;  // our own open file description, non-blocking; none for files and sockets
  int fd_;
  std::string buffer_;
  std::size_t written_ = 0;  // bytes of buffer_ that are out
  bool broken_ = false;
};

}  // namespace tutti::tools
