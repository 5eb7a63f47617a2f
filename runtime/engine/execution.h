// The engine: runs a program's lanes over channels. Never blocks, never allocates once bound.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "collectives/schedule/program.h"
#include "compute/combine.h"
#include "transport/channel.h"
#include "transport/ring.h"

namespace tutti {

class SendPort;

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
    message.header = ring_->header();
    message.data = ring_->data(message.lent);
    return message.data != nullptr || (message.away = ring_->away());
  }
  /// See RecvChannel.
  const std::byte* fetch(std::byte* to) {
    return ring_ != nullptr ? ring_->fetch(to) : channel_->fetch(to);
  }
  /// Where the large message that was peeked may be answered by `to`; null: not in its place.
  std::byte* answer_data(const SendPort& to) const;
  /// See RecvRing.
  bool still_lent() const noexcept { return ring_ == nullptr || ring_->still_lent(); }
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
  /// As acquire(), for the answer at `place`, which `from` gave out; false: full.
  bool acquire_answer(const RecvPort& from) {
    return ring_->acquire_at(from.ring_->place_for_answer());
  }
  /// As acquire(), for a large message that is sent from where it lies, its answer put at `answer`;
  /// false: the window is full.
  bool acquire_zero_copy(const Memory& message, const Extent& answer = {}) {
    if (ring_ != nullptr ? !ring_->acquire_at(origin_of(message, answer))
                         : !channel_->acquire_zero_copy(message))
      return false;
    zero_copy_ = ring_ != nullptr ? ring_->posted() + 1 : 1;
    return true;
  }
  /// The kinds of memory from which it sends without a copy.
  MemoryKinds zero_copy() const noexcept { return channel_->zero_copy(); }
  bool in_memory() const noexcept { return ring_ != nullptr; }
  /// Whether nobody reads any more what was sent from where it lies.
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
  std::uint64_t zero_copy_ = 0;  // the last such message, counted from 1; not in a ring: any
  int peer_;
};

inline std::byte* RecvPort::answer_data(const SendPort& to) const {
  return ring_ != nullptr && to.in_memory() ? ring_->answer_data() : nullptr;
}

/// A step with the kernel that does it on this machine.
struct BoundStep : Program::Step {
  CombineFunction combine;
  int element_shift;  ///< `combine` counts in 2^this bytes.
};

/// Where a lane of a program under way is.
struct LaneState {
  const BoundStep* first;
  const BoundStep* end;
  const void**
      addresses;  ///< Of the current step's operands, in hand or not: inputs, then outputs.
  const BoundStep* step = nullptr;
  std::uint64_t piece = 0;
  std::uint64_t walked = 0;  ///< Pieces.
  std::uint64_t done = 0;    ///< Steps done, over all pieces.
  std::size_t cursor = 0;    ///< Operands of the current step in hand.
  std::size_t loans = 0;     ///< Of those, messages that are lent.
};

/// A program that is bound: its ports to one communicator's channels, its steps to kernels. Holds
/// the state of its one execution at a time, too. Channels outlive it.
struct BoundProgram {
  BoundProgram(Program compiled, Transport& transport);
  BoundProgram(const BoundProgram&) = delete;
  BoundProgram& operator=(const BoundProgram&) = delete;

  const Program program;
  std::vector<BoundStep> steps;
  std::vector<SendPort> sends;
  std::vector<RecvPort> receives;
  std::vector<LaneState> lanes;
  std::vector<CombineExtras> extras;  ///< By step, with what the call under way brought; or none.
  std::vector<void*> written;         ///< By a step of a call that lends.
  std::vector<std::unique_ptr<BoundProgram>> others;  ///< The call's other stripes.

 private:
  std::vector<const void*> addresses_;
};

/// What few calls bring along.
struct CallExtras {
  const void* premultiplier = nullptr;       ///< Of a premultiplied sum: one element.
  const UserReduction* reduction = nullptr;  ///< A program's own.
};

/// The buffers of a call from which messages may be sent without a copy.
struct LentBuffers {
  Memory input, output;  ///< Without an address: messages from this buffer are copied.
  bool in_place = false;
  /// Shorter messages are copied: read where they lie they cost a way more between the cores.
  std::size_t least_bytes = 4096;

  const Memory& of(Place place) const { return place == Place::input ? input : output; }
};

/// The buffers of one call; null where the call has none.
struct CallBuffers {
  const std::byte* input = nullptr;
  std::byte* output = nullptr;
  std::byte* scratch = nullptr;
  const BlockTable* blocks = nullptr;  ///< For a variable program; outlives the execution.
  const CallExtras* extras = nullptr;  ///< Read by start(); what they point to outlives the
                                       ///< execution.
  std::optional<LentBuffers> lent = std::nullopt;
};

/// Where results are expected to be when they are written, and how that is done.
enum class ResultStores {
  cached,    ///< In a cache of this core.
  fetched,   ///< In none: their lines are fetched ahead.
  streamed,  ///< In none, and too large to stay in one: written past the caches.
};

/// Thrown by Execution::advance() when the function of a program's own reduction has thrown.
struct ReductionThrew {
  std::string what;
};

/// Thrown by Execution::advance() when a message is not the one that this operation expects.
struct MismatchedMessage {
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
  bool advance() {
    if (blocks_ != nullptr) return advance_lanes<Kind::variable>();
    if (lent_) [[unlikely]]
      return advance_lanes<Kind::lending>() && all_returned();
    return advance_lanes<Kind::plain>();
  }
  const Program& program() const noexcept { return bound_->program; }
  const CallSignature& call() const noexcept {
    return blocks_ == nullptr ? bound_->program.call : blocks_->call;
  }

  /// The program's own reduction that it does, or null.
  const UserReduction* reduction() const noexcept {
    return extras_ == nullptr ? nullptr : extras_->user;
  }

  /// Peers whose message or room a lane waits for, for diagnosis; the first of them, or -1.
  std::vector<int> waits_for() const;
  int first_awaited() const;

 private:
  /// What the messages of a step's one piece carry.
  struct Load {
    std::size_t last;  ///< 1 in the last piece, else 0.
    std::uint64_t bytes;
    std::uint32_t fingerprint;
  };

  // Known when compiled, so that plain calls pay nothing for the others.
  enum class Kind {
    plain,
    variable,  // lengths are in the table of blocks
    lending,   // some of the buffers are lent
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
  bool receive(const LaneState& lane, const Program::Operand& operand, const Load& load,
               const void*& address);
  const std::byte* fetch(const LaneState& lane, const Program::Operand& operand, const Load& load);
  bool still_lent(const LaneState& lane) const;
  std::byte* lend(LaneState& lane, const Program::Operand& operand, const Load& load);
  bool can_lend(const LaneState& lane, const Program::Operand& operand, const Load& load) const;
  Memory memory_at(Place place, const std::byte* data, std::size_t bytes) const;
  bool leave_out_lent(const LaneState& lane, const Load& load, CombineArgs& args);
  bool all_returned() const noexcept;
  template <Kind kind>
  std::byte* memory_of(const LaneState& lane, const Program::Operand& operand,
                       const Load& load) const;
  template <Kind kind>
  std::byte* acquire(LaneState& lane, const Program::Operand& operand, const Load& load);
  void combine_segments(LaneState& lane, std::size_t last, CombineArgs& args);
  void combine_blocks(LaneState& lane, CombineArgs& args);
  std::uint64_t part_of(const BlockTable::Block& block, std::uint64_t piece) const noexcept;
  void post(const LaneState& lane, const Load& load);
  void release(const LaneState& lane);
  void next_step(LaneState& lane);
  bool order_kept(const LaneState& lane) const noexcept;
  int awaited_by(const LaneState& lane) const;
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
  std::optional<LentBuffers> lent_;
  bool borrowed_ = false;           // messages that peers lend have come
  std::uint64_t fetched_mask_ = 0;  // of Program::Step::results
  std::uint64_t streamed_mask_ = 0;
  std::size_t unfinished_ = 0;  ///< Lanes that are not through.
};

}  // namespace tutti
