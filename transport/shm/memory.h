// Memory that processes share. It lies in anonymous files (memfd), so that a crash leaves nothing
// behind and the size of /dev/shm does not matter.
#pragma once

#include <cassert>
#include <cstddef>
#include <string>
#include <utility>

#include "common/fd.h"
#include "transport/shm/available.h"

namespace tutti::shm {

/// Owns a mapping, but not the descriptor of the file that is mapped.
class Mapping {
 public:
  Mapping() = default;
  Mapping(void* data, std::size_t bytes) noexcept : data_(data), bytes_(bytes) {
    assert(data != nullptr && bytes > 0);
  }
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
  Mapping mapping;  ///< A writable mapping.
};

/// Allocates zeroed memory that peers may map with `peers` access. Its pages are reserved and its
/// size is sealed, so that any process that maps it can touch all of it without SIGBUS, whatever
/// happens later. Throws `unavailable` with the number of bytes, `what` they are for, and what to
/// do.
Memory make_memory(std::size_t bytes, Access peers, const std::string& what);
/// The same for one of many allocations, for which `allowance` grants memory.
Memory make_memory(std::size_t bytes, Access peers, const std::string& what, Allowance& allowance);

/// Maps memory that a peer has handed over, after checking that make_memory() could have made it
/// for such access. Throws `corrupt` where it could not, and `unavailable` where it cannot be
/// mapped.
Mapping map_received(const Fd& fd, std::size_t bytes, Access access, const std::string& what);

}  // namespace tutti::shm
