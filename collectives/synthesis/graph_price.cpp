#include "collectives/synthesis/graph_price.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <map>
#include <tuple>

#include <tutti/error.hpp>

namespace tutti {
namespace {

/// Runs one piece of all ranks' schedules, in which a message takes its latency alone.
class Chains {
 public:
  Chains(std::span<const Schedule> schedules, const Paths& paths, const std::vector<int>& gpus)
      : schedules_(schedules), paths_(paths), gpus_(gpus) {
    for (const Schedule& schedule : schedules) {
      auto& lanes = done_.emplace_back();
      for (const Lane& lane : schedule.lanes) lanes.emplace_back().reserve(lane.steps.size());
    }
  }

  /// Returns when the last step is done.
  double run() {
    double last = 0;
    for (bool moved = true; moved;) {
      moved = false;
      for (std::size_t rank = 0; rank < schedules_.size(); ++rank)
        for (std::size_t lane = 0; lane < schedules_[rank].lanes.size(); ++lane)
          while (advance(static_cast<int>(rank), lane)) {
            moved = true;
            last = std::max(last, done_[rank][lane].back());
          }
    }
    return last;
  }

 private:
  using Channel = std::tuple<int, int, int>;  // from, to, number
  struct Messages {
    std::vector<double> arrivals;
    std::size_t taken = 0;
  };

  // Does the next step of a lane if all that it waits for is done.
  bool advance(int rank, std::size_t lane_number) {
    const Lane& lane = schedules_[static_cast<std::size_t>(rank)].lanes[lane_number];
    auto& lanes = done_[static_cast<std::size_t>(rank)];
    std::vector<double>& done = lanes[lane_number];
    if (done.size() == lane.steps.size()) return false;
    const Step& step = lane.steps[done.size()];
    double start = done.empty() ? 0 : done.back();
    if (step.after.lane >= 0 && step.after.pieces_back == 0) {
      const auto& other = lanes[static_cast<std::size_t>(step.after.lane)];
      if (other.size() <= static_cast<std::size_t>(step.after.step)) return false;
      start = std::max(start, other[static_cast<std::size_t>(step.after.step)]);
    }
    for (const Operand& operand : step.in) {
      if (operand.place != Place::peer) continue;
      const Messages& messages = messages_[{operand.index, rank, lane.receives_on}];
      if (messages.taken == messages.arrivals.size()) return false;
      start = std::max(start, messages.arrivals[messages.taken]);
    }
    for (const Operand& operand : step.in)
      if (operand.place == Place::peer) ++messages_[{operand.index, rank, lane.receives_on}].taken;
    for (const Operand& operand : step.out)
      if (operand.place == Place::peer)
        messages_[{rank, operand.index, lane.sends_on}].arrivals.push_back(
            start + kMessageUs +
            paths_
                .between(gpus_[static_cast<std::size_t>(rank)],
                         gpus_[static_cast<std::size_t>(operand.index)])
                .latency_us);
    done.push_back(start);
    return true;
  }

  std::span<const Schedule> schedules_;
  const Paths& paths_;
  const std::vector<int>& gpus_;
  std::vector<std::vector<std::vector<double>>> done_;  // by rank, lane and step
  std::map<Channel, Messages> messages_;
};

}  // namespace

GraphPrice price_on_graph(std::span<const Schedule> schedules, const Paths& paths,
                          const std::vector<int>& gpus, double bytes) {
  assert(schedules.size() == gpus.size());
  std::vector<double> load(paths.links().size());
  for (const Schedule& schedule : schedules)
    for (const Lane& lane : schedule.lanes)
      for (const Step& step : lane.steps)
        for (const Operand& operand : step.out) {
          if (operand.place != Place::peer) continue;
          const int from = gpus[static_cast<std::size_t>(schedule.rank)],
                    to = gpus[static_cast<std::size_t>(operand.index)];
          const Path& path = paths.between(from, to);
          if (path.kind == PathKind::none)
            throw Error(ErrorKind::unavailable,
                        fmt::format("there is no path from GPU {} to GPU {}", from, to));
          for (const int link : path.links)
            load[static_cast<std::size_t>(link)] += step.count * bytes / schedule.chunks;
        }
  GraphPrice price;
  for (std::size_t link = 0; link < load.size(); ++link) {
    const double us = load[link] / paths.links()[link].gb_per_s / 1e3;
    if (us <= price.busiest_us) continue;
    price.busiest_us = us;
    price.link = static_cast<int>(link);
  }
  price.chain_us = Chains(schedules, paths, gpus).run();
  return price;
}

}  // namespace tutti
