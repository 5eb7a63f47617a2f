#include "topology/search/tours.h"

#include <algorithm>
#include <cassert>
#include <cstdint>

namespace tutti {
namespace {

std::vector<int> nearest_neighbours(const Distances& distances, int first) {
  std::vector<int> tour{first};
  std::vector<bool> visited(static_cast<std::size_t>(distances.places));
  visited[static_cast<std::size_t>(first)] = true;
  while (static_cast<int>(tour.size()) < distances.places) {
    int nearest = -1;
    for (int place = 0; place < distances.places; ++place)
      if (!visited[static_cast<std::size_t>(place)] &&
          (nearest < 0 || distances.at(tour.back(), place) < distances.at(tour.back(), nearest)))
        nearest = place;
    visited[static_cast<std::size_t>(nearest)] = true;
    tour.push_back(nearest);
  }
  return tour;
}

/// Moves the places [begin, begin + count) of the tour behind another one if that makes it shorter.
bool move_places(std::vector<int>& tour, std::size_t begin, std::size_t count,
                 const Distances& distances) {
  const std::size_t size = tour.size();
  const auto at = [&](std::size_t index) { return tour[index % size]; };
  const int before = at(begin + size - 1), first = at(begin), last = at(begin + count - 1),
            after = at(begin + count);
  const double won =
      distances.at(before, first) + distances.at(last, after) - distances.at(before, after);
  for (std::size_t behind = begin + count; behind + 1 < begin + size; ++behind) {
    const int left = at(behind), right = at(behind + 1);
    const double lost =
        distances.at(left, first) + distances.at(last, right) - distances.at(left, right);
    if (lost >= won - 1e-9) continue;
    std::vector<int> moved;
    for (std::size_t k = begin + count; k <= behind; ++k) moved.push_back(at(k));
    for (std::size_t k = 0; k < count; ++k) moved.push_back(at(begin + k));
    for (std::size_t k = behind + 1; k < begin + size; ++k) moved.push_back(at(k));
    tour = std::move(moved);
    return true;
  }
  return false;
}

bool improve(std::vector<int>& tour, const Distances& distances, StepBudget& budget) {
  for (std::size_t count = 1; count <= 3 && count + 2 <= tour.size(); ++count)
    for (std::size_t begin = 0; begin < tour.size(); ++begin) {
      budget.spend(static_cast<std::int64_t>(tour.size()));
      if (move_places(tour, begin, count, distances)) return true;
    }
  return false;
}

}  // namespace

double length_of(const std::vector<int>& tour, const Distances& distances) {
  double length = 0;
  for (std::size_t at = 0; at < tour.size() && tour.size() > 1; ++at)
    length += distances.at(tour[at], tour[(at + 1) % tour.size()]);
  return length;
}

std::vector<int> shortest_tour(const Distances& distances, StepBudget& budget) {
  assert(distances.places >= 1 && distances.places <= kMostExactPlaces);
  const int others = distances.places - 1;  // place 0 begins; bit k stands for place k + 1
  if (others == 0) return {0};
  const std::size_t sets = std::size_t{1} << others;
  const auto width = static_cast<std::size_t>(others);
  budget.spend(static_cast<std::int64_t>(sets * width * width));
  std::vector<double> length(sets * width, 4 * kNoWay);
  std::vector<std::int8_t> before(sets * width, -1);
  for (int last = 0; last < others; ++last)
    length[(std::size_t{1} << last) * width + static_cast<std::size_t>(last)] =
        distances.at(0, last + 1);
  for (std::size_t set = 1; set < sets; ++set)
    for (int last = 0; last < others; ++last) {
      if ((set >> last & 1) == 0) continue;
      const double so_far = length[set * width + static_cast<std::size_t>(last)];
      for (int next = 0; next < others; ++next) {
        if ((set >> next & 1) != 0) continue;
        const std::size_t there =
            (set | std::size_t{1} << next) * width + static_cast<std::size_t>(next);
        const double longer = so_far + distances.at(last + 1, next + 1);
        if (longer >= length[there]) continue;
        length[there] = longer;
        before[there] = static_cast<std::int8_t>(last);
      }
    }
  std::size_t set = sets - 1;
  int last = 0;
  for (int end = 1; end < others; ++end)
    if (length[set * width + static_cast<std::size_t>(end)] + distances.at(end + 1, 0) <
        length[set * width + static_cast<std::size_t>(last)] + distances.at(last + 1, 0))
      last = end;
  std::vector<int> tour;
  while (last >= 0) {
    tour.push_back(last + 1);
    const int previous = before[set * width + static_cast<std::size_t>(last)];
    set ^= std::size_t{1} << last;
    last = previous;
  }
  tour.push_back(0);
  std::reverse(tour.begin(), tour.end());
  return tour;
}

std::vector<int> short_tour(const Distances& distances, StepBudget& budget) {
  std::vector<int> best;
  for (int first = 0; first < distances.places; ++first) {
    budget.spend(std::int64_t{distances.places} * distances.places);
    std::vector<int> tour = nearest_neighbours(distances, first);
    while (improve(tour, distances, budget)) {
    }
    if (best.empty() || length_of(tour, distances) < length_of(best, distances) - 1e-9)
      best = std::move(tour);
  }
  std::rotate(best.begin(), std::find(best.begin(), best.end(), 0), best.end());
  return best;
}

}  // namespace tutti
