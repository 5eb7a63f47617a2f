#include "collectives/schedule/renumbering.h"

#include <algorithm>
#include <cassert>
#include <unordered_map>
#include <utility>

#include "collectives/schedule/semantics.h"

namespace tutti::collectives {

namespace {

/// Sorts the ranks of a group by their places, around a ring that begins with the first one.
void order_by_places(std::vector<int>& group, const std::vector<int>& places) {
  const int first = group.front();
  const auto place = [&](int rank) { return places[static_cast<std::size_t>(rank)]; };
  std::sort(group.begin(), group.end(),
            [&](int a, int b) { return std::pair(place(a), a) < std::pair(place(b), b); });
  std::rotate(group.begin(), std::find(group.begin(), group.end(), first), group.end());
}

}  // namespace

Renumbering::Renumbering(const PlanRequest& request, Numbering numbering) : asked_(request) {
  const bool placed = numbering == Numbering::near && !request.places.empty();
  if (numbering == Numbering::ranks || (request.groups.empty() && !placed)) return;
  const auto ranks = static_cast<std::size_t>(request.ranks);
  assert(request.groups.empty() || request.groups.size() == ranks);
  assert(request.places.empty() || request.places.size() == ranks);
  std::vector<std::vector<int>> groups;  // the ranks of each
  std::unordered_map<int, std::size_t> index;
  const auto add = [&](int rank) {
    const int of = request.groups.empty() ? 0 : request.groups[static_cast<std::size_t>(rank)];
    const auto [found, is_new] = index.emplace(of, groups.size());
    if (is_new) groups.emplace_back();
    groups[found->second].push_back(rank);
  };
  const int first = has_root(request.what) ? request.root : 0;
  add(first);
  for (int rank = 0; rank < request.ranks; ++rank)
    if (rank != first) add(rank);
  if ((groups.size() == 1 && !placed) || groups.size() == ranks) return;
  if (placed)
    for (std::vector<int>& group : groups) order_by_places(group, request.places);

  if (numbering == Numbering::near) {
    for (const std::vector<int>& group : groups)
      rank_of_.insert(rank_of_.end(), group.begin(), group.end());
  } else {
    for (std::size_t turn = 0; rank_of_.size() < ranks; ++turn)
      for (const std::vector<int>& group : groups)
        if (turn < group.size()) rank_of_.push_back(group[turn]);
  }
  if (std::is_sorted(rank_of_.begin(), rank_of_.end())) rank_of_.clear();
}

PlanRequest Renumbering::request() const {
  assert(needed());
  const auto own = std::find(rank_of_.begin(), rank_of_.end(), asked_.rank) - rank_of_.begin();
  return {.what = asked_.what, .rank = static_cast<int>(own), .ranks = asked_.ranks, .root = 0};
}

bool Renumbering::possible(const Schedule& schedule) {
  return schedule.layout == Layout::whole || schedule.widest == 1;
}

Rounds Renumbering::with_ranks(Rounds rounds) const {
  assert(needed() && possible(rounds.written));
  const bool blocks = rounds.written.layout == Layout::blocks;
  assert(!blocks || rounds.written.chunks == asked_.ranks);
  // Virtual ranks that grow by a constant from round to round stand for ranks that do not.
  const bool moves = std::any_of(rounds.repeats.begin(), rounds.repeats.end(),
                                 [](const Repeat& repeat) { return repeat.shift.peer != 0; });
  if (blocks || moves) rounds = {expand(std::move(rounds))};

  Schedule& schedule = rounds.written;
  schedule.rank = asked_.rank;
  if (has_root(asked_.what)) schedule.root = asked_.root;
  const auto replace = [&](int& number) { number = rank_of_[static_cast<std::size_t>(number)]; };
  const auto replace_in = [&](Operand& operand) {
    if (operand.place == Place::peer || (blocks && operand.place != Place::scratch))
      replace(operand.index);
  };
  for (Lane& lane : schedule.lanes)
    for (Step& step : lane.steps) {
      std::for_each(step.in.begin(), step.in.end(), replace_in);
      std::for_each(step.out.begin(), step.out.end(), replace_in);
      if (blocks) replace(step.chunk);
    }
  return rounds;
}

}  // namespace tutti::collectives
