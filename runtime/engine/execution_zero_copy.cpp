// The part of the engine for zero-copy messages, which lie in the buffers of a call
// (docs/buffers.md).
#include <algorithm>
#include <cassert>

#include "runtime/engine/execution.h"

namespace tutti {

// Decides for each peer whether the messages of this call go through its ring or are copied by the
// kernel. Returns whether the kernel copies some, or copies are timed.
bool Execution::choose_copies() {
  const bool may = zero_copy_->kernel_copies && bound_->only_moves;
  bool any = false, by_kernel = false;
  for (std::size_t k = 0; k < bound_->sends.size(); ++k) {
    const int copy_class = may ? CopyClass::of(bound_->sent_bytes[k]) : 0;
    const auto choice = bound_->sends[k].choose_copies(copy_class, !bound_->receives.empty());
    any = any || choice.by_kernel || choice.timed;
    by_kernel = by_kernel || choice.by_kernel;
  }
  if (by_kernel && !kernel_reads_buffers())
    for (SendPort& port : bound_->sends) port.set_by_kernel(false);
  return any;
}

bool Execution::kernel_reads_buffers() {
  const Memory &input = zero_copy_->input, &output = zero_copy_->output;
  return (!input || readable_input_.holds(input.address, input.bytes)) &&
         (!output || readable_output_.holds(output.address, output.bytes));
}

// Returns the message that the step copies into a ring or out of one, if it has one message, and
// the time of the copy is to be recorded; else null.
const Program::Operand* Execution::timed_copy(const LaneState& lane) const {
  const Program::Step& step = *lane.step;
  if (step.receives + step.posts != 1 || lane.zero_copies != 0) return nullptr;
  const Program::Operand* const operands = bound_->program.operands.data() + step.first_operand;
  const Program::Operand* const message =
      std::find_if(operands, operands + step.inputs + step.outputs,
                   [](const Program::Operand& operand) { return operand.place == Place::peer; });
  const bool timed = step.receives > 0 ? bound_->receives[message->port].is_timed()
                                       : bound_->sends[message->port].is_timed();
  return timed ? message : nullptr;
}

void Execution::record_copy(const Program::Operand& message, bool received, std::size_t bytes,
                            std::uint64_t elapsed) {
  if (received)
    bound_->receives[message.port].record_read(elapsed);
  else
    bound_->sends[message.port].record_write(elapsed, bytes);
}

bool Execution::can_send_zero_copy(const LaneState& lane, const Program::Operand& operand,
                                   const Load& load) const {
  assert(zero_copy_ && operand.place == Place::peer);
  if (operand.source == Program::kNone || load.bytes < zero_copy_->least_bytes) return false;
  if (zero_copy_->in_place && !operand.zero_copy_in_place) return false;
  const Program::Operand& source =
      bound_->program.operands[lane.step->first_operand + operand.source];
  const Memory& memory = zero_copy_->of(source.place);
  const SendPort& port = bound_->sends[operand.port];
  if (!memory) return false;
  if (memory.kind != MemoryKind::shared &&
      !(port.in_memory() ? port.by_kernel() : zero_copy_->ordinary))
    return false;
  return port.zero_copy().has(memory.kind);
}

// Does what acquire() does, for a message that lies in this rank's own buffer.
std::byte* Execution::acquire_zero_copy(LaneState& lane, const Program::Operand& operand,
                                        const Load& load) {
  const Program::Operand& source =
      bound_->program.operands[lane.step->first_operand + operand.source];
  assert(source.place == Place::input || source.place == Place::output);
  std::byte* const data = memory_of<Kind::zero_copy>(lane, source, load);
  Extent answer;
  if (operand.comes_back && zero_copy_->output.kind == MemoryKind::shared) {
    Program::Operand output = operand;
    output.place = Place::output;
    const Memory place =
        memory_at(Place::output, memory_of<Kind::zero_copy>(lane, output, load), load.bytes);
    answer = {place.segment, place.offset};
  }
  const bool acquired = bound_->sends[operand.port].acquire_zero_copy(
      memory_at(source.place, data, load.bytes), answer);
  if (!acquired) return nullptr;
  ++lane.zero_copies;
  assert(lane.zero_copies <= lane.step->posts);
  return data;
}

// Brings the payload of a message to this rank. If the step copies the message, it is brought to
// where the step would copy it.
const std::byte* Execution::get(const LaneState& lane, const Program::Operand& operand,
                                const Load& load) {
  const BoundStep& step = *lane.step;
  const Program::Operand* operands = bound_->program.operands.data() + step.first_operand;
  assert(operand.place == Place::peer);
  Memory place{nullptr, load.bytes};
  // An empty piece has no place: its chunk may begin behind the end of the buffer.
  if (zero_copy_ && load.bytes > 0 && step.copies() && step.segments == 1)
    for (std::size_t k = step.inputs; !place && k < step.inputs + step.outputs; ++k) {
      if (operands[k].place == Place::peer) continue;
      std::byte* const data = memory_of<Kind::zero_copy>(lane, operands[k], load);
      const bool registered = operands[k].place == Place::output && zero_copy_->output;
      place = registered ? memory_at(Place::output, data, load.bytes) : Memory{data, load.bytes};
    }
  RecvPort& port = bound_->receives[operand.port];
  if (place && step.brings_ahead && port.in_memory() &&
      (!zero_copy_->in_place || bound_->sends.empty()) && load.last == 0)
    place.bytes += (pieces_ - lane.piece - 2) * step.bytes[0] + step.bytes[1];
  return port.get(place);
}

// Says where a message may go that has not arrived. Messages in a ring stay where they are.
void Execution::expect(const LaneState& lane, const Program::Operand& operand, const Load& load) {
  if (load.bytes >= zero_copy_->least_bytes && !bound_->receives[operand.port].in_memory())
    get(lane, operand, load);
}

// Begins to bring the messages behind the one for which the step waits, so that all of them are on
// their way at the same time.
void Execution::get_others(const LaneState& lane, const Load& load) {
  const Program::Step& step = *lane.step;
  const Program::Operand* operands = bound_->program.operands.data() + step.first_operand;
  for (std::size_t k = lane.cursor + 1; k < step.inputs; ++k)
    if (operands[k].place == Place::peer) expect(lane, operands[k], load);
}

Memory Execution::memory_at(Place place, const std::byte* data, std::size_t bytes) const {
  const std::byte* const begin = base_[static_cast<std::size_t>(place)];
  assert(begin <= data && "the part lies behind the beginning of its buffer");
  return zero_copy_->of(place).part(static_cast<std::uint64_t>(data - begin), bytes);
}

// Leaves out the outputs that need not be written: zero-copy messages, and results that came back
// to their place. Moves the other outputs together; returns false if there is none.
bool Execution::leave_out_zero_copy(const LaneState& lane, const Load& load, CombineArgs& args) {
  const Program::Step& step = *lane.step;
  const Program::Operand* operands = bound_->program.operands.data() + step.first_operand;
  int outputs = 0;
  std::uint64_t fetched = 0, streamed = 0;
  for (std::size_t k = 0; k < step.outputs; ++k) {
    const Program::Operand& operand = operands[step.inputs + k];
    void* const data = args.out[k];
    const bool zero_copy = operand.source != Program::kNone &&
                           data == memory_of<Kind::zero_copy>(lane, operands[operand.source], load);
    if (zero_copy || (step.copies() && data == args.in[0])) continue;
    if (k < 64) {
      const bool answer = operand.partner != Program::kNone;
      fetched |= ((answer ? fetched_mask_ : args.fetch_outputs) >> k & 1) << outputs;
      streamed |= ((answer ? streamed_mask_ : args.stream_outputs) >> k & 1) << outputs;
    }
    bound_->written[static_cast<std::size_t>(outputs++)] = data;
  }
  assert(static_cast<std::size_t>(outputs) <= bound_->written.size());
  args.out = bound_->written.data();
  args.outputs = outputs;
  args.fetch_outputs = fetched;
  args.stream_outputs = streamed;
  return outputs > 0;
}

// Returns whether the memory of all zero-copy messages that the step has used was still valid when
// it read them.
bool Execution::still_valid(const LaneState& lane) const {
  const Program::Operand* operands = bound_->program.operands.data() + lane.step->first_operand;
  return std::all_of(operands, operands + lane.step->inputs, [&](const Program::Operand& operand) {
    return operand.place != Place::peer || bound_->receives[operand.port].still_valid();
  });
}

bool Execution::zero_copy_done() const noexcept {
  return std::all_of(bound_->sends.begin(), bound_->sends.end(),
                     [](const SendPort& port) { return port.zero_copy_done(); });
}

}  // namespace tutti
