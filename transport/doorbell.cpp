#include "transport/doorbell.h"

#include <fmt/format.h>
#include <linux/membarrier.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cassert>
#include <cerrno>
#include <cstdint>
#include <cstring>

#include <tutti/error.hpp>

#include "common/sync.h"

namespace tutti {
namespace {

bool membarrier_call(int command) noexcept { return syscall(SYS_membarrier, command, 0, 0) == 0; }

}  // namespace

Doorbell::Doorbell() : fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (!fd_)
    throw Error(ErrorKind::unavailable,
                fmt::format("no eventfd for the doorbell: {}; raise the limit of open files "
                            "(ulimit -n) if that is it",
                            std::strerror(errno)));
  membarrier_ = membarrier_call(MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED) &&
                membarrier_call(MEMBARRIER_CMD_GLOBAL_EXPEDITED);
}

void Doorbell::sleep_barrier() const noexcept {
  sync::fence(std::memory_order_seq_cst);
  if (!membarrier_) return;
  membarrier_call(MEMBARRIER_CMD_GLOBAL_EXPEDITED);
  sync::fenced_all_threads();
}

void Doorbell::ring() const noexcept { sync::signal_event(fd_.get()); }

void Doorbell::clear() const noexcept {
  std::uint64_t count = 0;
  [[maybe_unused]] const ssize_t got = read(fd_.get(), &count, sizeof count);  // EAGAIN: not rung
}

void PeerBell::ring() noexcept {
  assert(event_fd >= 0);
  const std::uint64_t sleep = sleepers->latest();
  if (sleep == rung_for) return;
  rung_for = sleep;
  // A counter at its maximum means that the doorbell has been rung already, and a peer that is gone
  // leaves a descriptor that nobody reads.
  sync::signal_event(event_fd);
}

}  // namespace tutti
