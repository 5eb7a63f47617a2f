// What each algorithm that can serve a call would cost on this machine, and which one is taken.
#pragma once

#include <map>
#include <mutex>
#include <string_view>
#include <tuple>
#include <vector>

#include "collectives/planning/select.h"
#include "common/machine_costs.h"

namespace tutti {

/// More ranks are not priced: it would take milliseconds (docs/selection.md).
inline constexpr int kMostPricedRanks = 16;
/// Calls of more bytes are priced as those of so many: nothing changes there any more.
inline constexpr std::size_t kMostPricedBytes = std::size_t{64} << 30;

struct Candidate {
  std::uint32_t algorithm = 0;  ///< Index in algorithms().
  std::size_t message_bytes = 0;
  Picoseconds predicted = 0;
};

/// `bytes` rounded down to two significant bits: sizes that share a price.
std::size_t size_class(std::size_t bytes);

/// The prices of calls, by where their ranks run. A pure function of the costs, but for what it
/// remembers: ranks with equal costs choose alike. Thread-safe.
class PriceList {
 public:
  explicit PriceList(const MachineCosts& costs) : costs_(costs) {}

  const MachineCosts& costs() const noexcept { return costs_; }

  /// All that can serve the call, each with the message size at which it is cheapest, the cheapest
  /// first. Empty where nothing is priced: more than kMostPricedRanks, or lengths that only pairs
  /// of ranks know.
  std::vector<Candidate> candidates(const SelectRequest& request);

  /// As tutti::choose(), but that the cheapest is taken where the table's choice costs more by the
  /// costs' error_percent, and that messages are as large as is cheapest.
  Choice choose(const SelectRequest& request, std::string_view forced, bool by_call = false);

 private:
  using Key = std::tuple<Collective, std::size_t, int, int, std::size_t, std::size_t, bool, bool,
                         bool, Spread, std::vector<int>, std::vector<int>>;
  static Key key_of(const SelectRequest& request);
  static constexpr std::size_t kMostKept = 1024;

  Choice cheapest(const SelectRequest& request);
  std::vector<Candidate> priced(const SelectRequest& request) const;
  Candidate cheapest_size(Candidate candidate, const SelectRequest& request) const;
  Picoseconds price(std::uint32_t algorithm, std::size_t message_bytes,
                    const SelectRequest& request) const;
  bool clearly_less(Picoseconds a, Picoseconds b) const;

  const MachineCosts costs_;
  std::mutex mutex_;
  std::map<Key, std::vector<Candidate>> priced_;  // by size class; guarded by mutex_
  std::map<Key, Choice> chosen_;                  // of calls that name no algorithm; as priced_
};

}  // namespace tutti
