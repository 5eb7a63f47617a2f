#include "transport/tcp/lifelines.h"

#include <linux/close_range.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <future>
#include <memory>
#include <new>

#include <tutti/error.hpp>

#include "common/thread.h"

namespace tutti::tcp {
namespace {

// What a process sent before it ended may still be on its way by the other connection.
constexpr std::chrono::milliseconds kGrace{200};

bool close_all(int first, unsigned last, unsigned flags) noexcept {
  return syscall(SYS_close_range, static_cast<unsigned>(first), last, flags) == 0;
}

// A table of the calling thread's own, with nothing but `kept` in it, which is in order. False: it
// shares the process's.
bool leave_file_table(const std::vector<int>& kept) noexcept {
  if (!close_all(kept.back() + 1, ~0u, CLOSE_RANGE_UNSHARE)) return false;
  int next = 0;
  for (const int fd : kept) {
    if (next < fd) close_all(next, static_cast<unsigned>(fd) - 1, 0);
    next = fd + 1;
  }
  return true;
}

// Nothing is sent but what TLS says to itself.
bool has_end(int socket) noexcept {
  std::array<char, 256> bytes;
  ssize_t got = 0;
  do got = recv(socket, bytes.data(), bytes.size(), MSG_DONTWAIT);
  while (got > 0);
  return got == 0 || !not_now(errno);
}

Fd make_eventfd() {
  Fd fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!fd) throw Error(ErrorKind::unavailable, "no eventfd: raise the limit of open files");
  return fd;
}

}  // namespace

/// The thread's own.
struct Lifelines::Watched {
  std::vector<pollfd> peers;  // by rank; fd -1: there is none, or it has ended
  pollfd stop;
  std::promise<bool> left;  // the process's table
};

Lifelines::Lifelines(std::vector<Stream> connections)
    : owner_(getpid()),
      stop_(make_eventfd()),
      connections_(std::move(connections)),
      ended_(connections_.size()) {
  auto watched = std::make_unique<Watched>();
  watched->stop = {stop_.get(), POLLIN, 0};
  std::vector<int> kept{stop_.get()};
  for (const Stream& connection : connections_) {
    watched->peers.push_back({connection.fd(), POLLIN, 0});
    if (connection) kept.push_back(connection.fd());
  }
  std::sort(kept.begin(), kept.end());
  std::future<bool> left = watched->left.get_future();
  thread_ = start_without_signals([this, watched = std::move(watched), kept = std::move(kept)] {
    watched->left.set_value(leave_file_table(kept));
    watch(*watched);
  });
  if (left.get()) connections_.clear();
}

Lifelines::~Lifelines() {
  if (getpid() == owner_) {
    eventfd_write(stop_.get(), 1);
    thread_.join();
  } else {
    new (&thread_) std::thread;  // the parent's, which this process can neither join nor detach
  }
}

void Lifelines::watch(Watched& watched) noexcept {
  std::vector<pollfd>& peers = watched.peers;
  peers.push_back(watched.stop);
  for (;;) {
    if (poll(peers.data(), peers.size(), -1) < 0) continue;
    if (peers.back().revents != 0) return;
    for (pollfd& peer : peers)
      if (peer.revents != 0 && has_end(peer.fd)) peer.fd = -1;
    if (poll(&watched.stop, 1, static_cast<int>(kGrace.count())) > 0) return;
    for (std::size_t rank = 0; rank < ended_.size(); ++rank)
      if (peers[rank].fd < 0) ended_[rank].store(true, std::memory_order_release);
  }
}

}  // namespace tutti::tcp
