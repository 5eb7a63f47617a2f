#include "rendezvous/decision.h"

#include <cassert>

#include <fmt/format.h>

namespace tutti {

std::string Decision::key(std::string_view what) const {
  return fmt::format("{}/{}", place_, what);
}
std::string Decision::key(std::string_view what, std::int64_t ballot) const {
  return fmt::format("{}/{}/{}", place_, what, ballot);
}

std::optional<std::string> Decision::look(Store::Deadline deadline) {
  // The value is there before the number that says so. Adding 0 reads a number without waiting.
  if (!decided_ && store_.add(key("decided"), 0, deadline) > 0)
    decided_ = store_.get(key("value"), deadline);
  return decided_;
}

// Returns the value that the highest ballot below this one has written, or none if none has.
std::optional<std::string> Decision::written_before(std::int64_t ballot, Store::Deadline deadline) {
  while (--ballot > 0)
    if (store_.add(key("wrote", ballot), 0, deadline) > 0)
      return store_.get(key("ballot", ballot), deadline);
  return std::nullopt;
}

std::optional<std::string> Decision::propose(std::string_view value, Store::Deadline deadline) {
  if (look(deadline)) return decided_;
  // A ballot that this rank did not know of gets the time until the next call to decide. Without
  // that, two ranks might overtake each other for ever.
  const std::int64_t last = store_.add(key("ballots"), 0, deadline);
  if (last != seen_) {
    seen_ = last;
    return std::nullopt;
  }
  const std::int64_t ballot = store_.add(key("ballots"), 1, deadline);
  assert(ballot > last);
  seen_ = ballot;
  const std::string chosen = written_before(ballot, deadline).value_or(std::string(value));
  store_.set(key("ballot", ballot), chosen, deadline);
  store_.add(key("wrote", ballot), 1, deadline);
  if (store_.add(key("ballots"), 0, deadline) != ballot) return std::nullopt;
  store_.set(key("value"), chosen, deadline);
  store_.add(key("decided"), 1, deadline);
  return decided_ = chosen;
}

}  // namespace tutti
