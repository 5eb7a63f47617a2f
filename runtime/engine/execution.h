// The engine, which runs the lanes of a program over channels. It never blocks, and allocates
// nothing once a program is bound.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "runtime/engine/engine.h"
#include "runtime/engine/host_program.h"

namespace tutti {

/// Says where the memory of results is expected to be when it is written, and so how it is written.
enum class ResultStores {
  cached,   ///< In a cache of this core, to which results are written as usual.
  fetched,  ///< In no cache, so that the cache lines are prefetched.
  /// In no cache, and too large to stay in one, so that results are written past the caches.
  streamed,
};

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
    if (!uses_zero_copy_) [[likely]] {
      if (advance_lanes<Kind::plain>()) return true;
      // A message has just shown the difference. It must be taken at once: nothing wakes this rank
      // for it once more.
      if (!uses_zero_copy_) return false;
    }
    if (!advance_lanes<Kind::zero_copy>() || !zero_copy_done()) return false;
    if (!bound_->sent_bytes.empty())
      for (SendPort& port : bound_->sends) port.set_copy_class(0);
    return true;
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
  bool kernel_reads_buffers();
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
  ReadableMemory readable_input_, readable_output_;
  // Whether messages of this call are zero-copy, or copies are timed: else it is a plain call.
  bool uses_zero_copy_ = false;
  bool expects_ = false;            // see ZeroCopyBuffers::expects()
  bool got_zero_copy_ = false;      // whether messages have arrived that lie in a peer's memory
  std::uint64_t fetched_mask_ = 0;  // ANDed with Program::Step::results
  std::uint64_t streamed_mask_ = 0;
  std::size_t unfinished_ = 0;  ///< The number of lanes that are not done.
};

}  // namespace tutti
