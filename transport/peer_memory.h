// The memory of another process, read by the kernel (process_vm_readv): all of it, where that
// process lets us, without a place that both have mapped.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>

namespace tutti {

/// Thread-safe. Whether it may be read shows when it is: ask for something that is known first.
class PeerMemory {
 public:
  PeerMemory() = default;  ///< Nobody's: reads nothing.
  /// `pidfd`: of the process, for as long as this lives; -1: it is the own one.
  PeerMemory(pid_t process, int pidfd) noexcept : process_(process), pidfd_(pidfd) {}

  enum class Read {
    done,
    nothing,  ///< The process has nothing there.
    no,       ///< It has ended, or may not be read.
  };
  /// Copies what the process has at `address`. Unless it is done, what `to` holds means nothing.
  Read read(std::uint64_t address, void* to, std::size_t bytes) const noexcept;

 private:
  bool alive() const noexcept;

  pid_t process_ = 0;
  int pidfd_ = -1;
};

}  // namespace tutti
