// Those ranks of a communicator that are alive agree on a new one, over the store it came from.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include <tutti/store.hpp>

#include "common/clock.h"

namespace tutti {

/// What they have agreed on.
struct Survivors {
  std::vector<int> members;  ///< Ranks of the old communicator, in order.
  std::string name;          ///< Of the new one, in the store.
};

/// Every rank that is alive calls it with the same `place`, which no other agreement has in the
/// store. Waits for all but those that `lost` names (by rank; asked again and again), until `until`
/// at most: whoever is first to have waited enough decides for all. Throws `timeout` where the
/// others have gone on without this rank, or who decides has not said how by `deadline`; and what
/// the store throws.
Survivors agree_on_survivors(Store& store, const std::string& place, int rank, int size,
                             const std::function<std::vector<bool>()>& lost, TimePoint until,
                             TimePoint deadline);

}  // namespace tutti
