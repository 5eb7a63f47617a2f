// The shrinking of a communicator: after a failure, the ranks that are left make a new
// communicator.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <vector>

#include "runtime/communicator_parts.h"
#include "runtime/membership/shrink.h"
#include "runtime/membership/split.h"

namespace tutti {

/// A state machine around the agreement on the ranks that are left (Shrinking). Only the calling
/// thread uses it, except for lost().
class Membership {
 public:
  /// `parts` outlive this object.
  explicit Membership(const CommunicatorParts& parts) : parts_(parts) {}

  /// Throws `usage` if the communicator cannot be shrunk, or not with this patience.
  void check_shrink(std::chrono::milliseconds patience) const;
  /// See Shrinking::begin().
  void begin_shrink(TimePoint now, std::chrono::milliseconds patience);
  /// See Shrinking::step(). Returns the parts of the new communicator once they are made. `lost`
  /// has to own the engine while it calls lost().
  std::optional<CommunicatorParts> step_shrink(TimePoint now, const Shrinking::Lost& lost);
  TimePoint next_step() const noexcept { return shrinking_->next_step(); }

  /// Returns which ranks are known to have ended, indexed by rank. For the owner of the engine.
  std::vector<bool> lost() const;

 private:
  const CommunicatorParts& parts_;
  std::unique_ptr<Shrinking> shrinking_;  // null before the first begin_shrink()
  std::optional<CommunicatorParts> made_;
};

}  // namespace tutti
