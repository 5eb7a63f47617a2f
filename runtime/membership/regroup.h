// The agreement by which those ranks of a communicator that are alive make a new one, with or
// without newcomers, over the store in which it was made.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <tutti/error.hpp>
#include <tutti/store.hpp>

#include "common/clock.h"
#include "runtime/membership/newcomer.h"
#include "runtime/membership/round.h"

namespace tutti {

/// One rank's part in the agreements of one communicator's ranks. One thread at a time may use it.
///
/// An agreement goes in rounds, each with keys of its own in the store and two decisions
/// (rendezvous/decision.h). The first is who the members are, which the first rank proposes that
/// has waited enough. The members join each other. The second is whether the round counts, as it
/// does if all have joined; otherwise all go on to the next round. So either all members get the
/// new communicator or none does, wherever a rank ends, and a rank that is not a member learns that
/// at its own round, however late it comes.
class Regrouping {
 public:
  /// Returns, by rank, which ranks are known to have ended. It is called again and again. Where it
  /// throws, this rank gives up: as long as nothing has been made, step() throws the same.
  using Lost = std::function<std::vector<bool>()>;
  /// Makes the new communicator by `deadline`, over `store`, whose waits throw `peer_lost` when one
  /// of the members has ended. When it is called again, what it made before is dropped.
  using Join = std::function<void(const Regrouped& regrouped, std::shared_ptr<WatchedStore> store,
                                  TimePoint deadline)>;
  /// Returns whether a member of what Join has made, which may be a newcomer, is known to have
  /// ended.
  using Broken = std::function<bool()>;

  /// `place` is a prefix of keys in `store` that nothing else uses; `call` names the call in
  /// messages.
  Regrouping(std::shared_ptr<Store> store, std::string place, int rank, int size, std::string call);
  ~Regrouping();
  Regrouping(const Regrouping&) = delete;
  Regrouping& operator=(const Regrouping&) = delete;

  /// Begins the agreement, which has `patience`. Fewer ranks than `demands` says do not go on, nor
  /// fewer than another of them demands. Throws `timeout` once the others have gone on
  /// without this rank, now and at every later call, since a second group beside theirs would act
  /// as if it were the job.
  void begin(TimePoint now, std::chrono::milliseconds patience, const Demands& demands);

  /// Does what can be done now; returns true when `join` has made the new communicator and all
  /// have. If it returns false, it has to be called again at next_step(). It waits only for the
  /// answers of the store, and in `join`. This rank waits, for its patience at most, for all ranks
  /// but those that are lost, and while those that are here are too few, for the lost ones, too: a
  /// rank may have lost its connections and not the others theirs. Where the store did not answer
  /// until the patience had ended, the others get a second more. If a round fails and patience is
  /// left, another one begins; otherwise it throws, and begin() may be called again. It ends at the
  /// latest after the patience and a quarter of it, or two seconds where that is longer; where the
  /// store did not answer, after twice as long and a second.
  bool step(
      TimePoint now, const Lost& lost, const Join& join,
      const Broken& broken = [] { return false; });
  TimePoint next_step() const noexcept { return next_step_; }
  /// Returns for whom the last step() would have waited: see Round::awaited().
  int awaited() const noexcept { return awaited_; }

 private:
  enum class Phase {
    gathering,  ///< Until all are here, or patience has run out, and the members are written down.
    /// This rank has joined the other members, or has not: until it is decided whether all have.
    concluding,
  };

  std::unique_ptr<Round> make_round() const;
  void begin_round(TimePoint now);
  void end_round();
  void allow_for_stall(TimePoint now);
  bool pause(TimePoint now);
  std::optional<Regrouped> gather(TimePoint now, const Lost& lost);
  std::optional<Regrouped> skip_abandoned(TimePoint now);
  void join_members(TimePoint now, const Lost& lost, const Join& join);
  bool any_has_ended(const Lost& lost, const Broken& broken) const;
  std::optional<bool> verdict(TimePoint now, const Lost& lost, const Broken& broken);
  bool conclude(TimePoint now, const Lost& lost, const Broken& broken);
  void check_another_round(TimePoint now) const;
  void check_newcomers(const std::vector<std::int64_t>& newcomers) const;
  void check_none_lost(const std::vector<bool>& lost) const;
  [[noreturn]] void too_few(const Regrouped& all) const;
  [[noreturn]] void leave_out(Regrouped all);

  const std::shared_ptr<Store> store_;
  const std::string place_;
  const int rank_, size_;
  const std::string call_;
  int rounds_ = 0;          // The number of rounds that have ended.
  bool under_way_ = false;  // One more round has begun, and this rank does not know how it ended.
  std::optional<Error> left_out_;
  Newcomers newcomers_;

  // The state of the agreement that is under way.
  Demands demands_;
  TimePoint until_{};   // until when it waits for the others
  TimePoint latest_{};  // until_ is no more than kAfterStall later
  std::chrono::milliseconds to_join_{};
  TimePoint next_step_{};
  std::chrono::milliseconds pause_{};
  std::unique_ptr<Round> round_;
  Phase phase_ = Phase::gathering;
  bool abandoned_ = false;  // This rank gives the round up, see begin().
  Regrouped regrouped_;
  int awaited_ = -1;
  std::optional<Error> not_joined_;  // Why `join` failed.
};

}  // namespace tutti
