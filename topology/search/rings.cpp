#include "topology/search/rings.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <cmath>
#include <numeric>
#include <optional>
#include <set>

#include <tutti/error.hpp>

#include "topology/search/gpu_network.h"
#include "topology/search/packing_program.h"
#include "topology/search/tours.h"

namespace tutti {
namespace {

/// The price of a link that is not used yet, so that shorter paths come first.
constexpr double kLeastPrice = 1e-6;
constexpr double kLongest = 1e3;
constexpr double kEnough = 1e-7;  // a ring that wins less is none
constexpr int kMostTurns = 2000;
/// These say how many rings are tried with all that their links carry, for each ring that is taken;
/// how many more tours are looked for then, in machines of how many GPUs; and what share of the
/// bandwidth may be lost.
constexpr std::size_t kMostTried = 4;
constexpr int kRepairTurns = 40, kMostRepaired = 10;
constexpr double kMostLost = 1e-4;

/// Is a tour through the GPUs and, in a ring of several machines, by one port.
struct Tour {
  std::vector<int> gpus;
  int port;

  bool operator<(const Tour& other) const {
    return std::tie(port, gpus) < std::tie(other.port, other.gpus);
  }
};

/// Holds what is left of the links and rails, by row, in 10^6 bytes a second.
using Capacities = std::vector<std::int64_t>;

/// The rings that fill some capacities best.
struct Filling {
  std::vector<double> amounts;  // by tour, 10^6 bytes a second
  double sum = 0;
  double bound = 0;  // no tours fill more; 0 if that is not known
};

class RingSearch {
 public:
  RingSearch(const Paths& paths, const RingRequest& request, StepBudget& budget)
      : paths_(paths), request_(request), budget_(budget) {
    number_rows();
  }

  RingPlan run(bool begin_disjoint) {
    RingPlan plan;
    const GpuNetwork network = gpu_network(paths_, request_.rails);
    plan.bound_gb_per_s = static_cast<double>(smallest_cut(network, budget_)) / 1000;
    plan.ring_bound_gb_per_s = plan.bound_gb_per_s;
    const std::int64_t half = budget_.left() / 2;
    if (begin_disjoint) begin_with_disjoint();
    Filling filling = fill(capacities_, kMostTurns, true, half);
    if (filling.bound > 0)
      plan.ring_bound_gb_per_s = std::min(plan.bound_gb_per_s, filling.bound / 1000);
    Capacities left = capacities_;
    while (static_cast<int>(plan.rings.size()) < request_.most_rings) {
      const auto [tour, megabytes] = next_ring(left, filling, budget_.left() > half / 2);
      if (megabytes == 0) break;
      take(left, tours_[tour], megabytes);
      add_ring(plan, tours_[tour], megabytes);
    }
    std::stable_sort(plan.rings.begin(), plan.rings.end(),
                     [](const Ring& a, const Ring& b) { return a.gb_per_s > b.gb_per_s; });
    for (const Ring& ring : plan.rings) plan.gb_per_s += ring.gb_per_s;
    return plan;
  }

 private:
  bool leaves() const { return !request_.rails.empty(); }

  // Gives each link that some ring may use a row of the program, and then each rail.
  void number_rows() {
    rows_.assign(paths_.links().size(), -1);
    const int ends = paths_.gpus() + (leaves() ? paths_.ports() : 0);
    for (int from = 0; from < ends; ++from)
      for (int to = 0; to < ends; ++to) {
        if (from >= paths_.gpus() && to >= paths_.gpus()) continue;
        for (const int link : paths_.between(from, to).links) {
          int& row = rows_[static_cast<std::size_t>(link)];
          if (row >= 0) continue;
          row = static_cast<int>(capacities_.size());
          capacities_.push_back(
              mb_per_s_of(paths_.links()[static_cast<std::size_t>(link)].gb_per_s));
        }
      }
    first_rail_ = capacities_.size();
    for (const double rail : request_.rails) capacities_.push_back(mb_per_s_of(rail));
    if (capacities_.size() > PackingProgram::kMostRows)
      throw Error(ErrorKind::unavailable,
                  fmt::format("rings are not searched over {} links: at most {}",
                              capacities_.size(), PackingProgram::kMostRows));
    if (capacities_.empty()) fail_unreachable();
    scale_ = static_cast<double>(
        std::max<std::int64_t>(1, *std::max_element(capacities_.begin(), capacities_.end())));
  }

  [[noreturn]] static void fail_unreachable() {
    throw Error(ErrorKind::unavailable,
                "no ring passes by all GPUs of this topology: there is no path to one of them, or "
                "from one of them");
  }

  // Calls use(row) for each link of the tour, and for its rail.
  template <typename Use>
  void for_rows(const Tour& tour, Use use) const {
    const auto path = [&](int from, int to) {
      for (const int link : paths_.between(from, to).links)
        use(static_cast<std::size_t>(rows_[static_cast<std::size_t>(link)]));
    };
    for (std::size_t at = 0; at + 1 < tour.gpus.size(); ++at)
      path(tour.gpus[at], tour.gpus[at + 1]);
    if (leaves()) {
      path(paths_.gpus() + tour.port, tour.gpus.front());
      path(tour.gpus.back(), paths_.gpus() + tour.port);
      use(first_rail_ + static_cast<std::size_t>(tour.port));
    } else {
      path(tour.gpus.back(), tour.gpus.front());
    }
  }

  Capacities uses_of(const Tour& tour) const {
    Capacities uses(capacities_.size());
    for_rows(tour, [&](std::size_t row) { ++uses[row]; });
    return uses;
  }

  PackingProgram::Column column_of(const Tour& tour) const {
    PackingProgram::Column column;
    const Capacities uses = uses_of(tour);
    for (std::size_t row = 0; row < uses.size(); ++row)
      if (uses[row] > 0) column.push_back({static_cast<int>(row), static_cast<double>(uses[row])});
    return column;
  }

  // Returns the largest ring on this tour.
  std::int64_t room(const Capacities& left, const Tour& tour) const {
    const Capacities uses = uses_of(tour);
    std::int64_t least = FlowNetwork::kUnlimited;
    for (std::size_t row = 0; row < uses.size(); ++row)
      if (uses[row] > 0) least = std::min(least, left[row] / uses[row]);
    return least;
  }

  void take(Capacities& left, const Tour& tour, std::int64_t megabytes) const {
    for_rows(tour, [&](std::size_t row) { left[row] -= megabytes; });
  }

  // Returns the distances between GPUs by the prices of links; where rings leave the machine, place
  // 0 is the port.
  Distances distances(const Capacities& left, const std::vector<double>& prices, int port) const {
    const int shift = leaves() ? 1 : 0;
    Distances found{paths_.gpus() + shift, {}};
    const auto end = [&](int place) {
      return shift == 1 && place == 0 ? paths_.gpus() + port : place - shift;
    };
    for (int from = 0; from < found.places; ++from)
      for (int to = 0; to < found.places; ++to) {
        double length = 0;
        const Path& path = paths_.between(end(from), end(to));
        for (const int link : path.links) {
          const auto row = static_cast<std::size_t>(rows_[static_cast<std::size_t>(link)]);
          const auto capacity = static_cast<double>(std::max<std::int64_t>(1, left[row]));
          length += left[row] == 0 ? kLongest : prices[row] + kLeastPrice * scale_ / capacity;
        }
        const bool way = path.kind != PathKind::none;
        found.lengths.push_back(way ? std::min(length, kLongest) : kNoWay);
      }
    return found;
  }

  Tour tour_by(const Distances& distances, int port, bool exact) {
    std::vector<int> places =
        exact ? shortest_tour(distances, budget_) : short_tour(distances, budget_);
    if (length_of(places, distances) >= kNoWay) fail_unreachable();
    if (leaves()) {
      places.erase(places.begin());
      for (int& place : places) --place;
    }
    return {std::move(places), port};
  }

  // Adds tours each of which takes all that the ones before have left of its links.
  void begin_with_disjoint() {
    Capacities left = capacities_;
    const std::vector<double> free(left.size());
    while (static_cast<int>(tours_.size()) < request_.most_rings) {
      std::optional<Tour> best;
      for (int port = 0; port < (leaves() ? paths_.ports() : 1); ++port) {
        Tour tour = tour_by(distances(left, free, port), leaves() ? port : -1, false);
        if (room(left, tour) > (best ? room(left, *best) : 0)) best = std::move(tour);
      }
      if (!best) return;
      take(left, *best, room(left, *best));
      known_.insert(*best);
      tours_.push_back(std::move(*best));
    }
  }

  // Returns the best amounts for all tours that are known, after finding up to `most_turns` more
  // while more than `reserve` steps are left.
  Filling fill(const Capacities& left, int most_turns, bool certain, std::int64_t reserve) {
    std::vector<double> scaled;
    for (const std::int64_t one : left)
      scaled.push_back(static_cast<double>(std::max<std::int64_t>(1, one)) / scale_);
    PackingProgram program(std::move(scaled));
    std::vector<std::size_t> tours;
    for (std::size_t tour = 0; tour < tours_.size(); ++tour)
      if (room(left, tours_[tour]) > 0) {
        program.add(column_of(tours_[tour]), budget_);
        tours.push_back(tour);
      }
    Filling filling;
    for (int turn = 0; turn < most_turns && budget_.left() > reserve; ++turn) {
      if (!add_tour(program, left, certain, filling)) break;
      tours.push_back(tours_.size() - 1);
    }
    filling.amounts.resize(tours_.size());
    const std::vector<double> amounts = program.amounts();
    for (std::size_t column = 0; column < tours.size(); ++column)
      filling.amounts[tours[column]] = amounts[column] * scale_;
    filling.sum = program.sum() * scale_;
    return filling;
  }

  // Adds the ring that the prices ask for most. Returns whether there is one.
  bool add_tour(PackingProgram& program, const Capacities& left, bool certain, Filling& filling) {
    const int places = paths_.gpus() + (leaves() ? 1 : 0);
    for (const bool exact : {false, true}) {
      if (exact && (!certain || places > kMostExactPlaces)) return false;
      std::optional<Tour> best;
      double least = 1 - kEnough, cheapest = kNoWay;
      for (int port = 0; port < (leaves() ? paths_.ports() : 1); ++port) {
        Tour tour = tour_by(distances(left, program.prices(), port), leaves() ? port : -1, exact);
        const double cost = program.cost(column_of(tour));
        cheapest = std::min(cheapest, cost);
        if (cost >= least || room(left, tour) == 0) continue;
        least = cost;
        best = std::move(tour);
      }
      if (best && known_.insert(*best).second) {
        program.add(column_of(*best), budget_);
        tours_.push_back(std::move(*best));
        return true;
      }
      // All rings cost at least that much, so prices that are divided by it bound their sum.
      if (exact && cheapest > 0.5) filling.bound = program.sum() * scale_ / std::min(1.0, cheapest);
    }
    return false;
  }

  struct Next {
    std::size_t tour;
    std::int64_t megabytes;
  };

  // Returns the next ring, and changes the filling to that of what it leaves. A ring that fills a
  // link makes fewer rings than the program's amounts, and is taken if as much can flow in all;
  // unless `thorough`, amounts are taken as they are.
  Next next_ring(const Capacities& left, Filling& filling, bool thorough) {
    std::vector<std::size_t> order;
    for (std::size_t tour = 0; tour < filling.amounts.size(); ++tour)
      if (filling.amounts[tour] >= 1) order.push_back(tour);
    const std::vector<double> amounts = filling.amounts;
    std::stable_sort(order.begin(), order.end(),
                     [&](std::size_t a, std::size_t b) { return amounts[a] > amounts[b]; });
    if (order.empty()) return {0, 0};
    const auto amount =
        std::min(static_cast<std::int64_t>(amounts[order[0]]), room(left, tours_[order[0]]));
    if (!thorough) {
      filling.amounts[order[0]] = 0;
      return {order[0], amount};
    }
    const double sum = filling.sum;
    const int turns = paths_.gpus() <= kMostRepaired ? kRepairTurns : 0;
    for (std::size_t number = 0; number < std::min(order.size(), kMostTried); ++number) {
      const std::int64_t most = room(left, tours_[order[number]]);
      Capacities rest = left;
      take(rest, tours_[order[number]], most);
      filling = fill(rest, turns, false, 0);
      if (static_cast<double>(most) + filling.sum >= sum * (1 - kMostLost))
        return {order[number], most};
    }
    Capacities rest = left;
    take(rest, tours_[order[0]], amount);
    filling = fill(rest, 0, false, 0);
    return {order[0], amount};
  }

  void add_ring(RingPlan& plan, const Tour& tour, std::int64_t megabytes) const {
    Ring ring{tour.gpus, tour.port, static_cast<double>(megabytes) / 1000, PathKind::loc};
    for (std::size_t at = 0; at + 1 < ring.gpus.size(); ++at)
      ring.worst = std::max(ring.worst, paths_.between(ring.gpus[at], ring.gpus[at + 1]).kind);
    if (!leaves() && ring.gpus.size() > 1)
      ring.worst = std::max(ring.worst, paths_.between(ring.gpus.back(), ring.gpus.front()).kind);
    plan.rings.push_back(std::move(ring));
  }

  const Paths& paths_;
  const RingRequest& request_;
  StepBudget& budget_;
  std::vector<int> rows_;  // of links; -1 for those that no ring uses
  std::size_t first_rail_ = 0;
  Capacities capacities_;
  double scale_ = 1;  // the largest of them
  std::vector<Tour> tours_;
  std::set<Tour> known_;
};

}  // namespace

RingRequest ring_request(const Fabric& fabric) {
  RingRequest request;
  if (fabric.nodes == 1) return request;
  const std::vector<int> ports = fabric.node.all(DeviceKind::port);
  std::vector<double> bandwidths;
  for (const int port : ports) {
    double bandwidth = 0;
    for (const Wire& wire : fabric.node.wires)
      if (wire.to == port) bandwidth += wire.gb_per_s;
    bandwidths.push_back(bandwidth);
  }
  std::vector<double> of_rails(static_cast<std::size_t>(fabric.rails));
  for (std::size_t port = 0; port < ports.size(); ++port)
    of_rails[port % of_rails.size()] += bandwidths[port];
  // The last leaf may have fewer nodes, of which a ring leaves it as it leaves any other one.
  const int rest = fabric.nodes % fabric.nodes_per_leaf;
  const int smallest_leaf = rest > 0 ? rest : fabric.nodes_per_leaf;
  for (std::size_t port = 0; port < ports.size(); ++port) {
    double limit = bandwidths[port];
    if (fabric.nodes_per_leaf < fabric.nodes) {
      // The ports of a rail share what leaves its leaf, in proportion to their bandwidth.
      const double leaving =
          of_rails[port % of_rails.size()] * smallest_leaf / fabric.oversubscription;
      limit = std::min(limit, leaving * bandwidths[port] / of_rails[port % of_rails.size()]);
    }
    request.rails.push_back(limit);
  }
  return request;
}

RingPlan find_rings(const Paths& paths, const RingRequest& request, StepBudget& budget) {
  const int gpus = paths.gpus();
  if (gpus == 0) throw Error(ErrorKind::unavailable, "this topology has no GPUs");
  if (gpus > kMostRingGpus)
    throw Error(ErrorKind::unavailable,
                fmt::format("rings are not searched through {} GPUs of a machine: at most {}", gpus,
                            kMostRingGpus));
  if (gpus == 1 && request.rails.empty()) return {};
  RingPlan best = RingSearch(paths, request, budget).run(true);
  if (gpus > kMostRepaired) return best;
  // The program has many solutions, and another beginning may lead to one with fewer rings.
  RingPlan other = RingSearch(paths, request, budget).run(false);
  const bool as_much = other.gb_per_s >= best.gb_per_s * (1 - kMostLost);
  const bool more = other.gb_per_s > best.gb_per_s * (1 + kMostLost);
  if (more || (as_much && other.rings.size() < best.rings.size())) best = std::move(other);
  return best;
}

}  // namespace tutti
