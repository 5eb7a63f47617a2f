// Declares memory that the ranks of one machine, or network devices, read and write directly.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <utility>

#include <tutti/export.hpp>

namespace tutti {

class Communicator;

/// Memory of this rank that its peers on the same machine can read and write in place. A collective
/// of the communicator for which the memory was allocated, on buffers inside it, copies nothing
/// into messages: an all-reduce reads each rank's input once and writes each rank's output once.
/// Movable.
///
/// Each rank may allocate any number of buffers at any time, independently of the others: a call
/// works with any mixture of memory that the ranks pass, and copies where it has to. For other
/// communicators and calls with counts by rank it is ordinary memory, and a send from it is copied
/// once; between machines, RDMA reads it where it lies (docs/transports.md).
///
/// A call of allocate() follows the thread rules of the communicator. Any thread may read and write
/// the memory, and may destroy the Buffer once the calls that use it have ended. A Buffer may
/// outlive the communicator. After a call has failed, a peer may still write into the memory for a
/// while.
class TUTTI_API Buffer {
 public:
  /// Allocates `bytes` bytes, zeroed and page-aligned. Throws `unavailable`, with the number of
  /// bytes, if there is not enough memory, and the communicator's error if it has failed.
  static Buffer allocate(Communicator& communicator, std::size_t bytes);

  Buffer(Buffer&&) noexcept;
  Buffer& operator=(Buffer&&) noexcept;
  ~Buffer();  ///< Frees the memory on this rank and tells the peers.

  std::byte* data() const noexcept;  ///< Null if it has no bytes or was moved from.
  std::size_t bytes() const noexcept;
  /// Whether peers access it directly, which they do if the communicator's transport joins ranks of
  /// one machine.
  bool shared() const noexcept;

  /// The memory as bytes() / sizeof(T) elements.
  template <typename T>
  std::span<T> as() const noexcept {
    return {reinterpret_cast<T*>(data()), bytes() / sizeof(T)};
  }

 private:
  struct Inside;
  explicit Buffer(std::unique_ptr<Inside> inside);
  std::unique_ptr<Inside> inside_;
};

/// Memory of the program, or a part of it, with which network devices of this rank work directly:
/// long messages to and from other machines over RDMA are not copied there (docs/transports.md).
/// The memory of a Buffer needs no such registration. Movable.
///
/// Each rank registers independently of the others. Communicators that are split off that one use
/// the registration, too. The memory may be anything that a process may write, and registrations
/// may overlap. It must stay mapped until the registration ends, and no call may use it at that
/// time. Where no transport has devices, or they may lock no more memory, messages are copied as
/// without it.
///
/// A call of of() follows the thread rules of the communicator. Any thread may destroy the
/// registration, which may outlive the communicator.
class TUTTI_API RegisteredMemory {
 public:
  /// Registers `bytes` bytes from `data` on. Devices lock the memory when it is used first. Throws
  /// `usage` where `data` is null and `bytes` is not 0, and the communicator's error if it has
  /// failed.
  static RegisteredMemory of(Communicator& communicator, void* data, std::size_t bytes);

  /// Says whether a transport of the communicator works with it.
  bool used() const noexcept { return held_ != nullptr; }

 private:
  explicit RegisteredMemory(std::shared_ptr<void> held) noexcept : held_(std::move(held)) {}
  std::shared_ptr<void> held_;
};

}  // namespace tutti
