#include "collectives/schedule/rounds.h"

#include <algorithm>
#include <cassert>
#include <cstdint>
#include <limits>
#include <utility>

namespace tutti::collectives {
namespace {

/// The positions of a written step among the expanded steps of its lane.
struct Standing {
  int first;      ///< Its position in the first round.
  int apart = 0;  ///< The distance from one round to the next.
  int rounds = 1;
  Shift shift = {};

  int in_round(int round) const { return first + round * apart; }
};

int moved(int number, int shift, int round, int around) {
  assert(around > 0);
  const std::int64_t sum = number + std::int64_t{round} * shift;
  return static_cast<int>((sum % around + around) % around);
}

class Expander {
 public:
  explicit Expander(const Rounds& rounds) : written_(rounds.written) {
    auto next = rounds.repeats.begin();
    for (int lane = 0; lane < static_cast<int>(written_.lanes.size()); ++lane) {
      auto& standings = standings_.emplace_back();
      const int steps = static_cast<int>(written_.lanes[lane].steps.size());
      std::int64_t position = 0;
      for (int step = 0; step < steps;) {
        const bool repeats =
            next != rounds.repeats.end() && next->lane == lane && next->first == step;
        const Repeat repeat = repeats ? *next++ : Repeat{};
        assert(repeat.count >= 0 && repeat.steps > 0 && step + repeat.steps <= steps);
        for (int k = 0; k < repeat.steps; ++k)
          standings.push_back(
              {static_cast<int>(position) + k, repeat.steps, repeat.count, repeat.shift});
        position += std::int64_t{repeat.steps} * repeat.count;
        assert(position <= std::numeric_limits<int>::max());
        step += repeat.steps;
      }
    }
    assert(next == rounds.repeats.end() && "repeats are in order, and none share a step");
  }

  std::vector<Step> lane(std::size_t lane) const {
    const std::vector<Step>& written = written_.lanes[lane].steps;
    const std::vector<Standing>& standings = standings_[lane];
    assert(standings.size() == written.size());
    std::vector<Step> steps;
    for (std::size_t first = 0; first < written.size();) {
      const Standing& standing = standings[first];
      for (int round = 0; round < standing.rounds; ++round)
        for (int k = 0; k < standing.apart; ++k)
          steps.push_back(in_round(written[first + k], standing, round));
      first += static_cast<std::size_t>(standing.apart);
    }
    return steps;
  }

 private:
  Step in_round(Step step, const Standing& standing, int round) const {
    const int chunk = standing.shift.chunk, peer = standing.shift.peer;
    const auto move = [&](Operand& operand) {
      if (operand.place == Place::peer)
        operand.index = moved(operand.index, peer, round, written_.ranks);
      else if (operand.place != Place::scratch)
        operand.index = moved(operand.index, chunk, round, written_.chunks);
    };
    std::for_each(step.in.begin(), step.in.end(), move);
    std::for_each(step.out.begin(), step.out.end(), move);
    if (step.chunk != kAnyChunk) step.chunk = moved(step.chunk, chunk, round, written_.chunks);
    if (step.after.lane >= 0) {
      const Standing& other = standings_[step.after.lane][step.after.step];
      assert(other.rounds > 0);
      step.after.step = other.in_round(other.rounds == standing.rounds ? round : other.rounds - 1);
    }
    return step;
  }

  const Schedule& written_;
  std::vector<std::vector<Standing>> standings_;  // indexed by lane and written step
};

}  // namespace

Schedule expand(Rounds rounds) {
  if (rounds.repeats.empty()) return std::move(rounds.written);
  const Expander expander(rounds);
  std::vector<std::vector<Step>> lanes;
  for (std::size_t lane = 0; lane < rounds.written.lanes.size(); ++lane)
    lanes.push_back(expander.lane(lane));
  for (std::size_t lane = 0; lane < lanes.size(); ++lane)
    rounds.written.lanes[lane].steps = std::move(lanes[lane]);
  return std::move(rounds.written);
}

}  // namespace tutti::collectives
