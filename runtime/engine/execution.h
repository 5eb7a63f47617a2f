// The engine, which runs the lanes of a program over channels. It never blocks, and allocates
// nothing once a program is bound.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <type_traits>
#include <vector>

#include "collectives/schedule/program.h"
#include "compute/combine.h"
#include "runtime/engine/engine.h"
#include "transport/channel.h"
#include "transport/ring/ring.h"

namespace tutti {

class SendPort;

/// The receiving end of a channel as the engine uses it: it calls the ring directly if the channel
/// has one, else the channel's virtual functions.
class RecvPort {
 public:
  RecvPort(int peer, RecvChannel& channel)
      : ring_(channel.ring()), channel_(&channel), peer_(peer) {}

  int peer() const noexcept { return peer_; }
  bool peek(Message& message) {
    if (ring_ == nullptr) return peek_channel(message);
    if (!ring_->peek()) return false;
    message.header = ring_->header();
    message.data = ring_->data(message.zero_copy);
    return message.data != nullptr || (message.remote = ring_->remote());
  }
  /// See RecvChannel::get().
  const std::byte* get(const Memory& place) { return channel_->get(place); }
  /// Returns where in the memory of the large message that was peeked `to` may write its answer, or
  /// null if the answer cannot be written there.
  std::byte* answer_data(const SendPort& to) const;
  bool in_memory() const noexcept { return ring_ != nullptr; }
  /// See RecvRing::still_valid().
  bool still_valid() const noexcept { return ring_ == nullptr || ring_->still_valid(); }
  void release() {
    if (ring_ != nullptr)
      ring_->release();
    else
      channel_->release();
  }
  /// Whether the sender wants the time in which the peeked message is copied to be recorded.
  bool is_timed() const noexcept { return ring_ != nullptr && ring_->is_timed(); }
  void record_read(std::uint64_t elapsed) noexcept { ring_->record_read(elapsed); }
  /// Does what release() does, for a message over which a posted answer was written.
  void release_answered() { ring_->release_answered(); }

 private:
  friend class SendPort;
  bool peek_channel(Message& message);

  RecvRing* ring_;
  RecvChannel* channel_;
  int peer_;
};

class SendPort {
 public:
  SendPort(int peer, SendChannel& channel)
      : ring_(channel.ring()), channel_(&channel), peer_(peer) {}

  int peer() const noexcept { return peer_; }
  std::byte* acquire(std::size_t bytes) {
    if (ring_ != nullptr) return ring_->acquire(bytes);
    const auto span = channel_->acquire(bytes);
    return span ? span->data : nullptr;
  }
  /// Acquires the message that was peeked at `from` as the memory of the answer to it; returns
  /// false if the window is full.
  bool acquire_answer(const RecvPort& from) {
    return ring_->acquire_at(from.ring_->place_for_answer());
  }
  /// Acquires a slot for a large message that is sent zero-copy, whose answer is to be written to
  /// `answer`; returns false if the window is full.
  bool acquire_zero_copy(const Memory& message, const Extent& answer = {}) {
    if (ring_ != nullptr ? !ring_->acquire_at(origin_of(message, answer))
                         : !channel_->acquire_zero_copy(message))
      return false;
    zero_copy_ = ring_ != nullptr ? ring_->posted() + 1 : 1;
    return true;
  }
  /// Returns the kinds of memory from which it sends without a copy.
  MemoryKinds zero_copy() const noexcept { return channel_->zero_copy(); }
  bool in_memory() const noexcept { return ring_ != nullptr; }
  /// Returns how the ring's payloads are written, or null if the port has no ring.
  SlotStores* stores() noexcept { return ring_ != nullptr ? &ring_->stores() : nullptr; }
  /// Decides for a call of the class how its messages in ordinary memory travel; see
  /// SendRing::choose_copies(). The zero-copy messages of the last call have been read.
  KernelCopies::Choice choose_copies(int copy_class, bool both_ways) noexcept {
    const auto choice =
        ring_ != nullptr ? ring_->choose_copies(copy_class, both_ways) : KernelCopies::Choice();
    set_by_kernel(choice.by_kernel);
    zero_copy_ = 0;
    set_copy_class(choice.timed ? copy_class : 0);
    return choice;
  }
  /// Whether the kernel copies the messages of the call for which that was decided last.
  bool by_kernel() const noexcept { return by_kernel_; }
  void set_by_kernel(bool by_kernel) noexcept { by_kernel_ = by_kernel; }
  /// See SendRing::set_copy_class() and record_write().
  void set_copy_class(int copy_class) noexcept {
    if (ring_ != nullptr) ring_->set_copy_class(copy_class);
  }
  bool is_timed() const noexcept { return ring_ != nullptr && ring_->copy_class() != 0; }
  void record_write(std::uint64_t elapsed, std::size_t bytes) noexcept {
    ring_->record_write(elapsed, bytes);
  }
  /// Returns whether the receiver has read all zero-copy messages.
  bool zero_copy_done() const noexcept {
    return zero_copy_ == 0 ||
           (ring_ != nullptr ? ring_->released(zero_copy_) : channel_->zero_copy_done());
  }
  void post(const Header& header) {
    if (ring_ != nullptr)
      ring_->post(header);
    else
      channel_->post(header);
  }

 private:
  SendRing* ring_;
  SendChannel* channel_;
  // The number of the last zero-copy message, counted from 1; outside of a ring 1 if there was one.
  std::uint64_t zero_copy_ = 0;
  int peer_;
  bool by_kernel_ = false;  // whether the reader has the kernel copy messages in ordinary memory
};

inline std::byte* RecvPort::answer_data(const SendPort& to) const {
  return ring_ != nullptr && to.in_memory() ? ring_->answer_data() : nullptr;
}

/// A step with the kernel that computes it on this machine.
struct BoundStep : Program::Step {
  CombineFunction combine;
  int element_shift;  ///< `combine` counts in 2^this bytes.
  /// The step brings a message to a place that no other step uses, so that the messages of the next
  /// pieces may be brought with it.
  bool brings_ahead = false;
};

/// Holds how far a lane of a program under way has come.
struct LaneState {
  const BoundStep* first;
  const BoundStep* end;
  const void**
      /// The addresses of all operands of the current step, whether or not they are in hand:
      /// inputs, then outputs.
      addresses;
  const BoundStep* step = nullptr;
  std::uint64_t piece = 0;
  std::uint64_t walked = 0;     ///< The number of pieces that are done.
  std::uint64_t done = 0;       ///< The number of steps that are done, over all pieces.
  std::size_t cursor = 0;       ///< The number of operands of the current step that are in hand.
  std::size_t zero_copies = 0;  ///< The number of those that are zero-copy messages.
};
static_assert(std::is_trivially_copyable_v<BoundStep> && std::is_trivially_copyable_v<LaneState>);

/// A program whose ports are bound to one communicator's channels, and its steps to kernels. It
/// also holds the state of its execution; it has one at a time. The channels outlive it.
struct HostProgram final : BoundProgram {
  HostProgram(Program compiled, Transport& transport);

  std::vector<BoundStep> steps;
  std::vector<SendPort> sends;
  std::vector<RecvPort> receives;
  std::vector<LaneState> lanes;
  /// Indexed by step, with the extras of the call under way; empty if it has none.
  std::vector<CombineExtras> extras;
  std::vector<void*> written;  ///< The addresses that a step of a zero-copy call writes.
  std::vector<std::unique_ptr<HostProgram>> others;  ///< The other stripes of the call.
  /// Whether the kernel may copy the program's messages: it only moves data, and some messages may
  /// be sent zero-copy.
  bool only_moves = false;
  std::vector<std::size_t> sent_bytes;  ///< By port, what a call sends there, if it only moves.

  /// Whether its calls end within two microseconds if they wait for nobody.
  const bool soon = !program.variable && program.call.reduction == 0 && program.call.count <= 512;

 private:
  std::vector<const void*> addresses_;
};

/// Says where the memory of results is expected to be when it is written, and so how it is written.
enum class ResultStores {
  cached,   ///< In a cache of this core, to which results are written as usual.
  fetched,  ///< In no cache, so that the cache lines are prefetched.
  /// In no cache, and too large to stay in one, so that results are written past the caches.
  streamed,
};

/// Returns whether copies by the kernel from one process to another pay anywhere on this processor.
bool copies_by_kernel_pay();

/// Returns how results of so many bytes at `output` are written best.
ResultStores stores_for(std::size_t result_bytes, const void* input, const void* output);

/// Runs one operation. One thread at a time (the owner of the communicator's engine) uses it.
///
/// Invariants: a lane's cursor counts the operands of its current step that are in hand (peeked or
/// acquired); they stay in hand from one advance() to the next. Messages are posted and released
/// only when the whole step is done.
class Execution {
 public:
  /// `bound` outlives the execution.
  void start(HostProgram& bound, const CallBuffers& buffers, std::uint32_t operation,
             ResultStores stores);

  /// Does what can be done now, and returns true once all lanes are done. It tries the lanes from
  /// the first to the last, one step each, so that messages for which peers wait are sent before
  /// received ones are processed. Otherwise, one rank reduces while the other waits for its message
  /// (64 KiB take 9.5 us in place of 5.3).
  bool advance() {
    if (blocks_ != nullptr) return advance_lanes<Kind::variable>();
    if (uses_zero_copy_) [[unlikely]]
      return advance_lanes<Kind::zero_copy>() && zero_copy_done();
    return advance_lanes<Kind::plain>();
  }
  const CallSignature& call() const noexcept {
    return blocks_ == nullptr ? bound_->program.call : blocks_->call;
  }

  /// Returns the program's own reduction that the operation uses, or null.
  const UserReduction* reduction() const noexcept {
    return extras_ == nullptr ? nullptr : extras_->user;
  }

  /// Returns, for diagnosis, the lowest rank above `above` for whose message or free slot a lane
  /// waits, or -1 if there is none.
  int awaited(int above) const;

 private:
  /// Describes the messages of one step for one piece.
  struct Load {
    std::size_t last;  ///< 1 for the last piece, else 0.
    std::uint64_t bytes;
    std::uint32_t fingerprint;
  };

  // A template argument, so that plain calls pay nothing for the other kinds.
  enum class Kind {
    plain,
    variable,   // lengths come from the table of blocks
    zero_copy,  // messages may lie in the call's buffers
  };
  template <Kind kind>
  bool run_lane(LaneState& lane);
  template <Kind kind>
  bool advance_lanes();
  template <Kind kind>
  bool try_step(LaneState& lane);
  template <Kind kind>
  Load load_of(const LaneState& lane) const;
  template <Kind kind>
  bool in_hand(LaneState& lane, const Load& load);
  template <Kind kind>
  void combine(LaneState& lane, const Load& load);
  SlotStores* choose_stores(const LaneState& lane, const Load& load, CombineArgs& args);
  bool receive(const LaneState& lane, const Program::Operand& operand, const Load& load,
               const void*& address);
  const std::byte* get(const LaneState& lane, const Program::Operand& operand, const Load& load);
  void expect(const LaneState& lane, const Program::Operand& operand, const Load& load);
  void get_others(const LaneState& lane, const Load& load);
  bool still_valid(const LaneState& lane) const;
  std::byte* acquire_zero_copy(LaneState& lane, const Program::Operand& operand, const Load& load);
  bool can_send_zero_copy(const LaneState& lane, const Program::Operand& operand,
                          const Load& load) const;
  Memory memory_at(Place place, const std::byte* data, std::size_t bytes) const;
  bool leave_out_zero_copy(const LaneState& lane, const Load& load, CombineArgs& args);
  bool choose_copies();
  const Program::Operand* timed_copy(const LaneState& lane) const;
  void record_copy(const Program::Operand& message, bool received, std::size_t bytes,
                   std::uint64_t elapsed);
  bool zero_copy_done() const noexcept;
  template <Kind kind>
  std::byte* memory_of(const LaneState& lane, const Program::Operand& operand,
                       const Load& load) const;
  template <Kind kind>
  std::byte* acquire(LaneState& lane, const Program::Operand& operand, const Load& load);
  void combine_segments(LaneState& lane, std::size_t last, CombineArgs& args);
  void combine_blocks(LaneState& lane, CombineArgs& args);
  std::uint64_t part_of(const BlockTable::Block& block, std::uint64_t piece) const noexcept {
    const std::uint64_t begin = piece * bound_->program.piece_bytes;
    return block.bytes > begin ? std::min(block.bytes - begin, bound_->program.piece_bytes) : 0;
  }
  void post(const LaneState& lane, const Load& load);
  void release(const LaneState& lane);
  void next_step(LaneState& lane);
  bool order_kept(const LaneState& lane) const noexcept;
  int awaited_by(const LaneState& lane) const;
  [[noreturn]] void refuse(int peer, const Header& found, const Load& load) const;

  HostProgram* bound_ = nullptr;
  const BlockTable* blocks_ = nullptr;     // null if all lengths are in the program
  const CombineExtras* extras_ = nullptr;  // indexed by step; null if the call needs none
  std::uint64_t pieces_ = 1;
  // All ones if messages state the length of their block, see load_of().
  std::uint32_t pair_mask_ = 0;
  // Indexed by Place: the address at which a buffer begins, and whether pieces lie one after
  // another in it (all ones) or reuse the same memory (0).
  std::array<std::byte*, 3> base_{};
  static_assert(static_cast<int>(Place::scratch) == 2 && static_cast<int>(Place::peer) == 3);
  static constexpr std::array<std::uint64_t, 3> kPieceMask{~std::uint64_t{0}, ~std::uint64_t{0}, 0};
  Header header_;
  std::optional<ZeroCopyBuffers> zero_copy_;
  // Whether messages of this call are zero-copy, or copies are timed: else it is a plain call.
  bool uses_zero_copy_ = false;
  bool expects_ = false;            // see ZeroCopyBuffers::expects()
  bool got_zero_copy_ = false;      // whether messages have arrived that lie in a peer's memory
  std::uint64_t fetched_mask_ = 0;  // ANDed with Program::Step::results
  std::uint64_t streamed_mask_ = 0;
  std::size_t unfinished_ = 0;  ///< The number of lanes that are not done.
};

}  // namespace tutti
