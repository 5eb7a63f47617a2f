// The engine: runs a program's lanes over channels. Never blocks, never allocates once bound.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "collectives/program.h"
#include "transport/channel.h"
#include "transport/ring.h"

namespace tutti {

/// One end of a channel as the engine uses it: the plain ring where there is one, else through the
/// seam.
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

 private:
  bool peek_channel(Message& message);

  RecvRing* ring_;
  RecvChannel* channel_;
  int peer_;
};

/// A program with its ports resolved for one communicator. Channels outlive it.
struct BoundProgram {
  BoundProgram(Program compiled, Transport& transport);

  const Program program;
  std::vector<SendPort> sends;
  std::vector<RecvPort> receives;
};

/// The buffers of one call; null where the call has none.
struct CallBuffers {
  const std::byte* input = nullptr;
  std::byte* output = nullptr;
  std::byte* scratch = nullptr;
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
  /// `bound` outlives the execution. `stream`: the result is too large for the caches and is not an
  /// input: write it past them.
  void start(BoundProgram& bound, const CallBuffers& buffers, std::uint32_t operation, bool stream);

  /// Does what can be done now. Lanes are tried from the last to the first, a step each, so that
  /// what is nearest to completion frees its slots first (256 MiB: 35 to 31 ms in a prototype).
  /// True once all lanes are through.
  bool advance() {
    if (lanes_.size() == 1) return run_lane(lanes_[0]);
    return advance_lanes();
  }

  bool done() const noexcept { return unfinished_ == 0; }
  const Program& program() const noexcept { return bound_->program; }

  /// Peers whose message or room a lane waits for, for diagnosis.
  std::vector<int> waits_for() const;

 private:
  struct LaneState {
    const Program::Step* first;
    const Program::Step* step;  ///< The current one.
    const Program::Step* end;
    std::uint64_t piece;
    std::uint64_t done;  ///< Steps done, over all pieces.
    std::size_t cursor;  ///< Operands of the current step in hand.
    const void**
        in;  ///< Addresses of the operands in hand; the outputs' stand right behind the inputs'.
  };

  bool run_lane(LaneState& lane);
  bool advance_lanes();
  bool try_step(LaneState& lane);
  bool in_hand(LaneState& lane, int last);
  void combine(LaneState& lane, int last);
  void hand_over(LaneState& lane, int last);
  void next_step(LaneState& lane);
  void check(const RecvPort& port, const Header& found, std::uint64_t bytes) const;
  bool skipped(const LaneState& lane, int last) const noexcept {
    return lane.step->bytes[last] == 0 && lane.piece > 0;
  }
  bool order_kept(const LaneState& lane) const noexcept;

  BoundProgram* bound_ = nullptr;
  CallBuffers buffers_;
  Header header_;
  bool stream_ = false;
  std::size_t unfinished_ = 0;  ///< Lanes that are not through.
  std::vector<LaneState> lanes_;
  std::vector<const void*> addresses_;
};

}  // namespace tutti
