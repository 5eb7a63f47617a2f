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

/// One rank's part in the agreements of one communicator's ranks. One thread at a time.
///
/// They go by rounds, each with a place of its own in the store. Whoever is first to have waited
/// enough says who is in; these join each other; and the round counts when all of them have, else
/// all go on to the next. So either all members have the new communicator, or none has, and who is
/// not among them learns that at its round, however late it comes.
class Shrinking {
 public:
  /// By rank, who is known to have ended. Asked again and again.
  using Lost = std::function<std::vector<bool>()>;
  /// Makes the new communicator, by `deadline`, over `store`, whose waits throw `peer_lost` when
  /// one of the members has ended. A later one takes the place of an earlier one.
  using Join = std::function<void(const Survivors& survivors, std::shared_ptr<Store> store,
                                  TimePoint deadline)>;

  /// `place`: in `store`, that nothing else has.
  Shrinking(std::shared_ptr<Store> store, std::string place, int rank, int size)
      : store_(std::move(store)), place_(std::move(place)), rank_(rank), size_(size) {}

  /// Waits for all but those that are lost, for `patience` at most, and returns when `join` has
  /// made the new communicator. Where that does not come about, with patience left it begins again;
  /// else it throws, and may be called again. Ends when patience does, or within two seconds or a
  /// quarter of it more. Throws `timeout` once the others have gone on without this rank, again and
  /// again: a group of its own beside theirs would go on as if it were the job.
  void run(std::chrono::milliseconds patience, const Lost& lost, const Join& join);

 private:
  class Round;

  std::optional<Error> attempt(Round& round, TimePoint until, std::chrono::milliseconds to_join,
                               const Lost& lost, const Join& join);
  [[noreturn]] void leave_out(std::vector<int> members);

  const std::shared_ptr<Store> store_;
  const std::string place_;
  const int rank_, size_;
  int rounds_ = 0;          // that have ended
  bool under_way_ = false;  // one more, of which this rank does not know how it ends
  std::optional<Error> left_out_;
};

}  // namespace tutti
