#include "collectives/schedule/zero_copy.h"

#include <algorithm>
#include <cassert>

#include "collectives/schedule/semantics.h"

namespace tutti::collectives {
namespace {

bool is_peer(const Operand& operand) { return operand.place == Place::peer; }

int peers_in(const std::vector<Operand>& operands) {
  return static_cast<int>(std::count_if(operands.begin(), operands.end(), is_peer));
}

/// Whether the step has a message as its only input, so that it only keeps it or passes it on.
bool only_receives(const Step& step) { return step.in.size() == 1 && is_peer(step.in[0]); }

class ZeroCopyAnalysis {
 public:
  explicit ZeroCopyAnalysis(const Schedule& schedule)
      : schedule_(schedule),
        positions_(positions(schedule.what, schedule.ranks, schedule.chunks)),
        uses_(2 * static_cast<std::size_t>(positions_)) {
    for (std::size_t lane = 0; lane < schedule.lanes.size(); ++lane)
      for (std::size_t step = 0; step < schedule.lanes[lane].steps.size(); ++step)
        note({static_cast<int>(lane), static_cast<int>(step)});
  }

  ZeroCopySource source_of(int lane, int number) const {
    const Moment moment{lane, number};
    const Step& step = at(moment);
    if (peers_in(step.out) == 0 || step.chunk == kAnyChunk) return {};
    const int operand = source(step);
    if (operand < 0) return {};
    assert(operand < static_cast<int>(step.in.size() + step.out.size()));
    const Operand& held = operand == 0 ? step.in[0] : step.out[operand - step.in.size()];
    if (!stays(moment, held, false)) return {};
    return {operand, stays(moment, held, true), comes_back(moment, held)};
  }

 private:
  struct Moment {
    int lane;
    int step;
    bool operator==(const Moment&) const = default;
  };
  struct Use {
    Moment moment;
    Place place;
    bool writes;
  };

  const Step& at(const Moment& moment) const {
    return schedule_.lanes[moment.lane].steps[moment.step];
  }

  void note(const Moment& moment) {
    const Step& step = at(moment);
    if (step.chunk == kAnyChunk) return;  // such a step works between scratch and messages
    for (const Operand& operand : step.in) note(moment, operand, step.count, false);
    for (const Operand& operand : step.out) note(moment, operand, step.count, true);
  }
  void note(const Moment& moment, const Operand& operand, int count, bool writes) {
    if (operand.place != Place::input && operand.place != Place::output) return;
    for (int k = 0; k < count; ++k)
      uses_[cell(operand, k)].push_back({moment, operand.place, writes});
  }

  // Cells of the input come before those of the output. In place, the two cells at one position are
  // the same memory.
  std::size_t cell(const Operand& operand, int k) const {
    const int at = position(schedule_.what, schedule_.ranks, operand) + k;
    assert(0 <= at && at < positions_);
    return static_cast<std::size_t>(operand.place == Place::output ? positions_ + at : at);
  }
  template <typename Holds>
  bool all_uses(const Operand& operand, int count, bool in_place, Holds&& holds) const {
    for (int k = 0; k < count; ++k) {
      const std::size_t own = cell(operand, k);
      const auto other = (own + positions_) % uses_.size();
      if (!std::all_of(uses_[own].begin(), uses_[own].end(), holds)) return false;
      if (in_place && !std::all_of(uses_[other].begin(), uses_[other].end(), holds)) return false;
    }
    return true;
  }

  // Returns the step's only input if it lies in the call's buffers, or an output that keeps the
  // result; -1 if there is neither. A step that receives nothing may be posted before its outputs
  // are written (Execution::try_step), so that a message of it cannot lie in them.
  static int source(const Step& step) {
    if (step.in.size() == 1 &&
        (step.in[0].place == Place::input || step.in[0].place == Place::output))
      return 0;
    if (peers_in(step.in) == 0) return -1;
    for (std::size_t k = 0; k < step.out.size(); ++k)
      if (step.out[k].place == Place::output) return static_cast<int>(step.in.size() + k);
    return -1;
  }

  // Whether `first` is known to come before `second`, by the order of a lane or by one `after`.
  bool before(const Moment& first, const Moment& second) const {
    if (first.lane == second.lane) return first.step < second.step;
    const auto& steps = schedule_.lanes[second.lane].steps;
    return std::any_of(steps.begin(), steps.begin() + second.step + 1, [&](const Step& step) {
      const After& after = step.after;
      return after.lane == first.lane && after.pieces_back == 0 && after.step >= first.step;
    });
  }

  // Whether `held` keeps the content with which it is sent until it has been read.
  bool stays(const Moment& sent, const Operand& held, bool in_place) const {
    const int count = at(sent).count;
    return all_uses(held, count, in_place, [&](const Use& use) {
      return !use.writes || use.moment == sent || before(use.moment, sent) ||
             (in_place && is_result_of(sent, held, use.moment));
    });
  }

  // Whether `written` overwrites an input that only `sent` has read, for one peer, with the result
  // that was made of it.
  bool is_result_of(const Moment& sent, const Operand& held, const Moment& written) const {
    const Step& from = at(sent);
    if (!reduces(schedule_.what) || held.place != Place::input || peers_in(from.out) != 1 ||
        !only_receives(at(written)))
      return false;
    return all_uses(held, from.count, true, [&](const Use& use) {
      return use.writes ? use.moment == written : use.place == Place::output || use.moment == sent;
    });
  }

  // Whether the peer's answer is the only message of these chunks that comes from the peer, and is
  // written to an output that no step uses before.
  bool comes_back(const Moment& sent, const Operand& held) const {
    const Step& from = at(sent);
    if (schedule_.layout != Layout::whole || held.place != Place::input || peers_in(from.out) != 1)
      return false;
    const Operand peer = *std::find_if(from.out.begin(), from.out.end(), is_peer);
    Moment back{-1, -1};
    for (std::size_t lane = 0; lane < schedule_.lanes.size(); ++lane)
      for (std::size_t number = 0; number < schedule_.lanes[lane].steps.size(); ++number) {
        const Step& step = schedule_.lanes[lane].steps[number];
        if (std::find(step.in.begin(), step.in.end(), peer) == step.in.end()) continue;
        if (step.chunk + step.count <= from.chunk || from.chunk + from.count <= step.chunk)
          continue;
        if (back.lane >= 0 || step.chunk != from.chunk || step.count != from.count) return false;
        back = {static_cast<int>(lane), static_cast<int>(number)};
      }
    if (back.lane < 0 || !only_receives(at(back))) return false;
    const Operand output{Place::output, from.chunk};
    bool kept = false;
    const bool unused = all_uses(output, from.count, false, [&](const Use& use) {
      kept = kept || use.moment == back;
      return use.moment == back || before(back, use.moment);
    });
    return kept && unused;
  }

  const Schedule& schedule_;
  const int positions_;
  std::vector<std::vector<Use>> uses_;  // indexed by cell()
};

}  // namespace

std::vector<std::vector<ZeroCopySource>> zero_copy_sources(const Schedule& schedule) {
  std::vector<std::vector<ZeroCopySource>> all;
  for (const Lane& lane : schedule.lanes) all.emplace_back(lane.steps.size());
  if (schedule.ranks > kMostZeroCopyRanks) return all;
  assert(all.size() == schedule.lanes.size());
  const ZeroCopyAnalysis analysis(schedule);
  for (std::size_t lane = 0; lane < all.size(); ++lane)
    for (std::size_t step = 0; step < all[lane].size(); ++step)
      all[lane][step] = analysis.source_of(static_cast<int>(lane), static_cast<int>(step));
  return all;
}

}  // namespace tutti::collectives
