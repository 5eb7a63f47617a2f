// Newcomers: processes that come to a running job. They take numbers from its store, and wait there
// until the ranks of a communicator that grows call them.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <tutti/config.hpp>
#include <tutti/store.hpp>

#include "common/clock.h"
#include "common/secret.h"
#include "runtime/communicator_parts.h"
#include "runtime/membership/round.h"

namespace tutti {

/// The newcomers to a job, as one rank sees them. One thread at a time may use it.
class Newcomers {
 public:
  /// Returns the numbers of those that wait, in ascending order, without those that are known to
  /// have ended. Asks the store only for those that may still wait. Throws what the store throws,
  /// like all functions here.
  std::vector<std::int64_t> waiting(Store& store, Store::Deadline deadline);

 private:
  std::int64_t seen_ = 0;               // the last number that was taken
  std::vector<std::int64_t> may_wait_;  // of the numbers up to that, in ascending order
};

/// Whether the newcomer is known to have ended. Only a process on its machine can know.
bool newcomer_has_ended(Store& store, std::int64_t newcomer, Store::Deadline deadline);

/// Calls the newcomers of `all` into the round at `round`, where they have `to_join`. `ranks` is
/// the number of ranks of the communicator that grows. They do not wait any more after that. Throws
/// `peer_lost` where another communicator has called one of them.
void call_newcomers(Store& store, const Regrouped& all, const std::string& round, int ranks,
                    std::chrono::milliseconds to_join, Store::Deadline deadline);

/// The group that a newcomer is called to.
struct CalledTo {
  std::string name, round;   // of the new communicator, and of the round in which it is made
  int rank = 0, size = 0;    // in the new communicator
  int ranks = 0;             // of the communicator that grows
  std::int64_t to_join = 0;  // in milliseconds
};

/// One coming of a newcomer: it takes a number, waits to be called, and gives the number up where
/// it is not. One thread at a time may use it.
class Coming {
 public:
  explicit Coming(const std::shared_ptr<Store>& store);
  ~Coming();
  Coming(const Coming&) = delete;
  Coming& operator=(const Coming&) = delete;

  /// Returns to which group the ranks of the job have called this process. Throws `timeout` where
  /// they have not by the deadline.
  CalledTo await_call(Store::Deadline deadline);

 private:
  const std::shared_ptr<Store> store_;
  const std::int64_t number_;
  bool called_ = false;
};

/// Returns whether the round of a newcomer counts, once that is decided: it has `joined` the `size`
/// members or has not, and proposes what it knows. It is called again and again, and never waits.
std::optional<bool> newcomers_verdict(Round& round, int size, bool joined, TimePoint now,
                                      const std::function<bool()>& any_has_ended);

/// Implements Communicator::join() over the store of the job, whose secret is `secret`: waits until
/// this process is called, and joins the new communicator. It comes again where not all could join.
/// Throws `timeout` where nobody has called it by the deadline.
CommunicatorParts join_as_newcomer(const std::shared_ptr<Store>& store, const Config& config,
                                   const Secret& secret, TimePoint deadline);

}  // namespace tutti
