#include "transport/mesh/lifelines.h"

#include <linux/close_range.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <cerrno>
#include <future>
#include <new>

#include <tutti/error.hpp>

#include "common/thread.h"

namespace tutti::mesh {
namespace {

bool close_all(int first, unsigned last, unsigned flags) noexcept {
  return syscall(SYS_close_range, static_cast<unsigned>(first), last, flags) == 0;
}

// Gives the calling thread a file table of its own with nothing but `kept`, which is sorted.
// Returns false where the thread still shares the process's table.
bool leave_file_table(const std::vector<int>& kept) noexcept {
  assert(!kept.empty() && kept.front() >= 0 && std::is_sorted(kept.begin(), kept.end()));
  if (!close_all(kept.back() + 1, ~0u, CLOSE_RANGE_UNSHARE)) return false;
  int next = 0;
  for (const int fd : kept) {
    if (next < fd) close_all(next, static_cast<unsigned>(fd) - 1, 0);
    next = fd + 1;
  }
  return true;
}

// Reads until there is nothing or the end; only TLS's own messages arrive here. It makes the system
// call itself, since ThreadSanitizer would take a descriptor of this thread's own table, given to
// read(2)'s function, for one of the process's.
bool has_end(int socket) noexcept {
  std::array<char, 256> bytes;
  ssize_t got = 0;
  do got = syscall(SYS_read, socket, bytes.data(), bytes.size());
  while (got > 0);
  return got == 0 || !net::not_now(errno);
}

Fd make_eventfd() {
  Fd fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!fd) throw Error(ErrorKind::unavailable, "no eventfd: raise the limit of open files");
  return fd;
}

}  // namespace

Lifelines::Lifelines(std::vector<net::Stream> connections)
    : owner_(getpid()),
      stop_(make_eventfd()),
      connections_(std::move(connections)),
      ended_(connections_.size()) {
  // Indexed by rank, with -1 where there is no peer or it has ended; stop_ comes last.
  std::vector<pollfd> watched;
  std::vector<int> kept{stop_.get()};
  for (const net::Stream& connection : connections_) {
    watched.push_back({connection.fd(), POLLIN, 0});
    if (connection) kept.push_back(connection.fd());
  }
  watched.push_back({stop_.get(), POLLIN, 0});
  std::sort(kept.begin(), kept.end());
  std::promise<bool> leaves;
  std::future<bool> left = leaves.get_future();
  thread_ = start_without_signals([this, watched, kept, leaves = std::move(leaves)]() mutable {
    leaves.set_value(leave_file_table(kept));
    watch(watched);
  });
  if (left.get()) connections_.clear();
}

Lifelines::~Lifelines() {
  if (getpid() == owner_) {
    eventfd_write(stop_.get(), 1);
    thread_.join();
  } else {
    new (&thread_)
        std::thread;  // It is the parent's, which this process can neither join nor detach.
  }
}

void Lifelines::watch(std::vector<pollfd>& fds) noexcept {
  assert(fds.size() == ended_.size() + 1);
  for (;;) {
    if (poll(fds.data(), fds.size(), -1) < 0) continue;
    if (fds.back().revents != 0) return;
    for (std::size_t rank = 0; rank < ended_.size(); ++rank)
      if (fds[rank].revents != 0 && has_end(fds[rank].fd)) {
        fds[rank].fd = -1;
        ended_[rank].store(true, std::memory_order_release);
      }
  }
}

}  // namespace tutti::mesh
