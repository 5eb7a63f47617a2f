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
    nothing,  ///< The process has no memory there.
    no,       ///< The process has ended, or may not be read.
  };
  /// Copies `bytes` from `address` in the process to `to`. Unless it returns `done`, the contents
  /// of `to` are undefined.
  Read read(std::uint64_t address, void* to, std::size_t bytes) const noexcept;

 private:
  bool alive() const noexcept;

  pid_t process_ = 0;
  int pidfd_ = -1;
};

}  // namespace tutti
