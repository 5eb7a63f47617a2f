// Finds shortest tours through all places, for the search for rings.
#pragma once

#include <vector>

#include "topology/search/flow.h"

namespace tutti {

/// Holds the length of the way from each place to each other one: `lengths[from * places + to]`,
/// none of them negative. Where there is no way, the length is kNoWay.
struct Distances {
  int places = 0;
  std::vector<double> lengths;

  double at(int from, int to) const {
    return lengths[static_cast<std::size_t>(from) * static_cast<std::size_t>(places) +
                   static_cast<std::size_t>(to)];
  }
};
inline constexpr double kNoWay = 1e6;

/// The most places for which the shortest tour is found for certain.
inline constexpr int kMostExactPlaces = 16;

/// Returns the length of the tour, with the way back to its first place.
double length_of(const std::vector<int>& tour, const Distances& distances);

/// Returns a shortest tour through all places that begins at place 0, by dynamic programming (Held
/// and Karp 1962). There are 1 to kMostExactPlaces places.
std::vector<int> shortest_tour(const Distances& distances, StepBudget& budget);
/// Returns a short tour: the nearest neighbour from each place, made shorter by moving up to three
/// places at a time (Or 1976) until nothing is won.
std::vector<int> short_tour(const Distances& distances, StepBudget& budget);

}  // namespace tutti
