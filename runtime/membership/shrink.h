// Those ranks of a communicator that are alive agree on a new one, over the store it came from.
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

/// What they have agreed on.
struct Survivors {
  std::vector<int> members;  ///< Ranks of the old communicator, in order.
  std::string name;          ///< Of the new one, in the store.
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
  Shrinking(std::shared_ptr<Store> store, std::string place, int rank, int size)
      : store_(std::move(store)), place_(std::move(place)), rank_(rank), size_(size) {}

  /// Waits, for `patience` at most, for all ranks but those that are lost, and returns when `join`
  /// has made the new communicator. Where that fails and patience is left, it begins again;
  /// otherwise it throws, and may be called again. It ends at the latest after `patience` and a
  /// quarter of it, or two seconds where that is longer. Once the others have gone on without this
  /// rank, it throws `timeout`, now and at every later call, since a second group beside theirs
  /// would act as if it were the job.
  void run(std::chrono::milliseconds patience, const Lost& lost, const Join& join);

 private:
  class Round;

  std::optional<Error> attempt(Round& round, TimePoint until, std::chrono::milliseconds to_join,
                               const Lost& lost, const Join& join);
  [[noreturn]] void leave_out(std::vector<int> members);

  const std::shared_ptr<Store> store_;
  const std::string place_;
  const int rank_, size_;
  int rounds_ = 0;          // The number of rounds that have ended.
  bool under_way_ = false;  // One more round has begun, and this rank does not know how it ended.
  std::optional<Error> left_out_;
};

}  // namespace tutti
