// What follows from a call: its algorithm, message size, accumulation, stripes, and its program.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/planning/select.h"
#include "runtime/call.h"
#include "runtime/communicator_parts.h"
#include "runtime/engine/program_cache.h"
#include "runtime/operation.h"
#include "runtime/own_algorithms.h"

namespace tutti {

/// What follows from a call's kind and the algorithm that it names, and the buffers of the last
/// such call.
struct Plan {
  CallKind kind;
  std::string algorithm;
  CallKey key;
  std::size_t result_bytes;
  bool checked = false;  ///< `input` and `output` have been found right.
  const void* input = nullptr;
  void* output = nullptr;
  std::shared_ptr<BoundProgram> program = nullptr;  ///< Whoever owns the engine sets it.
};

/// Checks calls and plans them: the same on every rank. It remembers the last plan, because loops
/// repeat a call. It decides only, and sends nothing.
///
/// Threads: the calling thread alone, but for bind() and scratch(), which belong to whoever owns
/// the communicator's engine, and scratch_bytes().
class CallPlanner {
 public:
  /// `parts` outlive it.
  explicit CallPlanner(const CommunicatorParts& parts);

  OwnAlgorithms& own_algorithms() noexcept { return own_algorithms_; }
  std::vector<AlgorithmPrice> prices(const CallKind& kind);

  /// Whether `call` is the last one once more, or nearly: there is nothing to check or to plan.
  bool repeats(const Call& call) const noexcept {
    return last_ && last_->kind == call.kind && last_->algorithm == call.algorithm &&
           last_->checked && last_->input == call.input && last_->output == call.output &&
           is_timeout(call.timeout) && call.extras.reduction == nullptr;
  }
  /// The plan of the last call.
  Plan& last() noexcept { return *last_; }
  /// Checks and plans a call. Throws `usage` where it is wrong.
  Plan& plan(const Call& call);
  /// What plan() decided is decided anew from now on.
  void forget_last() noexcept { last_.reset(); }
  /// The blocks of the last variable call that was planned.
  const BlockTable& blocks() const noexcept { return blocks_; }
  std::chrono::milliseconds timeout_of(const Call& call) const {
    return call.timeout.count() > 0 ? call.timeout : parts_.runtime->config().timeout;
  }
  /// The planned call in a form that outlives what `call` points to, but not blocks().
  PlannedCall detached(const Call& call, const Plan& plan) const;

  /// The program for `key`, bound to channels. Throws what channels throw when they are made.
  std::shared_ptr<BoundProgram> bind(const CallKey& key) { return programs_.get(key); }
  /// Scratch for one execution of `bound`.
  std::byte* scratch(const BoundProgram& bound) { return programs_.scratch(bound); }
  std::size_t scratch_bytes() const noexcept { return programs_.scratch_bytes(); }

 private:
  Plan plan_kind(const CallKind& kind, std::string_view algorithm);
  CallKey key_of(const CallKind& kind, std::string_view algorithm);
  Choice choose_algorithm(const CallKind& kind, std::string_view algorithm);
  int stripes_of(const CallKind& kind, std::uint32_t algorithm) const;
  SelectRequest request_of(const CallKind& kind) const;
  std::string selected(const CallKind& kind) const;
  Accumulate accumulation_of(const CallKind& kind) const;
  bool accumulates_in_f32(const CallKind& kind) const;
  bool sums_reproducibly(const CallKind& kind) const;

  const CommunicatorParts& parts_;
  OwnAlgorithms own_algorithms_;
  ProgramCache programs_;  // whoever owns the engine
  std::optional<Plan> last_;
  BlockTable blocks_;
};

/// The buffers of a Plan or PlannedCall, without scratch; `blocks` are those of a variable one.
template <typename AnyCall>
CallBuffers buffers_of(const AnyCall& call, const CallExtras& extras, const BlockTable* blocks) {
  return {static_cast<const std::byte*>(call.input), static_cast<std::byte*>(call.output), nullptr,
          blocks, &extras};
}

}  // namespace tutti
