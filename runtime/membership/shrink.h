// The agreement by which those ranks of a communicator that are alive make a new one, over the
// store in which it was made.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <tutti/error.hpp>
#include <tutti/store.hpp>

#include "common/clock.h"

namespace tutti {

/// The result of the agreement.
struct Survivors {
  std::vector<int> members;  ///< Ranks of the old communicator, in order.
  std::string name;          ///< The name of the new communicator in the store.
};

/// One rank's part in the agreements of one communicator's ranks. One thread at a time may use it.
///
/// An agreement goes in rounds, each with keys of its own in the store. The first rank that has
/// waited enough writes down who the members are. The members join each other, and the round counts
/// once all of them have; otherwise all go on to the next round. So either all members get the new
/// communicator or none does, and a rank that is not a member learns that at its own round, however
/// late it comes.
class Shrinking {
 public:
  /// Returns, by rank, which ranks are known to have ended. It is called again and again.
  using Lost = std::function<std::vector<bool>()>;
  /// Makes the new communicator by `deadline`, over `store`, whose waits throw `peer_lost` when one
  /// of the members has ended. When it is called again, what it made before is dropped.
  using Join = std::function<void(const Survivors& survivors, std::shared_ptr<Store> store,
                                  TimePoint deadline)>;

  /// `place` is a prefix of keys in `store` that nothing else uses.
  Shrinking(std::shared_ptr<Store> store, std::string place, int rank, int size);
  ~Shrinking();
  Shrinking(const Shrinking&) = delete;
  Shrinking& operator=(const Shrinking&) = delete;

  /// Begins the agreement, which has `patience`. Throws `timeout` once the others have gone on
  /// without this rank, now and at every later call, since a second group beside theirs would act
  /// as if it were the job.
  void begin(TimePoint now, std::chrono::milliseconds patience);

  /// Does what can be done now; returns true when `join` has made the new communicator and all
  /// have. If it returns false, it has to be called again at next_step(). It waits only for the
  /// answers of the store, and in `join`. This rank waits, for its patience at most, for all ranks
  /// but those that are lost. If a round fails and patience is left, another one begins; otherwise
  /// it throws, and begin() may be called again. It ends at the latest after the patience and a
  /// quarter of it, or two seconds where that is longer.
  bool step(TimePoint now, const Lost& lost, const Join& join);
  TimePoint next_step() const noexcept { return next_step_; }

 private:
  class Round;
  enum class Phase {
    gathering,  ///< Until all are here, or patience has run out, and the members are written down.
    joining,    ///< The members join each other; then they wait until all have.
  };

  void begin_round(TimePoint now);
  void end_round();
  bool pause(TimePoint now);
  bool gather(TimePoint now, const Lost& lost);
  void join_members(TimePoint now, const Lost& lost, const Join& join);
  bool conclude(TimePoint now);
  [[noreturn]] void leave_out(std::vector<int> members);

  const std::shared_ptr<Store> store_;
  const std::string place_;
  const int rank_, size_;
  int rounds_ = 0;          // The number of rounds that have ended.
  bool under_way_ = false;  // One more round has begun, and this rank does not know how it ended.
  std::optional<Error> left_out_;

  // The state of the agreement that is under way.
  TimePoint until_{};
  std::chrono::milliseconds to_join_{};
  TimePoint next_step_{};
  std::chrono::milliseconds pause_{};
  std::unique_ptr<Round> round_;
  Phase phase_ = Phase::gathering;
  Survivors survivors_;
  std::optional<Error> not_joined_;  // Why `join` failed.
};

}  // namespace tutti
