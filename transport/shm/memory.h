// Memory that processes share: anonymous files, so that a crash leaves nothing behind and the size
// of /dev/shm does not matter.
#pragma once

#include <cstddef>
#include <string>
#include <utility>

#include "common/fd.h"

namespace tutti::shm {

/// Owns a mapping, not the descriptor behind it.
class Mapping {
 public:
  Mapping() = default;
  Mapping(void* data, std::size_t bytes) noexcept : data_(data), bytes_(bytes) {}
  Mapping(Mapping&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  Mapping& operator=(Mapping&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~Mapping();

  void* data() const noexcept { return data_; }
  std::size_t bytes() const noexcept { return bytes_; }

 private:
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
};

enum class Access { read, write };

struct Memory {
  Fd fd;
  Mapping mapping;  ///< For writing.
};

/// New memory, all zero, for peers to map with `peers` access. Its pages are reserved and its size
/// is sealed: whoever maps it can touch all of it without SIGBUS, whatever anybody does later.
/// Throws `unavailable` with the bytes, `what` it is for, and what to do.
Memory make_memory(std::size_t bytes, Access peers, const std::string& what);

/// Maps memory that a peer has handed over, after checking that it is what make_memory() makes.
/// Throws `corrupt` when it is not, `unavailable` when it cannot be mapped.
Mapping map_received(const Fd& fd, std::size_t bytes, Access access, const std::string& what);

}  // namespace tutti::shm
