#include "transport/peer_memory.h"

#include <poll.h>
#include <sys/uio.h>

#include <cassert>
#include <cerrno>

namespace tutti {

PeerMemory::Read PeerMemory::read(std::uint64_t address, void* to,
                                  std::size_t bytes) const noexcept {
  if (process_ <= 0) return Read::no;
  assert(to != nullptr || bytes == 0);
  auto* place = static_cast<std::byte*>(to);
  while (bytes > 0) {
    const iovec here{place, bytes};
    const iovec there{reinterpret_cast<void*>(address), bytes};
    const ssize_t copied = process_vm_readv(process_, &here, 1, &there, 1, 0);
    if (copied <= 0) return errno == EFAULT ? Read::nothing : Read::no;
    assert(static_cast<std::size_t>(copied) <= bytes);
    place += copied;
    address += static_cast<std::uint64_t>(copied);
    bytes -= static_cast<std::size_t>(copied);
  }
  return alive() ? Read::done : Read::no;
}

// Where the process has ended, its process id may belong to another process by now, and the data
// read may be that process's.
bool PeerMemory::alive() const noexcept {
  if (pidfd_ < 0) return true;
  pollfd end{pidfd_, POLLIN, 0};
  return poll(&end, 1, 0) == 0;
}

}  // namespace tutti
