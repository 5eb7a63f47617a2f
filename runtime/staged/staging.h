// Runs the part of a call on a GPU's buffers that its stream does: the copies to and from pinned
// memory, and the signals between the stream and the queue.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include <tutti/error.hpp>

#include "common/sync.h"
#include "devices/gpu.h"
#include "runtime/operation.h"
#include "runtime/staged/pinned_pool.h"

namespace tutti {

/// The stream's part of one operation. The calling thread makes it, and gives its two halves to the
/// stream: copy_in(), then copy_out(). The owner of the engine asks ready() before it begins the
/// operation, calls release() when that has ended, and ends it for the program once left() is true.
class Staging {
 public:
  /// Takes pinned memory for those buffers of `call` that lie on a GPU, and puts it in their place;
  /// `blocks` are the blocks of a variable call. Throws `unavailable` if there is no memory, or if
  /// the stream is being captured into a graph; nothing is given to the stream yet.
  Staging(const Gpu& gpu, const cuda::Driver& driver, PinnedPool& pool, PlannedCall& call,
          const BlockTable& blocks, int rank, int size);
  ~Staging() { pool_.give_back(pinned_); }
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  // Functions for the calling thread. They throw `unavailable` where the driver refuses something;
  // abandon() comes next, then.

  /// Gives the stream the copies to pinned memory, and the signal that the call may begin.
  void copy_in(Operation& operation);
  /// Gives it the wait for the end of the call, the copies from pinned memory, and the last signal.
  /// After it this object may be destroyed at any time.
  void copy_out(Operation& operation);
  /// Waits for what the stream has of the call. The operation ends with `error` then.
  void abandon(const Error& error) noexcept;

  // Functions for the owner of the engine.

  bool ready() const noexcept { return ready_.load(std::memory_order_seq_cst); }
  /// The call has ended with `error`, if any: lets the stream go on.
  void release(std::optional<Error> error) noexcept;
  /// Returns whether nothing of the call is left on the stream.
  bool left() const noexcept { return left_.load(std::memory_order_seq_cst); }
  /// Returns with what the operation ends, once it has left.
  std::optional<Error> outcome() const { return abandoned_ ? abandoned_ : error_; }

  Operation* next_leaving = nullptr;  ///< Links the operations that wait until they have left.

 private:
  struct Range {
    std::uintptr_t begin = 0, end = 0;
  };
  /// Describes memory of a GPU that has a place in the pinned memory.
  struct Area {
    Range device;
    std::byte* pinned = nullptr;
  };

  static Range extent(const std::vector<Range>& ranges);
  void place(Range input, Range output, cuda::Context context);
  const Area* area_of(const void* address) const;
  bool copy(const Range& range, bool in) const;
  bool signal(Operation& operation, cuda::HostFunction function) const;
  void check_not_captured() const;
  void open_gate() noexcept;
  static void signal_ready(void* operation);
  static void signal_left(void* operation);

  const cuda::Driver& driver_;
  PinnedPool& pool_;
  const cuda::Stream stream_;
  const void* anchor_ = nullptr;  // It is an address in the GPU's memory, if the call has one.
  PinnedPool::Block pinned_;      // It begins with the word for which the stream waits.
  std::array<Area, 2> areas_{};
  std::vector<Range> in_, out_;  // They say what is copied, by addresses in the GPU's memory.
  sync::Atomic<bool> ready_{false};
  sync::Atomic<bool> left_{false};
  std::optional<Error> error_;      // The owner of the engine sets it when the call has failed.
  std::optional<Error> abandoned_;  // The calling thread sets it, before left_.
};

}  // namespace tutti
