// The predicted cost on this machine of each algorithm that can serve a call, and the choice by
// these costs.
#pragma once

#include <map>
#include <mutex>
#include <string_view>
#include <vector>

#include "collectives/planning/machine_costs.h"
#include "collectives/planning/select.h"

namespace tutti {

/// Calls of more ranks are not priced, because that would take milliseconds (docs/selection.md).
inline constexpr int kMostPricedRanks = 16;
/// Calls of more bytes are priced as calls of this many: larger sizes do not change the choice.
inline constexpr std::size_t kMostPricedBytes = std::size_t{64} << 30;

struct Candidate {
  std::uint32_t algorithm = 0;  ///< Index in algorithms().
  std::size_t message_bytes = 0;
  Picoseconds predicted = 0;
};

/// Returns `bytes` rounded down to two significant bits; all sizes with the same result share a
/// price.
std::size_t size_class(std::size_t bytes);

/// The prices of calls for ranks at given places. Apart from what it caches, it is a pure function
/// of the costs, so ranks with equal costs choose alike. Thread-safe.
class PriceList {
 public:
  explicit PriceList(const MachineCosts& costs) : costs_(costs) {}

  const MachineCosts& costs() const noexcept { return costs_; }

  /// Returns all algorithms that can serve the call, each with its cheapest message size, the
  /// cheapest first. The list is empty where nothing is priced: for more than kMostPricedRanks, or
  /// for lengths that only pairs of ranks know.
  std::vector<Candidate> candidates(const SelectRequest& request);

  /// Chooses as tutti::choose() does, with two differences: the cheapest algorithm is used if the
  /// table's choice costs more by at least the costs' error_percent, and messages have the size
  /// that is cheapest.
  Choice choose(const SelectRequest& request, std::string_view forced, bool by_call = false);

 private:
  static constexpr std::size_t kMostKept = 1024;

  Choice cheapest(const SelectRequest& request);
  std::vector<Candidate> priced(const SelectRequest& request) const;
  Candidate cheapest_size(Candidate candidate, const SelectRequest& request) const;
  Picoseconds price(std::uint32_t algorithm, std::size_t message_bytes,
                    const SelectRequest& request) const;
  bool clearly_less(Picoseconds a, Picoseconds b) const;

  const MachineCosts costs_;
  std::mutex mutex_;
  std::map<SelectRequest, std::vector<Candidate>>
      priced_;  // prices by size class; guarded by mutex_
  std::map<SelectRequest, Choice>
      chosen_;  // choices for calls that name no algorithm; guarded by mutex_
};

}  // namespace tutti
