// The part of the host engine for steps of several segments: chunks that do not lie next to each
// other, as in all_to_all, and blocks whose lengths differ.
#include <algorithm>
#include <cassert>

#include "runtime/engine/execution.h"

namespace tutti {

void Execution::combine_segments(LaneState& lane, std::size_t last, CombineArgs& args) {
  const Program& program = bound_->program;
  const BoundStep& step = *lane.step;
  const Program::Operand* operands = program.operands.data() + step.first_operand;
  assert(step.segments > 1 && last < step.bytes.size());
  std::uint64_t left = step.bytes[last];
  for (std::uint32_t segment = 0; segment < step.segments; ++segment) {
    const std::uint64_t bytes = std::min(program.chunk_bytes[last], left);
    if (bytes == 0) return;  // those behind it have none either
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
  assert(left == 0 && "the segments are the whole slice");
}

// Does what combine_segments() does, with lengths and offsets from the table of blocks.
void Execution::combine_blocks(LaneState& lane, CombineArgs& args) {
  const BoundStep& step = *lane.step;
  const Program::Operand* operands = bound_->program.operands.data() + step.first_operand;
  const BlockTable::Block* table = blocks_->blocks.data();
  assert(std::size_t{step.first_block} + step.segments <= blocks_->blocks.size());
  for (std::uint32_t segment = 0; segment < step.segments; ++segment) {
    const std::uint64_t bytes = part_of(table[step.first_block + segment], lane.piece)
                                << bound_->program.widening;
    args.count = bytes >> step.element_shift;
    if (args.count > 0) step.combine(args);
    if (segment + 1 == step.segments) break;
    for (std::size_t k = 0; k < std::size_t{step.inputs} + step.outputs; ++k) {
      const Place place = operands[k].place;
      const std::size_t block = operands[k].offset[0] + segment;
      const auto stride = static_cast<std::ptrdiff_t>(  // may be negative: blocks lie in any order
          place == Place::peer      ? bytes
          : place == Place::scratch ? bound_->program.scratch_stride
                                    : table[block + 1].offset - table[block].offset);
      lane.addresses[k] = static_cast<const std::byte*>(lane.addresses[k]) + stride;
    }
  }
}

}  // namespace tutti
