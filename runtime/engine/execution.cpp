#include "runtime/engine/execution.h"

#include <algorithm>
#include <cassert>

#include "common/ticks.h"

namespace tutti {

namespace {

// The cache lines of messages of at least this size are prefetched before they are written, from
// the core that read them last. Between two ranks an all_gather of 1 MiB takes 65 us with it and 73
// us without, a broadcast 55 and 58. For shorter messages the misses of the reader cost more: an
// all_gather of 4 KiB takes 0.83 us with it and 0.75 us without.
constexpr std::size_t kFetchedMessageBytes = 16u << 10;

std::uint64_t pieces_of(const Program& program, const BlockTable& table) {
  std::uint64_t longest = 0;
  for (const BlockTable::Block& block : table.blocks) longest = std::max(longest, block.bytes);
  return std::max<std::uint64_t>(1, (longest + program.piece_bytes - 1) / program.piece_bytes);
}

}  // namespace

void Execution::start(HostProgram& bound, const CallBuffers& buffers, std::uint32_t operation,
                      ResultStores stores) {
  bound_ = &bound;
  // Inputs are only read, see combine().
  base_ = {const_cast<std::byte*>(buffers.input), buffers.output, buffers.scratch};
  assert(bound.program.variable == (buffers.blocks != nullptr));
  blocks_ = buffers.blocks;
  zero_copy_ = buffers.zero_copy;
  expects_ = zero_copy_ && zero_copy_->expects();
  uses_zero_copy_ = zero_copy_ && (choose_copies() || expects_);
  got_zero_copy_ = false;
  pieces_ = blocks_ == nullptr ? bound.program.pieces : pieces_of(bound.program, *blocks_);
  header_ = {operation, blocks_ == nullptr ? bound.program.fingerprint : blocks_->fingerprint, 0,
             0};
  pair_mask_ = call().lengths == kPairLengths ? ~std::uint32_t{0} : 0;
  fetched_mask_ = stores == ResultStores::fetched ? ~std::uint64_t{0} : 0;
  streamed_mask_ = stores == ResultStores::streamed ? ~std::uint64_t{0} : 0;
  for (CombineExtras& extras : bound.extras) {
    extras.premultiply = buffers.extras->premultiplier;
    extras.user = buffers.extras->reduction;
  }
  extras_ = bound.extras.empty() ? nullptr : bound.extras.data();
  unfinished_ = bound.lanes.size();
  for (LaneState& lane : bound.lanes) {
    lane.step = lane.first;
    lane.piece = bound.program.stripe.number;
    lane.walked = lane.done = lane.cursor = lane.zero_copies = 0;
    if (lane.piece >= pieces_) lane.step = lane.end;
    if (lane.step == lane.end) --unfinished_;
  }
}

inline bool Execution::order_kept(const LaneState& lane) const noexcept {
  const After& after = lane.step->after;
  if (after.lane < 0) [[likely]]
    return true;
  const auto back = static_cast<std::uint64_t>(after.pieces_back);
  if (lane.walked < back) return true;
  const LaneState& other = bound_->lanes[static_cast<std::size_t>(after.lane)];
  const auto steps = static_cast<std::uint64_t>(other.end - other.first);
  return other.done > (lane.walked - back) * steps + static_cast<std::uint64_t>(after.step);
}

// Stores the address of the operand's message in `address`; returns false if the message has not
// arrived.
inline bool Execution::receive(const LaneState& lane, const Program::Operand& operand,
                               const Load& load, const void*& address) {
  RecvPort& port = bound_->receives[operand.port];
  Message found;
  if (!port.peek(found)) {
    if (expects_) [[unlikely]]
      expect(lane, operand, load);
    return false;
  }
  const Header& header = found.header;
  if (header.operation != header_.operation || header.fingerprint != load.fingerprint ||
      header.length != load.bytes) [[unlikely]]
    refuse(port.peer(), header, load);
  if (zero_copy_ && !uses_zero_copy_ && (found.zero_copy || port.is_timed())) [[unlikely]] {
    uses_zero_copy_ = true;  // advance() goes on
    return false;
  }
  if (found.zero_copy) [[unlikely]]
    got_zero_copy_ = true;
  address = found.data;
  if (!found.remote) [[likely]]
    return true;
  address = get(lane, operand, load);
  return address != nullptr;
}

// Returns the address of the step's chunks in a buffer of this rank.
template <Execution::Kind kind>
inline std::byte* Execution::memory_of(const LaneState& lane, const Program::Operand& operand,
                                       const Load& load) const {
  const auto place = static_cast<std::size_t>(operand.place);
  const std::uint64_t piece = lane.piece * bound_->program.piece_bytes & kPieceMask[place];
  std::uint64_t offset = operand.offset[load.last];
  if (kind == Kind::variable && operand.place != Place::scratch)
    offset = blocks_->blocks[offset].offset;
  return base_[place] + (piece + offset);
}

// Returns the memory of the message that the operand stands for, or null if there is no room yet.
template <Execution::Kind kind>
inline std::byte* Execution::acquire(LaneState& lane, const Program::Operand& operand,
                                     const Load& load) {
  SendPort& port = bound_->sends[operand.port];
  if (load.bytes <= kInlineBytes) return port.acquire(load.bytes);
  if (operand.partner != Program::kNone) {
    const std::size_t message = lane.step->first_operand + operand.partner;
    const RecvPort& from = bound_->receives[bound_->program.operands[message].port];
    if (std::byte* const place = from.answer_data(port))
      return port.acquire_answer(from) ? place : nullptr;
  }
  if constexpr (kind == Kind::zero_copy)
    if (can_send_zero_copy(lane, operand, load)) return acquire_zero_copy(lane, operand, load);
  return port.acquire(load.bytes);
}

// Peeks every message and acquires every slot that the step needs; returns false if some are
// missing.
template <Execution::Kind kind>
inline bool Execution::in_hand(LaneState& lane, const Load& load) {
  const Program::Step& step = *lane.step;
  const Program::Operand* operands = bound_->program.operands.data() + step.first_operand;
  const std::size_t all = std::size_t{step.inputs} + step.outputs;
  for (; lane.cursor < all; ++lane.cursor) {
    const Program::Operand& operand = operands[lane.cursor];
    const void*& address = lane.addresses[lane.cursor];
    if (operand.place != Place::peer) {
      address = memory_of<kind>(lane, operand, load);
    } else if (lane.cursor < step.inputs) {
      if (!receive(lane, operand, load, address)) {
        if (kind == Kind::zero_copy && expects_) get_others(lane, load);
        return false;
      }
    } else {
      address = acquire<kind>(lane, operand, load);
      if (address == nullptr) return false;
    }
  }
  return true;
}

template <Execution::Kind kind>
inline void Execution::combine(LaneState& lane, const Load& load) {
  const BoundStep& step = *lane.step;
  // The outputs' addresses are writable by construction: only inputs come from const memory.
  CombineArgs args;
  args.in = lane.addresses;
  args.inputs = step.inputs;
  args.out = const_cast<void* const*>(lane.addresses + step.inputs);
  args.outputs = step.outputs;
  args.count = load.bytes >> step.element_shift;
  args.divide_by = step.divide_by;
  args.fetch_outputs = step.results & fetched_mask_;
  if (load.bytes >= kFetchedMessageBytes) args.fetch_outputs |= ~step.results;
  args.stream_outputs = step.results & streamed_mask_;
  SlotStores* timed = nullptr;
  if ((kind != Kind::zero_copy || lane.zero_copies == 0) && step.posts > 0 &&
      load.bytes >= SlotStores::kLeastBytes)
    timed = choose_stores(lane, load, args);
  if (extras_ != nullptr) [[unlikely]]
    args.extras = extras_ + (lane.step - bound_->steps.data());
  if (kind == Kind::zero_copy && step.segments == 1 &&
      (lane.zero_copies > 0 || got_zero_copy_ || expects_) &&
      !leave_out_zero_copy(lane, load, args))
    return;
  if (step.segments > 1)
    return kind == Kind::variable ? combine_blocks(lane, args)
                                  : combine_segments(lane, load.last, args);
  if (args.count == 0) return;
  const Program::Operand* const message =
      kind == Kind::zero_copy && bound_->only_moves ? timed_copy(lane) : nullptr;
  const std::uint64_t begin = timed != nullptr || message != nullptr ? ticks() : 0;
  step.combine(args);
  if (timed != nullptr) [[unlikely]]
    timed->record_since(begin, std::size_t{step.inputs} + step.outputs, load.bytes);
  if (message != nullptr) record_copy(*message, step.receives > 0, load.bytes, ticks() - begin);
}

inline void Execution::post(const LaneState& lane, const Load& load) {
  const Program::Step& step = *lane.step;
  if (step.posts == 0) return;
  const Program::Operand* operands = bound_->program.operands.data() + step.first_operand;
  Header header = header_;
  header.fingerprint = load.fingerprint;
  header.length = static_cast<std::uint32_t>(load.bytes);
  for (std::size_t k = step.inputs; k < std::size_t{step.inputs} + step.outputs; ++k)
    if (operands[k].place == Place::peer) bound_->sends[operands[k].port].post(header);
}

inline void Execution::release(const LaneState& lane) {
  const Program::Step& step = *lane.step;
  if (step.receives == 0) return;
  const Program::Operand* operands = bound_->program.operands.data() + step.first_operand;
  for (std::size_t k = 0; k < step.inputs; ++k) {
    if (operands[k].place != Place::peer) continue;
    RecvPort& port = bound_->receives[operands[k].port];
    const std::uint32_t answer = operands[k].partner;
    if (answer != Program::kNone && lane.addresses[answer] == lane.addresses[k])
      port.release_answered();
    else
      port.release();
  }
}

inline void Execution::next_step(LaneState& lane) {
  lane.cursor = lane.zero_copies = 0;
  ++lane.done;
  if (++lane.step != lane.end) return;
  ++lane.walked;
  if ((lane.piece += bound_->program.stripe.of) < pieces_)
    lane.step = lane.first;
  else
    --unfinished_;
}

// If only the two ends of a block know its length, the fingerprint of each message has the whole
// length added to it. If the two do not agree, the first message shows it, and by how much they
// differ.
template <Execution::Kind kind>
inline Execution::Load Execution::load_of(const LaneState& lane) const {
  if constexpr (kind == Kind::variable) {
    const BlockTable::Block* block = blocks_->blocks.data() + lane.step->first_block;
    std::uint64_t bytes = 0;
    for (std::uint32_t segment = 0; segment < lane.step->segments; ++segment)
      bytes += part_of(block[segment], lane.piece);
    return {0, bytes << bound_->program.widening,
            header_.fingerprint + (static_cast<std::uint32_t>(block->bytes) & pair_mask_)};
  } else {
    const std::size_t last = lane.piece + 1 == pieces_ ? 1 : 0;
    return {last, lane.step->bytes[last], header_.fingerprint};
  }
}

template <Execution::Kind kind>
inline bool Execution::try_step(LaneState& lane) {
  if (!order_kept(lane)) return false;
  const Load load = load_of<kind>(lane);
  // Both sides skip an empty piece, unless it is the first.
  if (load.bytes > 0 || lane.piece == 0) {
    if (!in_hand<kind>(lane, load)) return false;
    const Program::Step& step = *lane.step;
    const bool ahead =
        kind == Kind::zero_copy && step.receives == 0 && lane.zero_copies == step.posts;
    if (ahead) post(lane, load);  // so that peers read while this rank copies
    combine<kind>(lane, load);
    if (got_zero_copy_ && !still_valid(lane)) [[unlikely]]
      return false;  // the peer has failed; its status page will say so
    if (!ahead) post(lane, load);
    release(lane);
  }
  next_step(lane);
  return true;
}

template <Execution::Kind kind>
bool Execution::run_lane(LaneState& lane) {
  while (lane.step != lane.end)
    if (!try_step<kind>(lane)) return false;
  return true;
}

template <Execution::Kind kind>
bool Execution::advance_lanes() {
  std::vector<LaneState>& lanes = bound_->lanes;
  if (lanes.size() == 1) return run_lane<kind>(lanes[0]);
  for (bool moved = true; moved && unfinished_ > 0;) {
    moved = false;
    for (LaneState& lane : lanes)
      if (lane.step != lane.end && try_step<kind>(lane)) moved = true;
  }
  return unfinished_ == 0;
}

template std::byte* Execution::memory_of<Execution::Kind::zero_copy>(const LaneState&,
                                                                     const Program::Operand&,
                                                                     const Load&) const;
template bool Execution::advance_lanes<Execution::Kind::plain>();
template bool Execution::advance_lanes<Execution::Kind::variable>();
template bool Execution::advance_lanes<Execution::Kind::zero_copy>();

void Execution::refuse(int peer, const Header& found, const Load& load) const {
  Header expected = header_;
  expected.fingerprint = load.fingerprint;
  expected.length = static_cast<std::uint32_t>(load.bytes);
  throw MismatchedMessage{peer, expected, found};
}

// Returns the peer for which the lane waits, or -1 if there is none.
int Execution::awaited_by(const LaneState& lane) const {
  if (lane.step == lane.end || !order_kept(lane)) return -1;
  const std::size_t all = std::size_t{lane.step->inputs} + lane.step->outputs;
  if (lane.cursor >= all) return -1;
  const Program::Operand& operand =
      bound_->program.operands[lane.step->first_operand + lane.cursor];
  if (operand.place != Place::peer) return -1;
  return lane.cursor < lane.step->inputs ? bound_->receives[operand.port].peer()
                                         : bound_->sends[operand.port].peer();
}

int Execution::awaited(int above) const {
  int lowest = -1;
  const auto note = [&](int peer) {
    if (peer > above && (lowest < 0 || peer < lowest)) lowest = peer;
  };
  for (const LaneState& lane : bound_->lanes) note(awaited_by(lane));
  if (unfinished_ == 0 && zero_copy_)
    for (const SendPort& port : bound_->sends)
      if (!port.zero_copy_done()) note(port.peer());
  return lowest;
}

}  // namespace tutti
