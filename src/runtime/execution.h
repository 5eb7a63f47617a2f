// The engine: runs a program's lanes over channels. Never blocks, never allocates once bound.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "collectives/program.h"
#include "transport/channel.h"
#include "transport/ring.h"

namespace tutti {

/// One end of a channel as the engine uses it: the plain ring where there is one, else through the
/// seam.
class RecvPort {
 public:
  RecvPort(int peer, RecvChannel& channel)
      : ring_(channel.ring()), channel_(&channel), peer_(peer) {}

  int peer() const noexcept { return peer_; }
  bool peek(Message& message) {
    if (ring_ == nullptr) return peek_channel(message);
    if (!ring_->peek()) return false;
    message = {ring_->data(), ring_->header()};
    return true;
  }
  void release() {
    if (ring_ != nullptr)
      ring_->release();
    else
      channel_->release();
  }
  /// As release(), when the message lies under an answer that was posted.
  void release_answered() { ring_->release_answered(); }

 private:
  friend class SendPort;
  bool answerable() const noexcept { return ring_ != nullptr && ring_->answerable(); }
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
  /// As acquire(), for the answer to the large message that `from` has peeked: its own memory where
  /// both are rings.
  std::byte* acquire_answer(const RecvPort& from, std::size_t bytes) {
    if (ring_ == nullptr || !from.answerable()) return acquire(bytes);
    return ring_->acquire_answer(from.ring_->place_for_answer())
               ? const_cast<std::byte*>(from.ring_->data())
               : nullptr;
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
  int peer_;
};

/// Where a lane of a program under way is.
struct LaneState {
  const Program::Step* first;
  const Program::Step* end;
  const void**
      addresses;  ///< Of the current step's operands, in hand or not: inputs, then outputs.
  const Program::Step* step = nullptr;
  std::uint64_t piece = 0;
  std::uint64_t done = 0;  ///< Steps done, over all pieces.
  std::size_t cursor = 0;  ///< Operands of the current step in hand.
};

/// A program with its ports resolved for one communicator, and the state of its one execution at a
/// time. Channels outlive it.
struct BoundProgram {
  BoundProgram(Program compiled, Transport& transport);
  BoundProgram(const BoundProgram&) = delete;
  BoundProgram& operator=(const BoundProgram&) = delete;

  const Program program;
  std::vector<SendPort> sends;
  std::vector<RecvPort> receives;
  std::vector<LaneState> lanes;
  std::vector<CombineExtras> extras;  ///< The program's, with what the call under way brought.

 private:
  std::vector<const void*> addresses_;
};

/// What few calls bring along.
struct CallExtras {
  const void* premultiplier = nullptr;       ///< Of a premultiplied sum: one element.
  const UserReduction* reduction = nullptr;  ///< A program's own.
};

/// The buffers of one call; null where the call has none.
struct CallBuffers {
  const std::byte* input = nullptr;
  std::byte* output = nullptr;
  std::byte* scratch = nullptr;
  const BlockTable* blocks = nullptr;  ///< For a variable program; outlives the execution.
  const CallExtras* extras = nullptr;  ///< Read by start(); what they point to outlives the
                                       ///< execution.
};

/// Where results are expected to be when they are written, and how that is done.
enum class ResultStores {
  cached,    ///< In a cache of this core.
  fetched,   ///< In none: their lines are fetched ahead.
  streamed,  ///< In none, and too large to stay in one: written past the caches.
};

/// Thrown by Execution::advance() when a message is not the one that this operation expects.
struct UnexpectedMessage {
  int peer;
  Header expected;
  Header found;
};

/// One operation under way. One thread at a time (whoever owns the communicator's engine).
///
/// Invariants: a lane's cursor counts the operands of its current step that are in hand (peeked or
/// acquired); they stay in hand from one advance() to the next. Messages are posted and released
/// only when the whole step is done.
class Execution {
 public:
  /// `bound` outlives the execution.
  void start(BoundProgram& bound, const CallBuffers& buffers, std::uint32_t operation,
             ResultStores stores);

  /// Does what can be done now. Lanes are tried from the first to the last, a step each: what peers
  /// wait for goes out before what has come in is worked on, else one rank reduces while the other
  /// waits for its message (64 KiB: 9.5 to 5.3 us). True once all lanes are through.
  bool advance() { return blocks_ == nullptr ? advance_lanes<false>() : advance_lanes<true>(); }

  bool done() const noexcept { return unfinished_ == 0; }
  const Program& program() const noexcept { return bound_->program; }
  const CallSignature& call() const noexcept {
    return blocks_ == nullptr ? bound_->program.call : blocks_->call;
  }

  /// The program's own reduction that it does, or null.
  const UserReduction* reduction() const noexcept {
    return extras_ == nullptr ? nullptr : extras_->user;
  }

  /// Peers whose message or room a lane waits for, for diagnosis.
  std::vector<int> waits_for() const;

 private:
  /// What the messages of a step's one piece carry.
  struct Load {
    std::size_t last;  ///< 1 in the last piece, else 0.
    std::uint64_t bytes;
    std::uint32_t fingerprint;
  };

  // `variable`: lengths are in the table of blocks. Known when compiled, so that calls without pay
  // nothing for it.
  template <bool variable>
  bool run_lane(LaneState& lane);
  template <bool variable>
  bool advance_lanes();
  template <bool variable>
  bool try_step(LaneState& lane);
  template <bool variable>
  Load load_of(const LaneState& lane) const;
  template <bool variable>
  bool in_hand(LaneState& lane, const Load& load);
  template <bool variable>
  void combine(LaneState& lane, const Load& load);
  bool receive(const Program::Operand& operand, const Load& load, const void*& address);
  std::byte* acquire(const LaneState& lane, const Program::Operand& operand, std::uint64_t bytes);
  void combine_segments(LaneState& lane, std::size_t last, CombineArgs& args);
  void combine_blocks(LaneState& lane, CombineArgs& args);
  std::uint64_t part_of(const BlockTable::Block& block, std::uint64_t piece) const noexcept;
  void hand_over(const LaneState& lane, const Load& load);
  void next_step(LaneState& lane);
  bool order_kept(const LaneState& lane) const noexcept;
  [[noreturn]] void refuse(int peer, const Header& found, const Load& load) const;

  BoundProgram* bound_ = nullptr;
  const BlockTable* blocks_ = nullptr;     // null: all lengths are the program's
  const CombineExtras* extras_ = nullptr;  // by step; null: the call needs none
  std::uint64_t pieces_ = 1;
  std::uint32_t pair_mask_ = 0;  // all ones: messages say their block's length, see load_of()
  // By Place: where a buffer begins, and whether pieces follow each other in it (all ones) or reuse
  // it (0).
  std::array<std::byte*, 3> base_{};
  static constexpr std::array<std::uint64_t, 3> kPieceMask{~std::uint64_t{0}, ~std::uint64_t{0}, 0};
  Header header_;
  std::uint64_t fetched_mask_ = 0;  // of Program::Step::results
  std::uint64_t streamed_mask_ = 0;
  std::size_t unfinished_ = 0;  ///< Lanes that are not through.
};

}  // namespace tutti
