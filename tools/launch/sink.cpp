#include "launch/sink.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <cassert>
#include <cerrno>
#include <system_error>

namespace tutti::tools {
namespace {

// O_NONBLOCK belongs to the open file description, which the parent's shell shares, so pipes and
// terminals are opened once more instead. A file has to keep its shared offset, and never blocks.
int open_again_nonblocking(int fd) {
  struct stat status;
  if (::fstat(fd, &status) != 0) return -1;
  if (!S_ISFIFO(status.st_mode) && !S_ISCHR(status.st_mode)) return -1;
  const std::string path = fmt::format("/proc/self/fd/{}", fd);
  return ::open(path.c_str(), O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
}

}  // namespace

Sink::Sink(int fd) : own_(open_again_nonblocking(fd)), fd_(own_ ? own_.get() : fd) {
  assert(fd_ >= 0);
}

void Sink::flush() {
  while (!broken() && !empty()) {
    const ssize_t done = ::write(fd_, buffer_.data() + written_, buffer_.size() - written_);
    if (done >= 0)
      written_ += static_cast<std::size_t>(done);
    else if (errno == EAGAIN)
      break;
    else if (errno != EINTR)
      error_ = errno;
  }
  assert(written_ <= buffer_.size());
  // Moving the rest is cheap: it is at most what full() allows, plus one read.
  buffer_.erase(0, broken() ? buffer_.size() : written_);
  written_ = 0;
}

std::string Sink::complaint() const {
  if (error_ == EPIPE) return "nobody reads our output";
  return "cannot write our output: " + std::generic_category().message(error_);
}

}  // namespace tutti::tools
