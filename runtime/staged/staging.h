// Runs the part of a call that a GPU's stream does: the kernel, if GPUs run the communicator's
// collectives; and the copies of buffers that the engine cannot reach to and from pinned memory,
// with the signals between the stream and the queue.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include <tutti/error.hpp>

#include "common/sync.h"
#include "devices/gpu.h"
#include "runtime/engine/device/device_engine.h"
#include "runtime/operation.h"
#include "runtime/staged/captures.h"
#include "runtime/staged/pinned_pool.h"

namespace tutti {

/// The stream's part of one operation. The calling thread makes it, and gives its two halves to the
/// stream: copy_in(), then copy_out(). The owner of the engine asks ready() before it begins the
/// operation, calls release() when that has ended, and ends it for the program once left() is true.
/// If the stream is being captured, the two halves are capture_in() and capture_out(); a graph then
/// starts the operation any number of times, and the owner calls end_replay() when it has ended.
class Staging {
 public:
  /// Names what a call is given besides its own arguments.
  struct Where {
    const Gpu& gpu;
    const cuda::Driver& driver;
    const std::shared_ptr<PinnedPool>& pool;
    DeviceEngine* engine = nullptr;  ///< Runs collectives on a GPU; null if the host does.
    /// The owner of the engine launches the kernel once the stream has come to the call, and not
    /// the calling thread at once: the order in which calls begin is not known yet.
    bool kernel_later = false;
  };
  /// Takes pinned memory for those buffers of `call` that the engine cannot reach, and puts it in
  /// their place: these are buffers on a GPU, or, if an engine runs the call on a GPU, those of the
  /// host. `blocks` are the blocks of a variable call. Throws `unavailable` if there is no memory,
  /// and `usage` for what is of another GPU; nothing is given to the stream yet.
  Staging(const Where& where, PlannedCall& call, const BlockTable& blocks, int rank, int size);
  /// Does the same for a send or receive, which the host always moves.
  Staging(const Where& where, TransferCall& call);
  ~Staging();
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  // Functions for the calling thread. They throw `unavailable` where the driver refuses something;
  // abandon() comes next, then.

  /// Gives the stream the copies to pinned memory, and the kernel, or the signal that the call may
  /// begin. If `apart` is true, a kernel runs beside what comes next on the stream.
  void copy_in(Operation& operation, bool apart);
  /// Gives it the wait for the end of the call, the copies from pinned memory, and the last signal.
  /// After it this object may be destroyed at any time.
  void copy_out(Operation& operation);
  /// Waits for what the stream has of the call. The operation ends with `error` then.
  void abandon(const Error& error) noexcept;

  /// Returns whether the stream is being captured, so that the call becomes a part of a graph.
  bool captured() const noexcept { return captured_; }
  /// The two halves of a call that becomes a part of a graph. Where they throw, the graph's replays
  /// do nothing for this call.
  void capture_in(Operation& operation, Captures& captures);
  void capture_out(Operation& operation);

  // Functions for the owner of the engine.

  /// Returns whether the stream has come to the call.
  bool ready() const noexcept {
    return ready_.load(std::memory_order_seq_cst) &&
           (!kernel_on_stream() || abandoned_ || engine_->reached(device_call_));
  }
  /// Returns whether the calling thread has given a kernel to the stream, or will.
  bool kernel_on_stream() const noexcept {
    return engine_ != nullptr && !device_call_.launched_by_owner;
  }
  /// Returns whether no stream of the program orders the call.
  bool on_own_stream() const noexcept { return on_own_stream_; }
  /// Returns the call that the engine of a device runs, or null.
  DeviceCall* device_call() noexcept { return engine_ == nullptr ? nullptr : &device_call_; }
  /// The call has ended with `error`, if any: lets the stream go on.
  void release(std::optional<Error> error) noexcept;
  /// The same for a call that a graph has started. The graph may start it again at once.
  void end_replay() noexcept;
  /// Returns whether nothing of the call is left on the stream.
  bool left() const noexcept {
    return left_.load(std::memory_order_seq_cst) &&
           (abandoned_ || ready_.load(std::memory_order_seq_cst));
  }
  /// Returns with what the operation ends, once it has left.
  std::optional<Error> outcome() const { return abandoned_ ? abandoned_ : error_; }

  Operation* next_leaving = nullptr;  ///< Links the operations that wait until they have left.

 private:
  struct Range {
    std::uintptr_t begin = 0, end = 0;
  };
  /// Describes memory of a buffer that has a place in the pinned memory.
  struct Area {
    Range buffer;
    std::byte* pinned = nullptr;
  };

  static Range extent(const std::vector<Range>& ranges);
  StreamContext context() const;
  void place(Range input, Range output, std::size_t table_bytes, cuda::Context context);
  /// Describes a range of a buffer, and where it is in the pinned memory.
  struct Pair {
    cuda::Address buffer, pinned;
    std::size_t bytes;
  };
  Pair pair_of(const Range& range) const;
  bool copy_all(const std::vector<Range>& ranges, bool in) const;
  const Area* area_of(const void* address) const;
  bool signal(Operation& operation, cuda::HostFunction function) const;
  bool is_captured() const;
  void await_gate() const;
  void set_gate(std::uint32_t value) noexcept;
  void leave(Operation& operation) noexcept;
  void copy_here(const std::vector<Range>& ranges, bool in) const noexcept;
  static void read_host_buffers(void* operation);
  static void signal_ready(void* operation);
  static void signal_left(void* operation);
  static void start_replay(void* operation);
  static void write_host_buffers(void* operation);

  const cuda::Driver& driver_;
  const std::shared_ptr<PinnedPool> pool_;
  DeviceEngine* const engine_;
  cuda::Stream stream_;
  // Whether the stream waits for the end of the call: not for that of a send whose buffer is
  // copied.
  bool gated_ = true;
  bool captured_ = false;
  // Whether all buffers are in host memory, and no stream orders a call that a kernel runs, so that
  // it is on the engine's own stream.
  bool on_own_stream_ = false;
  const void* anchor_ = nullptr;  // It is an address in the GPU's memory, if the call has one.
  PinnedPool::Block pinned_;      // It begins with the word for which the stream waits.
  DeviceCall device_call_;
  std::array<Area, 2> areas_{};
  std::vector<Range> in_, out_;  // They say what is copied, by addresses in the buffers.
  sync::Atomic<bool> ready_{false};
  sync::Atomic<bool> left_{false};
  // For a captured call: whether the graph has all of it, and whether it was started and has not
  // ended.
  sync::Atomic<bool> whole_{false};
  sync::Atomic<bool> started_{false};
  std::optional<Error> error_;      // The owner of the engine sets it when the call has failed.
  std::optional<Error> abandoned_;  // The calling thread sets it, before left_.
};

}  // namespace tutti
