// The verbs in which algorithms are written. `send`, `receive`, `reduce`, `copy` mean what NCCL's
// device verbs mean: receive_reduce adds this rank's input to what comes in, copy keeps the result
// in the output (receive alone does so, too), send hands it to peers.
#pragma once

#include <vector>

#include "collectives/algorithms.h"

namespace tutti::collectives {

constexpr Operand input(int chunk) { return {Place::input, chunk}; }
constexpr Operand output(int chunk) { return {Place::output, chunk}; }
constexpr Operand scratch(int chunk) { return {Place::scratch, chunk}; }
constexpr Operand peer(int rank) { return {Place::peer, rank}; }

/// `count` consecutive chunks: one message. A plain number is one chunk.
struct Slice {
  int chunk = 0;
  int count = 1;

  constexpr Slice(int first, int how_many = 1)  // NOLINT(google-explicit-constructor)
      : chunk(first), count(how_many) {}
};

using Peers = std::vector<int>;

class ScheduleBuilder;

/// A step that was written, to be said more about. Valid while its builder is.
class StepHandle {
 public:
  /// The result is final: post-operations apply here.
  const StepHandle& completes() const;
  /// Orders it after `other`, a step of another lane, of the same piece or of an earlier one.
  const StepHandle& after(const StepHandle& other, int pieces_back = 0) const;

 private:
  friend class Verbs;
  StepHandle(Schedule& schedule, int lane, int step)
      : schedule_(&schedule), lane_(lane), step_(step) {}

  Step& step() const { return schedule_->lanes[lane_].steps[step_]; }

  Schedule* schedule_;
  int lane_;
  int step_;
};

/// Writes the steps of one lane. Valid while its builder is.
class Verbs {
 public:
  StepHandle copy(Slice slice) const;
  StepHandle send(Slice slice, const Peers& to) const;
  StepHandle send_output(Slice slice, const Peers& to) const;
  StepHandle copy_send(Slice slice, const Peers& to) const;

  StepHandle receive(int from, Slice slice) const;
  StepHandle receive_send(int from, Slice slice, const Peers& to) const;
  StepHandle receive_reduce(int from, Slice slice) const;
  StepHandle receive_reduce_send(int from, Slice slice, const Peers& to) const;
  StepHandle receive_reduce_copy_send(int from, Slice slice, const Peers& to) const;

  /// Reductions of more than one message, or in another order than "peer, then own input".
  StepHandle reduce_copy(std::vector<Operand> in, Slice slice) const;
  StepHandle reduce_send(std::vector<Operand> in, Slice slice, const Peers& to) const;
  StepHandle reduce_copy_send(std::vector<Operand> in, Slice slice, const Peers& to) const;

  /// The one kind of step, for what no verb says.
  StepHandle step(std::vector<Operand> in, std::vector<Operand> out, Slice slice) const;

  bool empty() const { return schedule_->lanes[lane_].steps.empty(); }
  StepHandle first() const { return {*schedule_, lane_, 0}; }
  StepHandle last() const;
  /// Orders all of this lane's steps, if there are any, after all of `other`'s.
  void starts_after(const Verbs& other) const;

 private:
  friend class ScheduleBuilder;
  Verbs(Schedule& schedule, int lane) : schedule_(&schedule), lane_(lane) {}

  Schedule* schedule_;
  int lane_;
};

/// One rank's schedule in the making. Own thread only.
class ScheduleBuilder {
 public:
  /// `chunks` of a piece; in the blocks layout it is the number of ranks.
  ScheduleBuilder(const PlanRequest& request, int chunks);
  ScheduleBuilder(const ScheduleBuilder&) = delete;
  ScheduleBuilder& operator=(const ScheduleBuilder&) = delete;

  /// Adds a lane that receives on one channel and sends on one.
  Verbs lane(int receives_on = 0, int sends_on = 0);

  Collective what() const { return schedule_.what; }

  /// Sets scratch memory aside.
  void scratch_chunks(int chunks) { schedule_.scratch_chunks = chunks; }

  /// `widest`: the most chunks that any step of any rank moves, not of this rank alone.
  Schedule finish(int widest = 1) &&;

 private:
  Schedule schedule_;
};

/// One operand of every rank, by rank: this rank's own `input` chunk and a message of each other.
/// Reducing in this order gives the same bits wherever it is done.
std::vector<Operand> in_rank_order(const PlanRequest& request, int chunk);

/// Any collective of a single rank: its input is its result.
Schedule plan_alone(const PlanRequest& request);

}  // namespace tutti::collectives
