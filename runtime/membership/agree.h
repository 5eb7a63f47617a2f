// The agreement of a communicator's ranks on flags, over the store in which it was made.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <tutti/communicator.hpp>
#include <tutti/store.hpp>

#include "common/clock.h"
#include "rendezvous/decision.h"

namespace tutti {

/// One rank's part in the agreements of one communicator's ranks, which are numbered: each rank
/// counts its own. One thread at a time may use it.
///
/// Each rank writes its flags down. The first rank that has waited enough proposes the AND of all
/// flags that are there (rendezvous/decision.h). What is decided is the result on every rank,
/// however late it asks.
class Agreeing {
 public:
  /// Returns, by rank, which ranks are known to have ended. It is called again and again.
  using Lost = std::function<std::vector<bool>()>;

  /// `place` is a prefix of keys in `store` that nothing else uses.
  Agreeing(std::shared_ptr<Store> store, std::string place, int rank, int size);

  /// Begins the next agreement, which has `patience`; where the last one ended by an exception,
  /// that one again, in which this rank's first flags count.
  void begin(TimePoint now, std::uint64_t flags, std::chrono::milliseconds patience);

  /// Does what can be done now, and returns the result once there is one; otherwise it has to be
  /// called again at next_step(). It waits only for the answers of the store. This rank waits, for
  /// its patience at most, for all ranks but those that are lost. Throws what the store throws, and
  /// `corrupt` where the store holds something else.
  std::optional<Agreement> step(TimePoint now, const Lost& lost);
  TimePoint next_step() const noexcept { return next_step_; }
  /// Returns the first rank for which the last step() would have waited, or -1.
  int awaited() const noexcept { return awaited_; }

 private:
  bool complete(const std::vector<bool>& lost, Store::Deadline deadline);
  std::string proposal(Store::Deadline deadline) const;
  Agreement parsed(const std::string& text) const;
  std::string key(std::string_view what, int rank) const;

  const std::shared_ptr<Store> store_;
  const std::string place_;
  const int rank_, size_;
  std::uint64_t number_ = 0;  // the number of agreements that have ended

  // The state of the agreement that is under way.
  bool told_ = false;  // This rank's flags are written down.
  std::string flags_;
  TimePoint until_{};
  TimePoint next_step_{};
  std::chrono::milliseconds pause_{};
  std::vector<bool> here_;  // indexed by rank
  int awaited_ = -1;
  std::optional<Decision> decision_;
};

}  // namespace tutti
