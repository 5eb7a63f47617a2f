// How the ranks of a communicator make another one of some of them, after a failure.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <vector>

#include "runtime/communicator_parts.h"
#include "runtime/membership/shrink.h"
#include "runtime/membership/split.h"

namespace tutti {

/// A state machine around the agreement on who is left (Shrinking). The calling thread alone uses
/// it, but for lost().
class Membership {
 public:
  /// `parts` outlive it.
  explicit Membership(const CommunicatorParts& parts) : parts_(parts) {}

  /// Throws `usage` where the communicator cannot be shrunk, or not with that patience.
  void check_shrink(std::chrono::milliseconds patience) const;
  /// As Shrinking::begin().
  void begin_shrink(TimePoint now, std::chrono::milliseconds patience);
  /// As Shrinking::step(): the new communicator's parts once they are made. `lost` calls lost() as
  /// whoever owns the engine.
  std::optional<CommunicatorParts> step_shrink(TimePoint now, const Shrinking::Lost& lost);
  TimePoint next_step() const noexcept { return shrinking_->next_step(); }

  /// Whoever owns the engine: by rank, which ranks are known to have ended.
  std::vector<bool> lost() const;

 private:
  const CommunicatorParts& parts_;
  std::unique_ptr<Shrinking> shrinking_;  // null before the first begin_shrink()
  std::optional<CommunicatorParts> made_;
};

}  // namespace tutti
