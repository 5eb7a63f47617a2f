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
}

void Execution::start(BoundProgram& bound, const CallBuffers& buffers, std::uint32_t operation,
                      bool stream) {
  const Program& program = bound.program;
  buffers_ = buffers;
  header_ = {operation, program.fingerprint, 0, 0};
  stream_ = stream;
  bound_ = &bound;
  const std::size_t addresses = program.lanes.size() * program.widest_step;
  if (addresses_.size() < addresses) addresses_.resize(addresses);
  lanes_.resize(program.lanes.size());
  unfinished_ = lanes_.size();
  for (std::size_t k = 0; k < lanes_.size(); ++k) {
    const Program::Step* first = program.steps.data() + program.lanes[k].first_step;
    lanes_[k] = {first,
                 first,
                 first + program.lanes[k].steps,
                 0,
                 0,
                 0,
                 addresses_.data() + k * program.widest_step};
    if (lanes_[k].first == lanes_[k].end) --unfinished_;
  }
}

bool Execution::run_lane(LaneState& lane) {
  while (lane.step != lane.end)
    if (!try_step(lane)) return false;
  return true;
}

bool Execution::advance_lanes() {
  for (bool moved = true; moved && unfinished_ > 0;) {
    moved = false;
    for (std::size_t k = lanes_.size(); k-- > 0;)
      if (lanes_[k].step != lanes_[k].end && try_step(lanes_[k])) moved = true;
  }
  return unfinished_ == 0;
}

bool Execution::order_kept(const LaneState& lane) const noexcept {
  const After& after = lane.step->after;
  if (after.lane < 0) return true;
  const auto back = static_cast<std::uint64_t>(after.pieces_back);
  if (lane.piece < back) return true;
  const LaneState& other = lanes_[static_cast<std::size_t>(after.lane)];
  const auto steps =
      static_cast<std::uint64_t>(program().lanes[static_cast<std::size_t>(after.lane)].steps);
  return other.done > (lane.piece - back) * steps + static_cast<std::uint64_t>(after.step);
}

bool Execution::try_step(LaneState& lane) {
  const int last = lane.piece + 1 == program().pieces ? 1 : 0;
  if (!order_kept(lane)) return false;
  if (!skipped(lane, last)) {
    if (!in_hand(lane, last)) return false;
    combine(lane, last);
    hand_over(lane, last);
  }
  next_step(lane);
  return true;
}

// Peeks every message and acquires every slot that the step needs; false: some are not there yet.
bool Execution::in_hand(LaneState& lane, int last) {
  const Program::Step& step = *lane.step;
  const Program::Operand* operands = program().operands.data() + step.first_operand;
  const std::size_t all = std::size_t{step.inputs} + step.outputs;
  const std::uint64_t from = lane.piece * program().piece_bytes;
  for (; lane.cursor < all; ++lane.cursor) {
    const Program::Operand& operand = operands[lane.cursor];
    const void*& address = lane.in[lane.cursor];
    switch (operand.place) {
      case Place::input: address = buffers_.input + from + operand.offset[last]; break;
      case Place::output: address = buffers_.output + from + operand.offset[last]; break;
      case Place::scratch: address = buffers_.scratch + operand.offset[last]; break;
      case Place::peer:
        if (lane.cursor < step.inputs) {
          RecvPort& port = bound_->receives[operand.port];
          Message message;
          if (!port.peek(message)) return false;
          check(port, message.header, step.bytes[last]);
          address = message.data;
        } else {
          address = bound_->sends[operand.port].acquire(step.bytes[last]);
          if (address == nullptr) return false;
        }
    }
  }
  return true;
}

void Execution::combine(LaneState& lane, int last) {
  const Program::Step& step = *lane.step;
  // The outputs' addresses are writable by construction: only inputs come from const memory.
  void* const* out = const_cast<void* const*>(lane.in + step.inputs);
  CombineArgs args{lane.in,
                   step.inputs,
                   out,
                   step.outputs,
                   step.bytes[last] / step.element_bytes,
                   step.divide_by,
                   stream_ ? step.stream_outputs : 0};
  if (step.segments == 1) {
    if (args.count > 0) step.combine(args);
    return;
  }
  const Program::Operand* operands = program().operands.data() + step.first_operand;
  std::uint64_t left = step.bytes[last];
  for (std::uint32_t segment = 0; segment < step.segments; ++segment) {
    const std::uint64_t bytes = std::min(program().chunk_bytes[last], left);
    left -= bytes;
    args.count = bytes / step.element_bytes;
    if (args.count > 0) step.combine(args);
    for (std::size_t k = 0; k < std::size_t{step.inputs} + step.outputs; ++k) {
      const Place place = operands[k].place;
      const std::uint64_t stride = place == Place::peer      ? program().chunk_bytes[last]
                                   : place == Place::scratch ? program().scratch_stride
                                                             : program().segment_stride[last];
      lane.in[k] = static_cast<const std::byte*>(lane.in[k]) + stride;
    }
  }
}

void Execution::hand_over(LaneState& lane, int last) {
  const Program::Step& step = *lane.step;
  const Program::Operand* operands = program().operands.data() + step.first_operand;
  Header header = header_;
  header.length = static_cast<std::uint32_t>(step.bytes[last]);
  for (std::size_t k = step.inputs; k < std::size_t{step.inputs} + step.outputs; ++k)
    if (operands[k].place == Place::peer) bound_->sends[operands[k].port].post(header);
  for (std::size_t k = 0; k < step.inputs; ++k)
    if (operands[k].place == Place::peer) bound_->receives[operands[k].port].release();
}

void Execution::next_step(LaneState& lane) {
  lane.cursor = 0;
  ++lane.done;
  if (++lane.step != lane.end) return;
  if (++lane.piece < program().pieces)
    lane.step = lane.first;
  else
    --unfinished_;
}

void Execution::check(const RecvPort& port, const Header& found, std::uint64_t bytes) const {
  if (found.operation == header_.operation && found.fingerprint == header_.fingerprint &&
      found.length == bytes) [[likely]]
    return;
  Header expected = header_;
  expected.length = static_cast<std::uint32_t>(bytes);
  throw UnexpectedMessage{port.peer(), expected, found};
}

std::vector<int> Execution::waits_for() const {
  std::vector<int> peers;
  for (const LaneState& lane : lanes_) {
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
