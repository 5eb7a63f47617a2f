// The part of the engine for zero-copy messages, which lie in buffers that are lent
// (docs/buffers.md).
#include <algorithm>

#include "runtime/engine/execution.h"

namespace tutti {

bool Execution::can_lend(const LaneState& lane, const Program::Operand& operand,
                         const Load& load) const {
  if (operand.lender == Program::kNone || load.bytes < lent_->least_bytes) return false;
  if (lent_->in_place && !operand.lent_in_place) return false;
  const Program::Operand& lender =
      bound_->program.operands[lane.step->first_operand + operand.lender];
  const Memory& memory = lent_->of(lender.place);
  const SendPort& port = bound_->sends[operand.port];
  if (!memory || !port.zero_copy().has(memory.kind)) return false;
  // Memory that the ring's reader has not mapped would be copied by the kernel, which is no
  // cheaper.
  return !port.in_memory() || memory.kind == MemoryKind::shared;
}

// Does what acquire() does, for a message that lies in this rank's own buffer.
std::byte* Execution::lend(LaneState& lane, const Program::Operand& operand, const Load& load) {
  const Program::Operand& lender =
      bound_->program.operands[lane.step->first_operand + operand.lender];
  std::byte* const data = memory_of<Kind::lending>(lane, lender, load);
  Extent answer;
  if (operand.comes_back && lent_->output.kind == MemoryKind::shared) {
    Program::Operand output = operand;
    output.place = Place::output;
    const Memory place =
        memory_at(Place::output, memory_of<Kind::lending>(lane, output, load), load.bytes);
    answer = {place.segment, place.offset};
  }
  const bool acquired = bound_->sends[operand.port].acquire_zero_copy(
      memory_at(lender.place, data, load.bytes), answer);
  if (!acquired) return nullptr;
  ++lane.loans;
  return data;
}

// Fetches a message that lies in the sender's memory. If the step copies it, it is fetched to where
// the step would copy it.
const std::byte* Execution::fetch(const LaneState& lane, const Program::Operand& operand,
                                  const Load& load) {
  const Program::Step& step = *lane.step;
  const Program::Operand* operands = bound_->program.operands.data() + step.first_operand;
  std::byte* to = nullptr;
  if (lent_ && step.copies() && step.segments == 1)
    for (std::size_t k = step.inputs; to == nullptr && k < step.inputs + step.outputs; ++k)
      if (operands[k].place != Place::peer) to = memory_of<Kind::lending>(lane, operands[k], load);
  return bound_->receives[operand.port].fetch(to);
}

Memory Execution::memory_at(Place place, const std::byte* data, std::size_t bytes) const {
  const std::byte* const begin = base_[static_cast<std::size_t>(place)];
  return lent_->of(place).part(static_cast<std::uint64_t>(data - begin), bytes);
}

// Leaves out the outputs that need not be written: lent messages, and results that came back to
// their place. Moves the other outputs together; returns false if there is none.
bool Execution::leave_out_lent(const LaneState& lane, const Load& load, CombineArgs& args) {
  const Program::Step& step = *lane.step;
  const Program::Operand* operands = bound_->program.operands.data() + step.first_operand;
  int outputs = 0;
  std::uint64_t results = 0;
  for (std::size_t k = 0; k < step.outputs; ++k) {
    const Program::Operand& operand = operands[step.inputs + k];
    void* const data = args.out[k];
    const bool lent = operand.lender != Program::kNone &&
                      data == memory_of<Kind::lending>(lane, operands[operand.lender], load);
    if (lent || (step.copies() && data == args.in[0])) continue;
    const bool answer = operand.partner != Program::kNone;
    if (outputs < 64 && ((step.results >> k & 1) != 0 || answer))
      results |= std::uint64_t{1} << outputs;
    bound_->written[static_cast<std::size_t>(outputs++)] = data;
  }
  args.out = bound_->written.data();
  args.outputs = outputs;
  args.fetch_outputs = results & fetched_mask_;
  args.stream_outputs = results & streamed_mask_;
  return outputs > 0;
}

// Returns whether the memory of all lent messages that the step has used was still valid when it
// read them.
bool Execution::still_lent(const LaneState& lane) const {
  const Program::Operand* operands = bound_->program.operands.data() + lane.step->first_operand;
  return std::all_of(operands, operands + lane.step->inputs, [&](const Program::Operand& operand) {
    return operand.place != Place::peer || bound_->receives[operand.port].still_lent();
  });
}

bool Execution::all_returned() const noexcept {
  return std::all_of(bound_->sends.begin(), bound_->sends.end(),
                     [](const SendPort& port) { return port.zero_copy_done(); });
}

}  // namespace tutti
