#include "runtime/execution.h"

#include <algorithm>
#include <cassert>

namespace tutti {

bool RecvPort::peek_channel(Message& message) {
  ring_ = channel_->ring();  // a ring may be attached after the port was bound
  if (ring_ != nullptr) return peek(message);
  const auto found = channel_->peek();
  if (found) message = *found;
  return found.has_value();
}

BoundProgram::BoundProgram(Program compiled, Transport& transport) : program(std::move(compiled)) {
  for (const Program::Port& port : program.sends)
    sends.emplace_back(port.peer, transport.sender(port.peer, port.channel));
  for (const Program::Port& port : program.receives)
    receives.emplace_back(port.peer, transport.receiver(port.peer, port.channel));
  addresses_.resize(program.lanes.size() * program.widest_step);
  for (const Program::Lane& lane : program.lanes) {
    const Program::Step* first = program.steps.data() + lane.first_step;
    lanes.push_back(
        {first, first + lane.steps, addresses_.data() + lanes.size() * program.widest_step});
  }
}

void Execution::start(BoundProgram& bound, const CallBuffers& buffers, std::uint32_t operation,
                      ResultStores stores) {
  bound_ = &bound;
  // Inputs are only read: see combine().
  base_ = {const_cast<std::byte*>(buffers.input), buffers.output, buffers.scratch};
  header_ = {operation, bound.program.fingerprint, 0, 0};
  fetched_mask_ = stores == ResultStores::fetched ? ~std::uint64_t{0} : 0;
  streamed_mask_ = stores == ResultStores::streamed ? ~std::uint64_t{0} : 0;
  unfinished_ = bound.lanes.size();
  for (LaneState& lane : bound.lanes) {
    lane.step = lane.first;
    lane.piece = lane.done = lane.cursor = 0;
    if (lane.first == lane.end) --unfinished_;
  }
}

inline bool Execution::order_kept(const LaneState& lane) const noexcept {
  const After& after = lane.step->after;
  if (after.lane < 0) [[likely]]
    return true;
  const auto back = static_cast<std::uint64_t>(after.pieces_back);
  if (lane.piece < back) return true;
  const LaneState& other = bound_->lanes[static_cast<std::size_t>(after.lane)];
  const auto steps = static_cast<std::uint64_t>(other.end - other.first);
  return other.done > (lane.piece - back) * steps + static_cast<std::uint64_t>(after.step);
}

// The address of the operand's message; false: it is not there yet.
inline bool Execution::receive(const Program::Operand& operand, std::uint64_t bytes,
                               const void*& address) {
  RecvPort& port = bound_->receives[operand.port];
  Message found;
  if (!port.peek(found)) return false;
  const Header& header = found.header;
  if (header.operation != header_.operation || header.fingerprint != header_.fingerprint ||
      header.length != bytes) [[unlikely]]
    refuse(port.peer(), header, bytes);
  address = found.data;
  return true;
}

// The memory of the message that the operand becomes; null: there is no room yet.
inline std::byte* Execution::acquire(const LaneState& lane, const Program::Operand& operand,
                                     std::uint64_t bytes) {
  SendPort& port = bound_->sends[operand.port];
  if (operand.partner == Program::kNone || bytes <= kInlineBytes) return port.acquire(bytes);
  const std::size_t message = lane.step->first_operand + operand.partner;
  return port.acquire_answer(bound_->receives[bound_->program.operands[message].port], bytes);
}

// Peeks every message and acquires every slot that the step needs; false: some are not there yet.
inline bool Execution::in_hand(LaneState& lane, std::size_t last) {
  const Program::Step& step = *lane.step;
  const Program::Operand* operands = bound_->program.operands.data() + step.first_operand;
  const std::size_t all = std::size_t{step.inputs} + step.outputs;
  for (; lane.cursor < all; ++lane.cursor) {
    const Program::Operand& operand = operands[lane.cursor];
    const void*& address = lane.addresses[lane.cursor];
    if (operand.place == Place::peer && lane.cursor < step.inputs) {
      if (!receive(operand, step.bytes[last], address)) return false;
    } else if (operand.place == Place::peer) {
      address = acquire(lane, operand, step.bytes[last]);
      if (address == nullptr) return false;
    } else {
      const auto place = static_cast<std::size_t>(operand.place);
      const std::uint64_t piece = lane.piece * bound_->program.piece_bytes & kPieceMask[place];
      address = base_[place] + (piece + operand.offset[last]);
    }
  }
  return true;
}

inline void Execution::combine(LaneState& lane, std::size_t last) {
  const Program::Step& step = *lane.step;
  // The outputs' addresses are writable by construction: only inputs come from const memory.
  CombineArgs args;
  args.in = lane.addresses;
  args.inputs = step.inputs;
  args.out = const_cast<void* const*>(lane.addresses + step.inputs);
  args.outputs = step.outputs;
  args.count = step.bytes[last] >> step.element_shift;
  args.divide_by = step.divide_by;
  args.fetch_outputs = step.results & fetched_mask_;
  args.stream_outputs = step.results & streamed_mask_;
  if (step.segments > 1) return combine_segments(lane, last, args);
  if (args.count > 0) step.combine(args);
}

void Execution::combine_segments(LaneState& lane, std::size_t last, CombineArgs& args) {
  const Program& program = bound_->program;
  const Program::Step& step = *lane.step;
  const Program::Operand* operands = program.operands.data() + step.first_operand;
  std::uint64_t left = step.bytes[last];
  for (std::uint32_t segment = 0; segment < step.segments; ++segment) {
    const std::uint64_t bytes = std::min(program.chunk_bytes[last], left);
    left -= bytes;
    args.count = bytes >> step.element_shift;
    if (args.count > 0) step.combine(args);
    for (std::size_t k = 0; k < std::size_t{step.inputs} + step.outputs; ++k) {
      const Place place = operands[k].place;
      const std::uint64_t stride = place == Place::peer      ? program.chunk_bytes[last]
                                   : place == Place::scratch ? program.scratch_stride
                                                             : program.segment_stride[last];
      lane.addresses[k] = static_cast<const std::byte*>(lane.addresses[k]) + stride;
    }
  }
}

inline void Execution::hand_over(const LaneState& lane, std::uint64_t bytes) {
  const Program::Step& step = *lane.step;
  const Program::Operand* operands = bound_->program.operands.data() + step.first_operand;
  if (step.posts > 0) {
    Header header = header_;
    header.length = static_cast<std::uint32_t>(bytes);
    for (std::size_t k = step.inputs; k < std::size_t{step.inputs} + step.outputs; ++k)
      if (operands[k].place == Place::peer) bound_->sends[operands[k].port].post(header);
  }
  if (step.receives == 0) return;
  for (std::size_t k = 0; k < step.inputs; ++k) {
    if (operands[k].place != Place::peer) continue;
    RecvPort& port = bound_->receives[operands[k].port];
    const std::uint16_t answer = operands[k].partner;
    if (answer != Program::kNone && lane.addresses[answer] == lane.addresses[k])
      port.release_answered();
    else
      port.release();
  }
}

inline void Execution::next_step(LaneState& lane) {
  lane.cursor = 0;
  ++lane.done;
  if (++lane.step != lane.end) return;
  if (++lane.piece < bound_->program.pieces)
    lane.step = lane.first;
  else
    --unfinished_;
}

inline bool Execution::try_step(LaneState& lane) {
  if (!order_kept(lane)) return false;
  const std::size_t last = lane.piece + 1 == bound_->program.pieces ? 1 : 0;
  const std::uint64_t bytes = lane.step->bytes[last];
  if (bytes > 0 || lane.piece == 0) {  // a later empty piece is left out, on both sides
    if (!in_hand(lane, last)) return false;
    combine(lane, last);
    hand_over(lane, bytes);
  }
  next_step(lane);
  return true;
}

bool Execution::run_lane(LaneState& lane) {
  while (lane.step != lane.end)
    if (!try_step(lane)) return false;
  return true;
}

bool Execution::advance_lanes() {
  std::vector<LaneState>& lanes = bound_->lanes;
  for (bool moved = true; moved && unfinished_ > 0;) {
    moved = false;
    for (std::size_t k = lanes.size(); k-- > 0;)
      if (lanes[k].step != lanes[k].end && try_step(lanes[k])) moved = true;
  }
  return unfinished_ == 0;
}

void Execution::refuse(int peer, const Header& found, std::uint64_t bytes) const {
  Header expected = header_;
  expected.length = static_cast<std::uint32_t>(bytes);
  throw UnexpectedMessage{peer, expected, found};
}

std::vector<int> Execution::waits_for() const {
  std::vector<int> peers;
  for (const LaneState& lane : bound_->lanes) {
    if (lane.step == lane.end || !order_kept(lane)) continue;
    const std::size_t all = std::size_t{lane.step->inputs} + lane.step->outputs;
    if (lane.cursor >= all) continue;
    const Program::Operand& operand = program().operands[lane.step->first_operand + lane.cursor];
    if (operand.place != Place::peer) continue;
    peers.push_back(lane.cursor < lane.step->inputs ? bound_->receives[operand.port].peer()
                                                    : bound_->sends[operand.port].peer());
  }
  std::sort(peers.begin(), peers.end());
  peers.erase(std::unique(peers.begin(), peers.end()), peers.end());
  return peers;
}

}  // namespace tutti
