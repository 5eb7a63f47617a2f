// Owns a file descriptor and closes it.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <cassert>
#include <utility>

namespace tutti {

/// Its number is none of the standard streams', which a process may have closed: what the program
/// or the log writes to those must not go into a connection.
class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) noexcept : fd_(above_standard_streams(fd)) {}
  Fd(Fd&& other) noexcept : fd_(other.release()) {}
  Fd& operator=(Fd&& other) noexcept {
    reset(other.release());
    return *this;
  }
  ~Fd() { reset(); }

  int get() const noexcept { return fd_; }
  explicit operator bool() const noexcept { return fd_ >= 0; }
  int release() noexcept { return std::exchange(fd_, -1); }
  void reset(int fd = -1) noexcept {
    assert((fd < 0 || fd != fd_) && "it would own a closed descriptor");
    if (fd_ >= 0) close(fd_);
    fd_ = above_standard_streams(fd);
  }

 private:
  static int above_standard_streams(int fd) noexcept {
    if (fd < 0 || fd > STDERR_FILENO) return fd;
    const bool closes = (fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0;
    const int moved = fcntl(fd, closes ? F_DUPFD_CLOEXEC : F_DUPFD, STDERR_FILENO + 1);
    if (moved < 0) return fd;  // There is no other number.
    close(fd);
    return moved;
  }

  int fd_ = -1;
};

}  // namespace tutti
