// The planner, which decides all that follows from a call: its algorithm, message size,
// accumulation, stripes, and program.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/planning/select.h"
#include "collectives/schedule/semantics.h"
#include "runtime/call.h"
#include "runtime/communicator_parts.h"
#include "runtime/engine/program_cache.h"
#include "runtime/operation.h"
#include "runtime/own_algorithms.h"

namespace tutti {

/// Returns the number of blocks in the larger buffer of a call: 1 if it has a vector.
inline std::size_t blocks_moved(Collective what, int size) {
  return collectives::layout_of(what) == Layout::blocks ? static_cast<std::size_t>(size) : 1;
}

/// Holds what follows from a call's kind and the algorithm that it names, and the buffers of the
/// last such call.
struct Plan {
  CallKind kind;
  std::string algorithm;
  CallKey key;
  std::size_t result_bytes;
  bool checked = false;  ///< `input` and `output` have passed the checks.
  const void* input = nullptr;
  void* output = nullptr;
  std::shared_ptr<BoundProgram> program = nullptr;  ///< The owner of the engine sets it.
  bool staged = false;                              ///< The last call is ordered by a GPU's stream.
};

/// Checks calls and plans them, with the same result on every rank. It remembers the last plan,
/// because loops repeat a call. It only decides, and sends nothing.
///
/// Threads: only the calling thread uses it, except that the owner of the communicator's engine
/// calls bind().
class CallPlanner {
 public:
  /// `parts` and `engine` outlive the planner.
  CallPlanner(const CommunicatorParts& parts, Engine& engine);

  OwnAlgorithms& own_algorithms() noexcept { return own_algorithms_; }
  std::vector<AlgorithmPrice> prices(const CallKind& kind);
  std::string explain(const CallKind& kind);

  /// Returns whether `call` repeats the last one closely enough that there is nothing to check or
  /// plan.
  bool repeats(const Call& call) const noexcept {
    return last_ && last_->kind == call.kind && last_->algorithm == call.algorithm &&
           last_->checked && last_->input == call.input && last_->output == call.output &&
           is_timeout(call.timeout) && call.extras.reduction == nullptr && call.stream == nullptr;
  }
  /// Returns the plan of the last call.
  Plan& last() noexcept { return *last_; }
  /// Checks and plans a call. Throws `usage` if the call is wrong.
  Plan& plan(const Call& call);
  /// Makes the next call be planned anew, even if it repeats the last one.
  void forget_last() noexcept { last_.reset(); }
  /// Returns the blocks of the last variable call that was planned.
  const BlockTable& blocks() const noexcept { return blocks_; }
  std::chrono::milliseconds timeout_of(const Call& call) const {
    return call.timeout.count() > 0 ? call.timeout : parts_.runtime->config().timeout;
  }
  /// Returns the planned call in a form that outlives what `call` points to, but not blocks().
  PlannedCall detached(const Call& call, const Plan& plan) const;

  /// Returns the program for `key`, which the engine has bound. Throws what the creation of
  /// channels throws.
  std::shared_ptr<BoundProgram> bind(const CallKey& key) { return programs_.get(key); }

 private:
  Plan plan_kind(const CallKind& kind, std::string_view algorithm);
  CallKey key_of(const CallKind& kind, std::string_view algorithm);
  Choice choose_algorithm(const CallKind& kind, std::string_view algorithm);
  Choice choose_named(const CallKind& kind, const SelectRequest& request,
                      std::string_view algorithm);
  std::optional<Choice> of_files(const CallKind& kind, const SelectRequest& request);
  int stripes_of(const CallKind& kind, std::uint32_t algorithm) const;
  MemoryKind memory_of_calls() const noexcept {
    return parts_.gpu == nullptr ? MemoryKind::host : MemoryKind::device;
  }
  SelectRequest request_of(const CallKind& kind) const;
  std::string selected(const CallKind& kind) const;
  Accumulate accumulation_of(const CallKind& kind) const;
  bool accumulates_in_f32(const CallKind& kind) const;
  bool sums_reproducibly(const CallKind& kind) const;

  const CommunicatorParts& parts_;
  OwnAlgorithms own_algorithms_;
  ProgramCache programs_;  // used by the owner of the engine
  std::optional<Plan> last_;
  BlockTable blocks_;
};

/// Returns the buffers of a Plan or PlannedCall; `blocks` are those of a variable call.
template <typename AnyCall>
CallBuffers buffers_of(const AnyCall& call, const CallExtras& extras, const BlockTable* blocks) {
  return {.input = static_cast<const std::byte*>(call.input),
          .output = static_cast<std::byte*>(call.output),
          .scratch = nullptr,
          .blocks = blocks,
          .extras = &extras,
          .result_bytes = call.result_bytes};
}

}  // namespace tutti
