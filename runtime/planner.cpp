#include "runtime/planner.h"

#include <cassert>
#include <cstring>

#include "runtime/engine/variable_blocks.h"
#include "runtime/zero_copy.h"

namespace tutti {

CallPlanner::CallPlanner(const CommunicatorParts& parts, Engine& engine)
    : parts_(parts),
      own_algorithms_(parts.request(), parts.runtime->schedule_files().of(parts.size)),
      programs_(engine, own_algorithms_, parts.request()) {}

Plan& CallPlanner::plan(const Call& call) {
  if (call.extras.reduction != nullptr) check_reduction(call);
  if (!last_ || last_->kind != call.kind || last_->algorithm != call.algorithm)
    last_ = plan_kind(call.kind, call.algorithm);
  Plan& plan = *last_;
  if (call.variable != nullptr) {
    check_timeout(call);
    plan.result_bytes = lay_out(call, parts_.rank, parts_.size, plan.key.signature, blocks_);
  } else {
    check_buffers(call, parts_.rank, parts_.size);
    plan.checked = true;
  }
  plan.input = call.input;
  plan.output = call.output;
  return plan;
}

CallKey CallPlanner::key_of(const CallKind& kind, std::string_view algorithm) {
  const Choice choice = choose_algorithm(kind, algorithm);
  const bool zero_copy =
      memory_of_calls() == MemoryKind::host &&
      (sends_zero_copy(parts_) ||
       (!kind.variable && kernel_may_copy(parts_, kind.what, kind.count * element_bytes(kind))));
  return {{kind.what, kind.type, kind.op, kind.root, kind.variable ? 0 : kind.count,
           choice.algorithm, kind.variable ? kPairLengths : 0, kind.reduction,
           accumulates_in_f32(kind), sums_reproducibly(kind)},
          choice.message_bytes,
          zero_copy,
          stripes_of(kind, choice.algorithm),
          memory_of_calls()};
}

Plan CallPlanner::plan_kind(const CallKind& kind, std::string_view algorithm) {
  check_kind(kind, parts_.size);
  const std::size_t bytes = kind.count * element_bytes(kind) * blocks_moved(kind.what, parts_.size);
  Plan plan{kind, std::string(algorithm), key_of(kind, algorithm), bytes};
  return plan;
}

PlannedCall CallPlanner::detached(const Call& call, const Plan& plan) const {
  PlannedCall detached{plan.key,          call.input,   call.output, timeout_of(call),
                       plan.result_bytes, plan.program, nullptr,     call.extras.reduction};
  assert(size_of(call.kind.type) <= detached.premultiplier.size());
  detached.staged = plan.staged;
  detached.stream = call.stream;
  if (call.extras.premultiplier != nullptr)
    std::memcpy(detached.premultiplier.data(), call.extras.premultiplier, size_of(call.kind.type));
  return detached;
}

}  // namespace tutti
