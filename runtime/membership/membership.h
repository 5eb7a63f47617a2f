// The shrinking and growing of a communicator, whose ranks make a new one, and what they agree on.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "runtime/communicator_parts.h"
#include "runtime/membership/agree.h"
#include "runtime/membership/regroup.h"
#include "runtime/membership/split.h"

namespace tutti {

/// Returns which ranks are known to have ended, indexed by rank. Nobody else uses the transport
/// meanwhile.
std::vector<bool> ended_ranks(const CommunicatorParts& parts);

/// A state machine around the agreements of a communicator's ranks: on those that are left, with
/// newcomers or without (Regrouping), and on flags (Agreeing). Only the calling thread uses it,
/// except for lost().
class Membership {
 public:
  /// `parts` outlive this object.
  explicit Membership(const CommunicatorParts& parts) : parts_(parts) {}

  /// Throw `usage` if the communicator cannot make the call, or not with these arguments.
  void check_shrink(std::chrono::milliseconds patience, const Demands& demands) const;
  void check_grow(std::chrono::milliseconds patience, int newcomers) const;
  void check_agree(std::chrono::milliseconds patience) const;

  /// See Regrouping::begin().
  void begin_shrink(TimePoint now, std::chrono::milliseconds patience, const Demands& demands);
  void begin_grow(TimePoint now, std::chrono::milliseconds patience, int newcomers);
  /// Advances what was begun last, see Regrouping::step(). Returns the parts of the new
  /// communicator once they are made. `lost` has to own the engine while it calls lost().
  std::optional<CommunicatorParts> step(TimePoint now, const Regrouping::Lost& lost);
  TimePoint next_step() const noexcept { return under_way_->next_step(); }

  /// Returns the agreements on flags, for a caller that has called check_agree().
  Agreeing& agreeing();

  /// Returns which ranks are known to have ended, indexed by rank. For the owner of the engine.
  std::vector<bool> lost();

 private:
  void check(std::string_view call, std::chrono::milliseconds patience) const;
  void begin(std::unique_ptr<Regrouping>& what, std::string_view call, TimePoint now,
             std::chrono::milliseconds patience, const Demands& demands);

  CommunicatorParts join(const Regrouped& members, const std::shared_ptr<WatchedStore>& store,
                         TimePoint deadline);

  const CommunicatorParts& parts_;
  // Null before the first call.
  std::unique_ptr<Regrouping> shrinking_, growing_;
  std::unique_ptr<Agreeing> agreeing_;
  Regrouping* under_way_ = nullptr;  // one of these two
  std::optional<CommunicatorParts> made_;
  // joining_ holds the ranks of this communicator that make the new one, and last_members_ those
  // that have made the last one.
  std::vector<int> joining_, last_members_;
  std::vector<bool> ended_;     // what lost() has returned last
  std::vector<bool> unusable_;  // by rank: the connection carries no new communicator
  bool connects_anew_ = false;  // after an attempt over the connections that there are
};

}  // namespace tutti
