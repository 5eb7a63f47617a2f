// Finds races with vector clocks over the lanes of one rank. Only `after` orders lanes, so neither
// messages nor other ranks are needed. One operation is enough, since all lanes end an operation
// before the next one begins.
#include <fmt/format.h>

#include <algorithm>
#include <cassert>

#include "collectives/formats/print.h"
#include "collectives/schedule/semantics.h"
#include "collectives/verify/checks.h"

namespace tutti::collectives {
namespace {

/// The number of steps of each lane that are known to be done, counted over all pieces.
using VectorClock = std::vector<int>;

class RaceCheck {
 public:
  RaceCheck(const Schedule& schedule, const VerifyOptions& options)
      : schedule_(schedule),
        in_place_(options.in_place),
        pieces_(options.pieces),
        lanes_(static_cast<int>(schedule.lanes.size())),
        positions_(positions(schedule.what, schedule.ranks, schedule.chunks)),
        clocks_(lanes_, VectorClock(lanes_)),
        history_(lanes_),
        writes_(std::size_t(pieces_) * 2 * positions_ + schedule.scratch_chunks),
        read_times_(writes_.size() * lanes_) {
    assert(pieces_ >= 1 && lanes_ >= 1);
  }

  void run() {
    for (bool progress = true; progress;) {
      progress = false;
      for (int lane = 0; lane < lanes_; ++lane)
        while (advance(lane)) progress = true;
    }
    for (int lane = 0; lane < lanes_; ++lane)
      if (steps_done(lane) < pieces_ * steps_of(lane)) {
        const Step& step = schedule_.lanes[lane].steps[steps_done(lane) % steps_of(lane)];
        throw Rejected{
            fmt::format("deadlock: {} ({}) waits for lane {} step {}, which waits for it in turn",
                        where(schedule_.rank, lane, steps_done(lane) % steps_of(lane)),
                        chunks_text(step.chunk, step.count), step.after.lane, step.after.step)};
      }
  }

 private:
  struct Write {
    int lane = -1;
    int time = 0;  // the number of the step in its lane, counted from 1
  };

  int steps_of(int lane) const { return static_cast<int>(schedule_.lanes[lane].steps.size()); }
  int steps_done(int lane) const { return clocks_[lane][lane]; }

  /// Does the lane's next step, unless there is none or it waits for another step; returns whether
  /// it did.
  bool advance(int lane) {
    const int steps = steps_of(lane);
    const int done = steps_done(lane);
    assert(done <= pieces_ * steps);
    if (done == pieces_ * steps) return false;
    const int piece = done / steps;
    const Step& step = schedule_.lanes[lane].steps[done % steps];
    const After& after = step.after;
    if (after.lane >= 0 && piece >= after.pieces_back) {
      const int target = (piece - after.pieces_back) * steps_of(after.lane) + after.step;
      if (steps_done(after.lane) <= target) return false;
      const int* known = history_[after.lane].data() + std::size_t(target) * lanes_;
      VectorClock& clock = clocks_[lane];
      for (int other = 0; other < lanes_; ++other)
        clock[other] = std::max(clock[other], known[other]);
    }
    for (const Operand& operand : step.in) access(operand, step, lane, piece, false);
    for (const Operand& operand : step.out) access(operand, step, lane, piece, true);
    ++clocks_[lane][lane];
    history_[lane].insert(history_[lane].end(), clocks_[lane].begin(), clocks_[lane].end());
    return true;
  }

  void access(const Operand& operand, const Step& step, int lane, int piece, bool write) {
    if (operand.place == Place::peer) return;
    const std::size_t first = location(operand, piece);
    for (int k = 0; k < step.count; ++k) {
      const std::size_t place = first + k;
      if (!knows(lane, writes_[place])) fail(operand, step, k, lane, write, writes_[place], true);
      int* reads = read_times_.data() + place * lanes_;
      if (write) {
        for (int other = 0; other < lanes_; ++other)
          if (!knows(lane, {other, reads[other]}))
            fail(operand, step, k, lane, write, {other, reads[other]}, false);
        writes_[place] = {lane, steps_done(lane) + 1};
      } else {
        reads[lane] = steps_done(lane) + 1;
      }
    }
  }

  /// Input and output have different memory for each piece; all pieces share scratch.
  std::size_t location(const Operand& operand, int piece) const {
    const std::size_t held = positions_;
    if (operand.place == Place::scratch) return pieces_ * 2 * held + operand.index;
    const bool apart = operand.place == Place::output && !in_place_;
    return piece * 2 * held + (apart ? held : 0) +
           position(schedule_.what, schedule_.ranks, operand);
  }

  bool knows(int lane, const Write& access) const {
    return access.lane < 0 || access.lane == lane || clocks_[lane][access.lane] >= access.time;
  }

  [[noreturn]] void fail(const Operand& operand, const Step& step, int k, int lane, bool write,
                         const Write& other, bool other_writes) const {
    const auto text = [&](const Write& access, bool writes) {
      const int steps = steps_of(access.lane);
      return fmt::format("lane {} step {} ({} it in piece {})", access.lane,
                         (access.time - 1) % steps, writes ? "writes" : "reads",
                         (access.time - 1) / steps);
    };
    throw Rejected{
        fmt::format("race on rank {}: {} ({}{}) is used by {} and {}, and nothing orders them",
                    schedule_.rank, to_text(Operand{operand.place, operand.index + k}),
                    chunks_text(chunk_of(step, k), 1), in_place_ ? ", in place" : "",
                    text(other, other_writes), text({lane, steps_done(lane) + 1}, write))};
  }

  const Schedule& schedule_;
  const bool in_place_;
  const int pieces_;
  const int lanes_;
  const int positions_;                    // in an input or output buffer
  std::vector<VectorClock> clocks_;        // indexed by lane
  std::vector<std::vector<int>> history_;  // indexed by lane: its clock after each step
  std::vector<Write> writes_;              // indexed by location: the last write
  // Indexed by location and lane: the time of the last read, 0 for none.
  std::vector<int> read_times_;
};

}  // namespace

void check_races(const Schedule& schedule, const VerifyOptions& options) {
  if (schedule.lanes.size() > 1) RaceCheck(schedule, options).run();
}

}  // namespace tutti::collectives
