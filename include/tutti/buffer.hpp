// tutti: memory that the ranks of one machine read and write directly.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include <tutti/export.hpp>

namespace tutti {

class Communicator;

/// Memory of this rank that its peers on the same machine can read and write where it lies. A
/// collective of the communicator that it was allocated for, on buffers inside of it, copies
/// nothing into messages: an all-reduce reads each rank's input once and writes each rank's output
/// once. Movable.
///
/// Each rank allocates for itself, at any time, what it likes: a call works with whatever mixture
/// of memory the ranks give it, and copies where it must. Elsewhere (other communicators, other
/// machines, calls with counts by rank) it is memory like any other. A send from it is copied once.
///
/// Threads: allocate() is a call of the communicator; any thread may read and write the memory and
/// destroy the Buffer, once the calls that use it are done. It may outlive the communicator. After
/// a call that failed a peer may still write into it for a while.
class TUTTI_API Buffer {
 public:
  /// `bytes` of zeros, on a page. Throws `unavailable` with the bytes where there is no memory, and
  /// what the communicator throws when it has failed.
  static Buffer allocate(Communicator& communicator, std::size_t bytes);

  Buffer(Buffer&&) noexcept;
  Buffer& operator=(Buffer&&) noexcept;
  ~Buffer();  ///< Gives the memory back here, and tells the peers.

  std::byte* data() const noexcept;  ///< Null when it has no bytes, or was moved from.
  std::size_t bytes() const noexcept;
  /// Whether peers reach it directly: the communicator's transport joins ranks of one machine.
  bool shared() const noexcept;

  /// As elements: bytes() / sizeof(T) of them.
  template <typename T>
  std::span<T> as() const noexcept {
    return {reinterpret_cast<T*>(data()), bytes() / sizeof(T)};
  }

 private:
  struct Inside;
  explicit Buffer(std::unique_ptr<Inside> inside);
  std::unique_ptr<Inside> inside_;
};

}  // namespace tutti
