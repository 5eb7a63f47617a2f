#include "collectives/formats/file_plan.h"

#include <algorithm>
#include <cassert>
#include <cstdint>
#include <map>
#include <utility>

#include <fmt/format.h>

#include <tutti/error.hpp>

#include "collectives/formats/replay.h"
#include "collectives/schedule/semantics.h"

namespace tutti::collectives {
namespace {

// A small file may say much: each step moves up to a million chunks, and each rank may have as
// many.
void check_size(const FilePlan& plan) {
  std::int64_t lanes = 0, moves = 0;
  std::int64_t cells = static_cast<std::int64_t>(plan.ranks.size()) *
                       (positions_of(plan, Place::input) + positions_of(plan, Place::output));
  for (const FileRank& rank : plan.ranks) {
    cells += rank.scratch_chunks;
    lanes += static_cast<std::int64_t>(rank.lanes.size());
    for (const FileLane& lane : rank.lanes)
      for (const FileStep& step : lane.steps)
        moves += step.count * static_cast<std::int64_t>(step.in.size() + step.out.size());
  }
  const auto check = [](std::int64_t found, int most, const char* what) {
    if (found > most)
      throw Error(
          ErrorKind::unavailable,
          fmt::format("the plan has {} {} of all ranks; {} are read at most", found, what, most));
  };
  check(lanes, kMostFileLanesOfAll, "lanes");
  check(moves, kMostFileMoves, "chunks in its steps");
  check(cells, kMostFileCells, "chunks in the buffers");
}

// Returns the plan with steps of one chunk each. Both ends of a message are cut alike.
FilePlan split(const FilePlan& plan) {
  std::int64_t parts = 0;
  for (const FileRank& rank : plan.ranks)
    for (const FileLane& lane : rank.lanes)
      for (const FileStep& step : lane.steps) parts += step.count;
  if (parts > kMostFileSteps)
    throw Error(ErrorKind::unavailable,
                fmt::format("steps move chunks that are not consecutive; one by one there are more "
                            "than {} steps",
                            kMostFileSteps));
  FilePlan cut = plan;
  for (FileRank& rank : cut.ranks) {
    std::vector<std::vector<int>> last(rank.lanes.size());  // for each step: its last part
    for (std::size_t lane = 0; lane < rank.lanes.size(); ++lane)
      for (int at = -1; const FileStep& step : rank.lanes[lane].steps)
        last[lane].push_back(at += step.count);
    for (FileLane& lane : rank.lanes) {
      std::vector<FileStep> all;
      for (const FileStep& step : lane.steps)
        for (int k = 0; k < step.count; ++k) {
          FileStep& part = all.emplace_back(step);
          part.count = 1;
          for (std::vector<Operand>* side : {&part.in, &part.out})
            for (Operand& operand : *side)
              if (operand.place != Place::peer) operand.index += k;
          if (k > 0) part.after.clear();
          for (After& after : part.after)
            after.step =
                last[static_cast<std::size_t>(after.lane)][static_cast<std::size_t>(after.step)];
        }
      lane.steps = std::move(all);
    }
  }
  return cut;
}

/// The reads of one rank's input: for each position of the buffer that is input and output in
/// place, and for each lane, the last step that reads it.
using Reads = std::map<int, std::map<int, int>>;

// Returns the position of a place in a buffer that is input and output at once.
int shared_position(const FilePlan& plan, int rank, Place place, int index) {
  return holds_one_block(plan.what, place) ? rank : index;
}

Reads reads_of(const FilePlan& plan, int number) {
  const FileRank& rank = plan.ranks[static_cast<std::size_t>(number)];
  Reads reads;
  for (std::size_t lane = 0; lane < rank.lanes.size(); ++lane)
    for (std::size_t at = 0; at < rank.lanes[lane].steps.size(); ++at) {
      const FileStep& step = rank.lanes[lane].steps[at];
      for (const Operand& from : step.in)
        for (int k = 0; from.place == Place::input && k < step.count; ++k)
          reads[shared_position(plan, number, Place::input, from.index + k)]
               [static_cast<int>(lane)] = static_cast<int>(at);
    }
  return reads;
}

// Orders each write of an output after all reads of the input at its position by other lanes. In
// place these are the same memory, and the file may know only calls that are not. Throws where that
// takes too many steps.
void order_for_use_in_place(FilePlan& plan) {
  std::int64_t waits = 0;
  for (int number = 0; number < static_cast<int>(plan.ranks.size()); ++number) {
    const Reads reads = reads_of(plan, number);
    FileRank& rank = plan.ranks[static_cast<std::size_t>(number)];
    for (std::size_t lane = 0; lane < rank.lanes.size(); ++lane)
      for (FileStep& step : rank.lanes[lane].steps) {
        std::map<int, int> before;  // by lane
        for (const Operand& to : step.out)
          for (int k = 0; to.place == Place::output && k < step.count; ++k) {
            const auto found =
                reads.find(shared_position(plan, number, Place::output, to.index + k));
            if (found == reads.end()) continue;
            for (const auto& [other, at] : found->second)
              before[other] = std::max(before[other], at);
          }
        before.erase(static_cast<int>(lane));
        for (const After& after : step.after)
          if (const auto known = before.find(after.lane);
              known != before.end() && known->second <= after.step)
            before.erase(known);
        waits += static_cast<std::int64_t>(before.size());
        if (waits > kMostFileSteps)
          throw Error(
              ErrorKind::unavailable,
              fmt::format("in place, the plan needs more than {} steps that wait", kMostFileSteps));
        for (const auto& [other, at] : before) step.after.push_back({other, at, 0});
      }
  }
}

/// Writes the schedule of one rank.
class Emission {
 public:
  Emission(const FilePlan& plan, const Replay& replay, int rank)
      : file_(plan.ranks[static_cast<std::size_t>(rank)]),
        replay_(replay),
        rank_(rank),
        gated_(lanes_with_scratch()) {
    schedule_.what = plan.what;
    schedule_.layout = layout_of(plan.what);
    schedule_.rank = rank;
    schedule_.ranks = static_cast<int>(plan.ranks.size());
    schedule_.root = plan.root;
    schedule_.chunks =
        schedule_.layout == Layout::whole ? plan.chunks : block_count(plan.what, schedule_.ranks);
    schedule_.scratch_chunks = replay.scratch_chunks(rank);
    for (int lane = 0; lane < lanes(); ++lane) {
      std::vector<int>& ends = ends_.emplace_back();
      int at = waits_for_gate(lane) ? 0 : -1;
      for (const FileStep& step : file_.lanes[static_cast<std::size_t>(lane)].steps)
        ends.push_back(at += std::max(1, static_cast<int>(step.after.size())));
    }
  }

  Schedule run() && {
    for (int lane = 0; lane < lanes(); ++lane) write(lane);
    if (gated_.size() > 1) write_gate();
    return std::move(schedule_);
  }

 private:
  int lanes() const { return static_cast<int>(file_.lanes.size()); }

  // All pieces share scratch, but not the buffers of the call. So a lane that uses scratch waits at
  // the beginning of each piece for a further lane, the gate, which waits for all of them to have
  // ended the piece before.
  std::vector<int> lanes_with_scratch() const {
    const auto is_scratch = [](const Operand& o) { return o.place == Place::scratch; };
    const auto uses_scratch = [&](int lane, int step) {
      const Replay::Resolved& one = replay_.resolved(rank_, lane, step);
      return std::any_of(one.in.begin(), one.in.end(), is_scratch) ||
             std::any_of(one.out.begin(), one.out.end(), is_scratch);
    };
    std::vector<int> found;
    for (int lane = 0; lane < lanes(); ++lane) {
      const int steps = static_cast<int>(file_.lanes[static_cast<std::size_t>(lane)].steps.size());
      int step = 0;
      while (step < steps && !uses_scratch(lane, step)) ++step;
      if (step < steps) found.push_back(lane);
    }
    return found;
  }

  bool waits_for_gate(int lane) const {
    return gated_.size() > 1 && std::binary_search(gated_.begin(), gated_.end(), lane);
  }

  void write(int number) {
    const FileLane& from = file_.lanes[static_cast<std::size_t>(number)];
    Lane lane{from.receives_on, from.sends_on, {}};
    if (waits_for_gate(number))
      lane.steps.push_back(waiting({lanes(), static_cast<int>(gated_.size()) - 1, 0}));
    for (std::size_t step = 0; step < from.steps.size(); ++step) {
      std::vector<After> after = from.steps[step].after;
      for (After& one : after)
        one.step = ends_[static_cast<std::size_t>(one.lane)][static_cast<std::size_t>(one.step)];
      for (std::size_t k = 0; k + 1 < after.size(); ++k) lane.steps.push_back(waiting(after[k]));
      lane.steps.push_back(moving(from.steps[step], number, static_cast<int>(step)));
      if (!after.empty()) lane.steps.back().after = after.back();
    }
    schedule_.lanes.push_back(std::move(lane));
  }

  static Step waiting(const After& after) {
    Step step;
    step.after = after;
    return step;
  }

  Step moving(const FileStep& from, int lane, int number) {
    if (from.in.empty()) return {};
    const Replay::Resolved& one = replay_.resolved(rank_, lane, number);
    schedule_.widest = std::max(schedule_.widest, from.count);
    return {one.in, one.out, one.chunk, from.count, one.completes, {}};
  }

  void write_gate() {
    Lane gate;
    for (const int lane : gated_) {
      const auto steps = schedule_.lanes[static_cast<std::size_t>(lane)].steps.size();
      gate.steps.push_back(waiting({lane, static_cast<int>(steps) - 1, 1}));
    }
    schedule_.lanes.push_back(std::move(gate));
  }

  const FileRank& file_;
  const Replay& replay_;
  const int rank_;
  const std::vector<int> gated_;  // lanes, ascending
  Schedule schedule_;
  std::vector<std::vector<int>> ends_;  // for each lane and step of the file: its last step
};

std::vector<Schedule> emitted(const FilePlan& plan, const Replay& replay) {
  std::vector<Schedule> schedules;
  int widest = 1;
  for (int rank = 0; rank < static_cast<int>(plan.ranks.size()); ++rank) {
    schedules.push_back(Emission(plan, replay, rank).run());
    widest = std::max(widest, schedules.back().widest);
  }
  for (Schedule& schedule : schedules) schedule.widest = widest;
  return schedules;
}

}  // namespace

int positions_of(const FilePlan& plan, Place place) {
  assert(place == Place::input || place == Place::output);
  if (layout_of(plan.what) == Layout::whole) return plan.chunks;
  return holds_one_block(plan.what, place) ? 1 : static_cast<int>(plan.ranks.size());
}

std::vector<Schedule> schedules_of(const FilePlan& plan) {
  check_size(plan);
  FilePlan tried = plan;
  if (!plan.in_place) {
    order_for_use_in_place(tried);
    if (!Replay(tried).run()) tried = plan;  // it cannot work in place, or it is wrong
  }
  Replay replay(tried);
  replay.run();
  if (!replay.must_split()) return emitted(tried, replay);
  tried = split(tried);
  Replay again(tried);
  again.run();
  return emitted(tried, again);
}

}  // namespace tutti::collectives
