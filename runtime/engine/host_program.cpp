#include "runtime/engine/host_program.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cassert>
#include <exception>
#include <utility>

#include "compute/fixed_point.h"

namespace tutti {
namespace {

// The engine passes a count of bytes, as for a copy, because elements of any size are possible and
// the engine only shifts.
void combine_own(const CombineArgs& args) {
  CombineArgs elements = args;
  elements.count /= args.extras->user->element_bytes;
  try {
    combine_user(elements);
  } catch (const std::exception& thrown) {
    throw ReductionThrew{thrown.what()};
  } catch (...) {
    throw ReductionThrew{"something that is no std::exception"};
  }
}

CombineFunction function_of(const Program::Kernel& kernel) {
  switch (kernel.fold) {
    case Program::Fold::copy: return combine_copy;
    case Program::Fold::user: return combine_own;
    case Program::Fold::fixed_point: return fixed_point_sum(kernel.type);
    case Program::Fold::reduce: break;
  }
  return combine_function(kernel.type, kernel.op, kernel.accumulate);
}

// Returns whether the records of a program keep within each other's bounds, which the engine takes
// for granted.
[[maybe_unused]] bool is_sound(const Program& program) {
  const auto is_sound_step = [&](const Program::Step& step) {
    const std::size_t all = std::size_t{step.inputs} + step.outputs;
    if (step.first_operand + all > program.operands.size() || all > program.widest_step ||
        (step.inputs == 0) != (step.outputs == 0) || step.receives > step.inputs ||
        step.posts > step.outputs)
      return false;
    for (std::size_t k = 0; k < all; ++k) {
      const Program::Operand& operand = program.operands[step.first_operand + k];
      const auto& ports = k < step.inputs ? program.receives : program.sends;
      if (operand.place == Place::peer && operand.port >= ports.size()) return false;
      if (operand.partner != Program::kNone && operand.partner >= all) return false;
      if (operand.source != Program::kNone && operand.source >= all) return false;
    }
    return true;
  };
  const auto is_sound_lane = [&](const Program::Lane& lane) {
    return std::size_t{lane.first_step} + lane.steps <= program.steps.size();
  };
  return std::all_of(program.steps.begin(), program.steps.end(), is_sound_step) &&
         std::all_of(program.lanes.begin(), program.lanes.end(), is_sound_lane) &&
         (program.masks.empty() || program.masks.size() == program.steps.size());
}

BoundStep bound(const Program::Step& step, const CallSignature& call) {
  const bool in_bytes =
      step.kernel.fold == Program::Fold::copy || step.kernel.fold == Program::Fold::user;
  assert(in_bytes || std::has_single_bit(moved_bytes(call)));
  return {step, function_of(step.kernel), in_bytes ? 0 : std::countr_zero(moved_bytes(call)),
          false};
}

}  // namespace

namespace {

// Returns the bytes that a call sends over each port.
std::vector<std::size_t> bytes_by_port(const Program& program) {
  std::vector<std::size_t> sent(program.sends.size());
  for (const Program::Step& step : program.steps) {
    const Program::Operand* const outputs = &program.operands[step.first_operand] + step.inputs;
    for (std::size_t k = 0; k < step.outputs; ++k)
      if (outputs[k].place == Place::peer)
        sent[outputs[k].port] += step.bytes[0] * (program.pieces - 1) + step.bytes[1];
  }
  return sent;
}

// Returns the part of a buffer in which an operand lies, over all pieces: its begin and its end.
std::array<std::uint64_t, 2> extent_of(const Program& program, const Program::Step& step,
                                       const Program::Operand& operand) {
  const auto [first, last] = std::minmax(operand.offset[0], operand.offset[1]);
  const std::uint64_t length =
      step.bytes[1] + program.segment_stride[0] * (std::max(step.segments, 1U) - 1);
  return {first, last + (program.pieces - 1) * program.piece_bytes + length};
}

// Returns whether a step only brings a message to a part of the output that no other step touches,
// where the messages of all pieces lie one after the other.
bool brings_ahead(const Program& program, const Program::Step& step) {
  const Program::Operand* const own = &program.operands[step.first_operand];
  if (program.stripe.of != 1 || step.inputs != 1 || step.outputs != 1 || step.receives != 1 ||
      own[1].place != Place::output || step.segments != 1 || step.bytes[0] != program.piece_bytes)
    return false;
  const auto [begin, end] = extent_of(program, step, own[1]);
  const auto touches = [&, begin = begin, end = end](const Program::Step& other) {
    const Program::Operand* const operands = &program.operands[other.first_operand];
    return std::any_of(operands, operands + other.inputs + other.outputs, [&](const auto& that) {
      const auto part = extent_of(program, other, that);
      return that.place == Place::output && part[0] < end && begin < part[1];
    });
  };
  return std::none_of(program.steps.begin(), program.steps.end(),
                      [&](const auto& other) { return &other != &step && touches(other); });
}

}  // namespace

HostProgram::HostProgram(Program compiled, Transport& transport)
    : BoundProgram(std::move(compiled)) {
  assert(is_sound(program));
  for (const Program::Port& port : program.sends)
    sends.emplace_back(port.peer, transport.sender(port.peer, port.channel));
  for (const Program::Port& port : program.receives)
    receives.emplace_back(port.peer, transport.receiver(port.peer, port.channel));
  for (const Program::Step& step : program.steps) steps.push_back(bound(step, program.call));
  for (const Program::Masks& masks : program.masks)
    extras.push_back({.premultiplied_inputs = masks.premultiplied_inputs,
                      .f32_inputs = masks.f32_inputs,
                      .f32_outputs = masks.f32_outputs});
  if (program.call.reduction != 0) extras.resize(steps.size());
  only_moves = program.zero_copy && std::all_of(steps.begin(), steps.end(),
                                                [](const auto& step) { return step.copies(); });
  if (only_moves) {
    sent_bytes = bytes_by_port(program);
    for (std::size_t number = 0; number < steps.size(); ++number)
      steps[number].brings_ahead = brings_ahead(program, program.steps[number]);
  }
  addresses_.resize(program.lanes.size() * program.widest_step);
  written.resize(program.widest_step);
  for (const Program::Lane& lane : program.lanes) {
    const BoundStep* first = steps.data() + lane.first_step;
    lanes.push_back(
        {first, first + lane.steps, addresses_.data() + lanes.size() * program.widest_step});
  }
}

}  // namespace tutti
