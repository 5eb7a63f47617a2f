// A block walks a lane of a program. It does what Execution does on the host (execution.h), for
// plain and variable programs. All threads of the block know where it is; what one thread does for
// an operand, others see behind the next barrier.
#pragma once

#include "compute/cuda/combine.cuh"
#include "runtime/engine/device/block.cuh"
#include "runtime/engine/device/kernels.h"
#include "runtime/engine/device/records.h"
#include "runtime/engine/device/ring_ends.cuh"
#include "runtime/engine/device/shared.cuh"
#include "runtime/engine/device/words.cuh"

namespace tutti::device {

/// `Element` is the type on which the program's reductions compute.
template <class Element>
class Walk {
 public:
  __device__ Walk(const CallRecord& call, Shared& shared) : call_(call), shared_(shared) {}

  /// Returns whether the lane is done, and was not when this launch began.
  __device__ bool run() {
    if (own_thread() == 0) begin();
    __syncthreads();
    if (call_.attempt != 0 && shared_.at >= shared_.steps) return false;
    while (shared_.at < shared_.steps) {
      const bool done = try_step();
      __syncthreads();  // the ends of rings are as this step has left them
      if (!done) {
        if (own_thread() == 0) give_up();
        return false;
      }
      if (own_thread() == 0) next_step();
      __syncthreads();
    }
    if (own_thread() == 0) {
      save();
      store_release_system(&call_.awaited[blockIdx.x], -1);
    }
    return true;
  }

 private:
  static constexpr std::uint64_t kDoneMask = (std::uint64_t{1} << kProgressBits) - 1;

  // Takes up the lane at its first step, or where an earlier launch has left it.
  __device__ void begin() {
    const ProgramRecord& program = shared_.program = call_.stripes[blockIdx.x / call_.lanes];
    shared_.lane = blockIdx.x % call_.lanes;
    const Program::Lane lane = program.lanes[shared_.lane];
    shared_.first_step = lane.first_step;
    shared_.steps = lane.steps;
    if (call_.attempt == 0) {
      shared_.piece = program.head.stripe.number;
      shared_.walked = 0;
      shared_.at = shared_.piece < call_.pieces ? 0 : shared_.steps;
    } else {
      const LaneState& state = program.states[shared_.lane];
      shared_.piece = state.piece;
      shared_.walked = state.walked;
      shared_.at = state.step;
    }
    if (shared_.at < shared_.steps) take_step();
  }

  __device__ void save() const {
    LaneState& state = shared_.program.states[shared_.lane];
    state.piece = shared_.piece;
    state.walked = shared_.walked;
    state.step = shared_.at;
  }

  __device__ void give_up() const {
    save();
    std::int32_t peer = -1;
    if (shared_.missing >= Shared::kFirst) {
      const std::uint32_t k = shared_.missing - Shared::kFirst;
      const std::uint32_t port = operand(k).port;
      peer = k < shared_.step.inputs ? shared_.program.receives[port]->peer
                                     : shared_.program.sends[port]->peer;
    }
    store_release_system(&call_.awaited[blockIdx.x], peer);
  }

  __device__ void next_step() {
    if (++shared_.at >= shared_.steps) {
      ++shared_.walked;
      shared_.piece += shared_.program.head.stripe.of;
      if (shared_.piece >= call_.pieces) return;
      shared_.at = 0;
    }
    take_step();
  }

  __device__ void take_step() {
    const ProgramRecord& program = shared_.program;
    const std::uint32_t number = shared_.first_step + shared_.at;
    const Program::Step& step = shared_.step = program.steps[number];
    shared_.load = load_of(step);
    BlockOperands& operands = shared_.operands;
    operands.in = shared_.addresses;
    operands.out = shared_.addresses + step.inputs;
    operands.inputs = step.inputs;
    operands.outputs = step.outputs;
    operands.divide_by = step.divide_by;
    const Program::Masks masks =
        program.masks == nullptr ? Program::Masks() : program.masks[number];
    operands.premultiplied_inputs = masks.premultiplied_inputs;
    operands.f32_inputs = masks.f32_inputs;
    operands.f32_outputs = masks.f32_outputs;
    operands.premultiplier = call_.premultiplier;
  }

  __device__ const Program::Operand& operand(std::uint32_t k) const {
    return shared_.program.operands[shared_.step.first_operand + k];
  }

  __device__ std::uint64_t part_of(const BlockTable::Block& block) const {
    const std::uint64_t most = shared_.program.head.piece_bytes, begin = shared_.piece * most;
    if (block.bytes <= begin) return 0;
    return block.bytes - begin < most ? block.bytes - begin : most;
  }

  __device__ Load load_of(const Program::Step& step) const {
    Load load{0, false, 0, {call_.operation, call_.fingerprint, 0, 0}};
    if (call_.table == nullptr) {
      load.last = shared_.piece + 1 == call_.pieces ? 1 : 0;
      load.bytes = step.bytes[load.last];
    } else {
      const BlockTable::Block* const blocks = call_.table + step.first_block;
#pragma unroll 1
      for (std::uint32_t segment = 0; segment < step.segments; ++segment)
        load.bytes += part_of(blocks[segment]);
      load.bytes <<= shared_.program.head.widening;
      load.header.fingerprint += static_cast<std::uint32_t>(blocks->bytes) & call_.pair_mask;
    }
    load.header.length = static_cast<std::uint32_t>(load.bytes);
    load.moves = load.bytes > 0 || shared_.piece == 0;
    return load;
  }

  // Returns false if something is missing and the block ends.
  __device__ bool try_step() {
    if (own_thread() + 1 == all_threads()) await_order();
    if (shared_.load.moves) await_operands();
    __syncthreads();
    if (shared_.missing != Shared::kNothing) return false;
    combine();
    __syncthreads();
    if (shared_.load.moves) post_and_release();
    if (own_thread() == 0) {
      const std::uint64_t done = shared_.walked * shared_.steps + shared_.at + 1;
      store_release_gpu(&shared_.program.states[shared_.lane].progress,
                        call_.run << kProgressBits | done);
    }
    return true;
  }

  // Looks until `found` says that it has what it looks for; writes down `number` if it never does.
  template <class Found>
  __device__ bool look_for(std::uint32_t number, Found found) {
    for (std::uint32_t looks = 0;;) {
      // It orders nothing: a block that sees it ends and touches nothing more.
      const std::uint64_t aborted = load_relaxed_system(&call_.control->aborted);
      if (found()) return true;
      if (aborted == 0 && ++looks < call_.patience) continue;
      lower_shared(&shared_.missing, aborted != 0 ? Shared::kEnd : number);
      return false;
    }
  }

  __device__ void await_order() {
    const After after = shared_.step.after;
    const auto back = static_cast<std::uint64_t>(after.pieces_back);
    if (after.lane < 0 || shared_.walked < back) return;
    const std::uint64_t steps = shared_.program.lanes[after.lane].steps;
    const std::uint64_t step =
        (shared_.walked - back) * steps + static_cast<std::uint64_t>(after.step);
    const std::uint64_t* const progress = &shared_.program.states[after.lane].progress;
    look_for(Shared::kOrder, [&] {
      const std::uint64_t seen = load_acquire_gpu(progress);
      return (seen & ~kDoneMask) == call_.run << kProgressBits && (seen & kDoneMask) > step;
    });
  }

  __device__ void await_operands() {
    const std::uint32_t inputs = shared_.step.inputs, all = inputs + shared_.step.outputs;
    const Load& load = shared_.load;
#pragma unroll 1
    for (std::uint32_t k = own_thread(); k < all; k += all_threads()) {
      const Program::Operand& one = operand(k);
      if (one.place != Place::peer)
        shared_.addresses[k] = memory_of(one);
      else if (k < inputs ? !await_message(k, *shared_.program.receives[one.port], load.header)
                          : !await_room(k, *shared_.program.sends[one.port], load.header.length))
        return;
    }
  }

  __device__ bool await_message(std::uint32_t k, RecvEnd& end, const Header& expected) {
    return look_for(Shared::kFirst + k, [&] {
      const RingLine* const line = arrived(end);
      if (line == nullptr) return false;
      const Header found = line->header;
      if (found.operation != expected.operation || found.fingerprint != expected.fingerprint ||
          found.length != expected.length)
        refuse(end.peer, expected, found);
      shared_.addresses[k] = const_cast<std::byte*>(payload_of(end, *line, expected.length));
      return true;
    });
  }
  __device__ bool await_room(std::uint32_t k, SendEnd& end, std::uint32_t bytes) {
    return look_for(Shared::kFirst + k, [&] {
      std::byte* const room = room_for(end, bytes);
      shared_.addresses[k] = room;
      return room != nullptr;
    });
  }

  __device__ void refuse(std::int32_t peer, const Header& expected, const Header& found) {
    lower_shared(&shared_.missing, Shared::kEnd);
    if (!claim_gpu(&call_.counts->claimed)) return;
    Control& control = *call_.control;
    control.mismatched_peer = peer;
    control.expected = expected;
    control.found = found;
    store_release_system(&control.mismatched, call_.ticket);
  }

  // Returns the address of the step's chunks in a buffer of this rank. Inputs are only read.
  __device__ std::byte* memory_of(const Program::Operand& operand) const {
    const ProgramHead& head = shared_.program.head;
    std::uint64_t offset = operand.offset[shared_.load.last];
    if (operand.place == Place::scratch)
      return call_.scratch + head.stripe.number * head.scratch_bytes + offset;
    if (call_.table != nullptr) offset = call_.table[offset].offset;
    return (operand.place == Place::input ? const_cast<std::byte*>(call_.input) : call_.output) +
           (shared_.piece * head.piece_bytes + offset);
  }

  // Computes the step, one segment after another where its chunks do not lie next to each other.
  __device__ void combine() {
    std::uint64_t left = shared_.load.bytes;
#pragma unroll 1
    for (std::uint32_t segment = 0; left > 0; ++segment) {
      const std::uint64_t bytes = segment_bytes(segment, left);
      combine(bytes);
      left -= bytes;
      if (left == 0) return;
      __syncthreads();
      advance(segment, bytes);
      __syncthreads();
    }
  }

  __device__ std::uint64_t segment_bytes(std::uint32_t segment, std::uint64_t left) const {
    const ProgramHead& head = shared_.program.head;
    if (call_.table != nullptr)
      return part_of(call_.table[shared_.step.first_block + segment]) << head.widening;
    const std::uint64_t most = head.chunk_bytes[shared_.load.last];
    return shared_.step.segments > 1 && left > most ? most : left;
  }

  __device__ void combine(std::uint64_t bytes) const {
    if (bytes == 0) return;
    const Program::Kernel kernel = shared_.step.kernel;
    if (kernel.fold == Program::Fold::copy) return copy_bytes(shared_.operands, bytes);
    if constexpr (kComputes<Element>) {
      const std::uint64_t count =
          (bytes >> shared_.program.head.widening) / sizeof(typename Element::Stored);
      if constexpr (kRounds<Element>)
        if (kernel.fold == Program::Fold::fixed_point)
          return fixed_point_sum<Element>(shared_.operands, count);
      reduce<Element>(shared_.operands, count, kernel.op);
    }
  }

  // Moves the operands' addresses to the next segment.
  __device__ void advance(std::uint32_t segment, std::uint64_t bytes) {
    const ProgramHead& head = shared_.program.head;
    const std::uint32_t all = shared_.step.inputs + shared_.step.outputs;
#pragma unroll 1
    for (std::uint32_t k = own_thread(); k < all; k += all_threads()) {
      const Program::Operand& one = operand(k);
      std::uint64_t stride = head.segment_stride[shared_.load.last];
      if (one.place == Place::peer) {
        stride = bytes;
      } else if (one.place == Place::scratch) {
        stride = head.scratch_stride;
      } else if (call_.table != nullptr) {
        const BlockTable::Block* const block = call_.table + one.offset[0] + segment;
        stride = block[1].offset - block[0].offset;  // modulo 2^64: blocks lie in any order
      }
      shared_.addresses[k] += stride;
    }
  }

  __device__ void post_and_release() const {
    const std::uint32_t inputs = shared_.step.inputs, all = inputs + shared_.step.outputs;
    const Header header = shared_.load.header;
#pragma unroll 1
    for (std::uint32_t k = own_thread(); k < all; k += all_threads()) {
      const Program::Operand& one = operand(k);
      if (one.place != Place::peer) continue;
      if (k < inputs)
        release(*shared_.program.receives[one.port], header.length);
      else
        post(*shared_.program.sends[one.port], header);
    }
  }

  const CallRecord& call_;
  Shared& shared_;
};

/// The body of every kernel.
template <class Element>
__device__ void walk(const CallRecord& call) {
  __shared__ SharedStorage storage;
  Shared& shared = storage.shared;
  if (own_thread() == 0) shared.missing = enter(call) ? Shared::kNothing : Shared::kEnd;
  __syncthreads();
  if (shared.missing == Shared::kEnd) return;
  const bool finished = Walk<Element>(call, shared).run();
  __syncthreads();
  if (own_thread() == 0) leave(call, finished);
}

}  // namespace tutti::device
