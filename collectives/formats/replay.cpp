#include "collectives/formats/replay.h"

#include <algorithm>
#include <cassert>
#include <utility>
#include <vector>

#include <tutti/error.hpp>

#include "collectives/schedule/semantics.h"

namespace tutti::collectives {
namespace {

// The most times that a lane is looked at: some seconds.
constexpr std::size_t kMostLooks = std::size_t{1} << 27;

}  // namespace

Replay::Replay(const FilePlan& plan)
    : plan_(plan),
      ranks_count_(static_cast<int>(plan.ranks.size())),
      inputs_(positions_of(plan, Place::input)),
      outputs_(positions_of(plan, Place::output)),
      ranks_(plan.ranks.size()) {
  for (int rank = 0; rank < ranks_count_; ++rank) {
    const FileRank& from = plan.ranks[static_cast<std::size_t>(rank)];
    RankState& state = ranks_[static_cast<std::size_t>(rank)];
    state.scratch = from.scratch_chunks;
    state.cells.resize(static_cast<std::size_t>(inputs_) + static_cast<std::size_t>(outputs_) +
                       static_cast<std::size_t>(from.scratch_chunks));
    const RankCall call{plan.what, rank, ranks_count_, plan.root};
    for (int position = 0; position < inputs_; ++position)
      if (const int chunk = chunk_at(rank, Place::input, position); input_exists(call, chunk))
        state.cells[cell(rank, {Place::input, position})].value = {chunk, 1};
    state.done.resize(from.lanes.size());
    for (const FileLane& lane : from.lanes) state.steps.emplace_back(lane.steps.size());
  }
}

int Replay::chunk_at(int rank, Place place, int position) const {
  if (holds_one_block(plan_.what, place)) return rank;
  if (plan_.what != Collective::all_to_all) return position;
  return place == Place::input ? pair_chunk(rank, position, ranks_count_)
                               : pair_chunk(position, rank, ranks_count_);
}

// Where input and output are the same memory, both have the cells of the output, as far as there
// are any.
std::size_t Replay::cell(int rank, const Operand& at) const {
  assert(at.place != Place::peer);
  int index = at.index;
  if (at.place == Place::scratch) {
    index += inputs_ + outputs_;
  } else if (at.place == Place::output) {
    const bool in_input = plan_.in_place && holds_one_block(plan_.what, Place::output);
    index = in_input ? rank : inputs_ + index;
  } else if (plan_.in_place && !holds_one_block(plan_.what, Place::output)) {
    index = inputs_ + (holds_one_block(plan_.what, Place::input) ? rank : index);
  }
  return static_cast<std::size_t>(index);
}

const Replay::Resolved& Replay::resolved(int rank, int lane, int step) const {
  return ranks_[static_cast<std::size_t>(rank)]
      .steps[static_cast<std::size_t>(lane)][static_cast<std::size_t>(step)];
}

bool Replay::run() {
  std::vector<std::pair<int, int>> going;  // rank and lane
  for (int rank = 0; rank < ranks_count_; ++rank)
    for (int lane = 0; lane < static_cast<int>(ranks_[static_cast<std::size_t>(rank)].done.size());
         ++lane)
      going.emplace_back(rank, lane);
  for (std::size_t looks = 0; !going.empty();) {
    looks += going.size();
    if (looks > kMostLooks)
      throw Error(ErrorKind::unavailable,
                  "the plan's lanes wait for each other too often to be followed");
    bool moved = false;
    std::erase_if(going, [&](const std::pair<int, int>& one) {
      const auto [rank, lane] = one;
      while (advance(rank, lane)) moved = true;
      const auto at = static_cast<std::size_t>(lane);
      return ranks_[static_cast<std::size_t>(rank)].done[at] ==
             plan_.ranks[static_cast<std::size_t>(rank)].lanes[at].steps.size();
    });
    if (!moved && !going.empty()) {
      if (stuck_) break;
      stuck_ = true;  // from here on nothing waits, so that each step gets places
    }
  }
  return !stuck_;
}

bool Replay::advance(int rank, int lane) {
  RankState& state = ranks_[static_cast<std::size_t>(rank)];
  const auto at = static_cast<std::size_t>(lane);
  const FileLane& file = plan_.ranks[static_cast<std::size_t>(rank)].lanes[at];
  if (state.done[at] == file.steps.size()) return false;
  const FileStep& step = file.steps[state.done[at]];
  if (!can_start(rank, lane, step)) return false;
  resolve(rank, lane, step);
  ++state.done[at];
  return true;
}

bool Replay::can_start(int rank, int lane, const FileStep& step) const {
  if (stuck_) return true;
  const RankState& state = ranks_[static_cast<std::size_t>(rank)];
  for (const After& after : step.after)
    if (state.done[static_cast<std::size_t>(after.lane)] <= static_cast<std::size_t>(after.step))
      return false;
  const FileLane& file =
      plan_.ranks[static_cast<std::size_t>(rank)].lanes[static_cast<std::size_t>(lane)];
  for (const Operand& from : step.in) {
    if (from.place != Place::peer) continue;
    const auto found = messages_.find({from.index, rank, file.receives_on});
    if (found == messages_.end() || found->second.empty()) return false;
  }
  return true;
}

void Replay::resolve(int rank, int lane, const FileStep& step) {
  const FileLane& file =
      plan_.ranks[static_cast<std::size_t>(rank)].lanes[static_cast<std::size_t>(lane)];
  for (const Operand& to : step.out)
    if (to.place == Place::peer) messages_[{rank, to.index, file.sends_on}].emplace_back();
  RankState& state = ranks_[static_cast<std::size_t>(rank)];
  Resolved& into =
      state.steps[static_cast<std::size_t>(lane)][state.done[static_cast<std::size_t>(lane)]];
  if (!step.in.empty())
    for (int k = 0; k < step.count; ++k) resolve_chunk(rank, file, step, k, into);
  for (const Operand& from : step.in) {
    if (from.place != Place::peer) continue;
    auto& waiting = messages_[{from.index, rank, file.receives_on}];
    if (!waiting.empty()) waiting.pop_front();
  }
}

void Replay::resolve_chunk(int rank, const FileLane& lane, const FileStep& step, int k,
                           Resolved& into) {
  const auto at = [&](const Operand& operand) {
    return operand.place == Place::peer ? operand : Operand{operand.place, operand.index + k};
  };
  std::vector<Operand> in, out;
  Value result;
  for (const Operand& from : step.in) {
    const Value value = read(rank, lane, from, k);
    if (in.empty()) result.chunk = value.chunk;
    result.summands += value.summands;
    in.push_back(place_of(rank, at(from), false));
  }
  // A step that finds nothing is wrong; it is said to move what it writes, so that this shows.
  for (const Operand& to : step.out)
    if (result.chunk < 0 && (to.place == Place::output || to.place == Place::input))
      result.chunk = chunk_at(rank, to.place, to.index + k);
  for (const Operand& to : step.out) {
    out.push_back(place_of(rank, at(to), true));
    if (to.place == Place::peer)
      messages_[{rank, to.index, lane.sends_on}].back().push_back(result);
    else
      ranks_[static_cast<std::size_t>(rank)].cells[cell(rank, at(to))].value = result;
  }
  const bool completes = reduces(plan_.what) && (step.in.size() > 1 || ranks_count_ == 1) &&
                         result.summands == ranks_count_;
  const int chunk = std::max(result.chunk, 0);
  if (k == 0) {
    into = {std::move(in), std::move(out), chunk, completes};
    return;
  }
  const auto follows = [&](const std::vector<Operand>& first, const std::vector<Operand>& now) {
    for (std::size_t i = 0; i < now.size(); ++i)
      if (now[i].place != first[i].place ||
          (now[i].place != Place::peer && now[i].index != first[i].index + k))
        return false;
    return true;
  };
  if (chunk != into.chunk + k || completes != into.completes || !follows(into.in, in) ||
      !follows(into.out, out))
    must_split_ = true;
}

Replay::Value Replay::read(int rank, const FileLane& lane, const Operand& from, int k) {
  if (from.place != Place::peer)
    return ranks_[static_cast<std::size_t>(rank)]
        .cells[cell(rank, {from.place, from.index + k})]
        .value;
  const auto& waiting = messages_[{from.index, rank, lane.receives_on}];
  if (waiting.empty() || static_cast<std::size_t>(k) >= waiting.front().size()) return {};
  return waiting.front()[static_cast<std::size_t>(k)];
}

// Returns the place of a schedule for a place of the plan.
Operand Replay::place_of(int rank, const Operand& at, bool writes) {
  if (at.place == Place::peer || at.place == Place::scratch) return at;
  RankState& state = ranks_[static_cast<std::size_t>(rank)];
  Cell& held = state.cells[cell(rank, at)];
  held.written = held.written || writes;
  const int chunk = chunk_at(rank, at.place, at.index);
  const bool shared = plan_.in_place || at.place == Place::output;
  if (!held.written) {
    const bool given = at.place == Place::input || (plan_.in_place && held.value.chunk == chunk);
    return {given ? Place::input : Place::output, chunk};
  }
  if (shared && output_exists({plan_.what, rank, ranks_count_, plan_.root}, chunk))
    return {Place::output, chunk};
  if (at.place == Place::output) return {Place::output, chunk};
  if (held.scratch < 0) held.scratch = state.scratch++;
  return {Place::scratch, held.scratch};
}

}  // namespace tutti::collectives
