// Reads the memory of another process with process_vm_readv(2), by which the kernel copies any
// memory of a process that permits it, whether or not both processes have mapped it.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>

namespace tutti {

/// The memory of one process. Thread-safe. Only an attempt shows whether this process may read it,
/// so callers first read something whose value they know.
class PeerMemory {
 public:
  PeerMemory() = default;  ///< Refers to no process; read() returns `no`.
  /// `pidfd` refers to the process and stays open as long as this object; it is -1 for the own
  /// process.
  PeerMemory(pid_t process, int pidfd) noexcept : process_(process), pidfd_(pidfd) {}

  enum class Read {
    done,
    nothing,  ///< The process has no memory there that the kernel copies.
    denied,   ///< The process is alive and may not be read.
    no,       ///< The process has ended, or this object refers to none.
  };
  /// Copies `bytes` from `address` in the process to `to`. Unless it returns `done`, the contents
  /// of `to` are undefined.
  Read read(std::uint64_t address, void* to, std::size_t bytes) const noexcept;

 private:
  bool alive() const noexcept;

  pid_t process_ = 0;
  int pidfd_ = -1;
};

/// Finds out whether the kernel copies memory of this process for others. It does not copy memory
/// of devices, which includes what some drivers pin for GPUs, nor secret memory. It remembers the
/// last memory that it asked the kernel about, and asks again now and then. One thread uses it.
class ReadableMemory {
 public:
  bool holds(const std::byte* address, std::size_t bytes) noexcept;

 private:
  const std::byte* address_ = nullptr;
  std::size_t bytes_ = 0;
  unsigned left_ = 0;  // the calls until the kernel is asked again
};

}  // namespace tutti
