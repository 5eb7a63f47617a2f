#include "collectives/planning/spread.h"

#include <algorithm>
#include <functional>
#include <set>

namespace tutti {

Spread spread_over(std::span<const int> machines) {
  const auto next = std::adjacent_find(machines.begin(), machines.end(), std::not_equal_to());
  if (next == machines.end()) return Spread::one_machine;
  const auto each = static_cast<std::size_t>(next - machines.begin()) + 1;
  if (each == 1 || machines.size() % each != 0) return Spread::machines;
  std::set<int> seen;
  for (std::size_t first = 0; first < machines.size(); first += each) {
    const std::span<const int> group = machines.subspan(first, each);
    const bool alike =
        std::count(group.begin(), group.end(), group.front()) == static_cast<std::ptrdiff_t>(each);
    if (!alike || !seen.insert(group.front()).second) return Spread::machines;
  }
  return Spread::even_machines;
}

}  // namespace tutti
