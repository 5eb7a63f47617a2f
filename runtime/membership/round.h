// One round of an agreement on a new communicator, as one rank sees it in the store.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <tutti/store.hpp>

#include "common/clock.h"
#include "rendezvous/decision.h"

namespace tutti {

class Newcomers;

/// The members of a new communicator: ranks of the old one, then newcomers.
struct Regrouped {
  std::vector<int> members;  ///< Ranks of the old communicator, in order.
  /// The newcomers by the numbers that they took from the store, in order.
  std::vector<std::int64_t> newcomers;
  std::string name;  ///< The name of the new communicator in the store; empty if these are too few.

  bool too_few() const noexcept { return name.empty(); }
  std::size_t size() const noexcept { return members.size() + newcomers.size(); }
  bool includes(int rank) const noexcept;
};

/// A rank demands this of the new communicator.
struct Demands {
  int least = 1;      ///< The fewest ranks of the old communicator with which it goes on.
  int newcomers = 0;  ///< The exact number of newcomers.
  /// These ranks of the old communicator do not go on, even if they come. In ascending order.
  std::vector<int> without = {};
  /// `least` is what it is because these ranks have made a new communicator of this one before.
  bool again = false;
};

/// The keys of one round. Throws what the store throws, and `corrupt` where it holds something
/// else. One thread at a time may use it.
class Round {
 public:
  /// `place` is a prefix of keys in `store`, which outlives this object, that nothing else uses.
  /// `size` is the number of ranks of the old communicator. Requests have until `deadline`, or a
  /// second from now where that is later.
  Round(Store& store, std::string place, int size, TimePoint deadline);

  /// This rank is here, and demands what all ranks demand, except for `least`.
  void come(int rank, const Demands& demands, TimePoint now);
  /// Looks who is here, `newcomers` included. Returns whether all ranks are except those that are
  /// lost. Throws `mismatch` if ranks demand different numbers of newcomers, or leave out different
  /// ranks.
  bool complete(const std::vector<bool>& lost, Newcomers& newcomers, TimePoint now);
  /// Returns whether those that are here and not lost are as many as each of them demands.
  bool enough(const std::vector<bool>& lost) const;
  /// Returns the first rank that is missing and not lost, or RingHead::kNewcomers if newcomers are,
  /// or the first rank that is lost, if those that are here are too few; else -1.
  int awaited(const std::vector<bool>& lost) const;

  /// Returns who the members are, once that is decided.
  std::optional<Regrouped> outcome(TimePoint now);
  /// Has it decided that those that are here and not lost are the members, or that they are too
  /// few. A rank that has come and is lost again is not a member. Returns none if others are at it.
  std::optional<Regrouped> decide(const std::vector<bool>& lost, TimePoint now);

  /// This rank has joined the other members.
  void join(TimePoint now);
  bool all_joined(std::size_t members, TimePoint now);
  /// Returns whether the round counts, because all members have joined, once that is decided.
  std::optional<bool> verdict(TimePoint now);
  /// Has it decided that the round counts, or that it does not. Returns none if others are at it.
  std::optional<bool> conclude(bool made, TimePoint now);

  TimePoint deadline() const noexcept { return deadline_; }
  /// Puts the deadline off, if `deadline` is later.
  void extend(TimePoint deadline) noexcept { deadline_ = std::max(deadline_, deadline); }
  const std::string& place() const noexcept { return place_; }

 private:
  bool is_here(std::size_t rank) const { return least_[rank] > 0; }
  void check_alike(std::size_t rank, std::int64_t said) const;
  Regrouped present(const std::vector<bool>& lost) const;
  std::optional<Regrouped> parsed(const std::optional<std::string>& text) const;
  TimePoint soon(TimePoint now) const;
  std::string key(std::string_view what) const;
  std::string key(std::string_view what, int rank) const;

  Store& store_;
  const std::string place_;
  TimePoint deadline_;
  Demands demands_;
  std::vector<std::int64_t> least_;      // indexed by rank: what it demands; 0 if it is not here
  std::vector<std::int64_t> newcomers_;  // those that wait
  std::string name_;                     // the name that this rank proposes
  Decision members_, verdict_;
};

/// A store whose waits call `check` now and then, which throws where waiting is in vain: at first
/// after 100 ms, then less often, down to once a second.
class WatchedStore final : public Store {
 public:
  WatchedStore(std::shared_ptr<Store> store, std::function<void()> check)
      : store_(std::move(store)), check_(std::move(check)) {}

  void set(std::string_view key, std::string_view value, Deadline deadline) override;
  std::int64_t add(std::string_view key, std::int64_t amount, Deadline deadline) override;
  void wait(std::string_view key, Deadline deadline) override;
  std::string get(std::string_view key, Deadline deadline) override;
  std::string get_unless(std::string_view key, const Unless& unless, Deadline deadline) override;
  void set_when_gone(std::string_view key, std::string_view value, Deadline deadline) override;
  const std::function<void()>& check() const noexcept { return check_; }

 private:
  const std::shared_ptr<Store> store_;
  const std::function<void()> check_;
};

}  // namespace tutti
