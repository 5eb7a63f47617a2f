#include "transport/peer_memory.h"

#include <poll.h>
#include <sys/uio.h>
#include <unistd.h>

#include <array>
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
    if (copied <= 0) {
      if (errno == EFAULT) return Read::nothing;
      // A filter of system calls may answer with any error.
      return errno != ESRCH && alive() ? Read::denied : Read::no;
    }
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

bool ReadableMemory::holds(const std::byte* address, std::size_t bytes) noexcept {
  if (bytes == 0) return true;
  if (address == address_ && bytes == bytes_ && left_ > 0) {
    --left_;
    return true;
  }
  std::array<std::byte, 2> copies{};
  const iovec here{copies.data(), copies.size()};
  const std::array<iovec, 2> ends{iovec{const_cast<std::byte*>(address), 1},
                                  iovec{const_cast<std::byte*>(address) + bytes - 1, 1}};
  if (process_vm_readv(getpid(), &here, 1, ends.data(), ends.size(), 0) != 2) {
    left_ = 0;
    return false;
  }
  *this = {};
  address_ = address;
  bytes_ = bytes;
  left_ = 64;
  return true;
}

}  // namespace tutti
