#include <cstdint>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include <tutti/error.hpp>
#include <tutti/schedule.hpp>

#include "collectives/schedule/semantics.h"

namespace tutti {
namespace {

/// Returns `first`, which may be empty, and a message to each of `to`.
std::vector<Operand> with_peers(std::vector<Operand> first, const Peers& to) {
  for (const int rank : to) first.push_back(peer(rank));
  return first;
}

[[noreturn]] void refuse_verb(const char* what) { throw Error(ErrorKind::usage, what); }

}  // namespace

Step& StepHandle::step() const { return schedule_->lanes[lane_].steps[step_]; }

const StepHandle& StepHandle::completes() const {
  step().completes = true;
  return *this;
}

const StepHandle& StepHandle::after(const StepHandle& other, int pieces_back) const {
  if (other.schedule_ != schedule_)
    refuse_verb("a step can be after a step of its own schedule only");
  if (step().after.lane >= 0) refuse_verb("a step can be after one other step only");
  step().after = {other.lane_, other.step_, pieces_back};
  return *this;
}

std::vector<Step>& Verbs::steps() const { return schedule_->lanes[lane_].steps; }

StepHandle Verbs::step(std::vector<Operand> in, std::vector<Operand> out, Slice slice) const {
  steps().push_back({.in = std::move(in),
                     .out = std::move(out),
                     .chunk = slice.chunk,
                     .count = slice.count,
                     .completes = false,
                     .after = {}});
  return last();
}

bool Verbs::empty() const { return steps().empty(); }

StepHandle Verbs::first() const {
  if (empty()) refuse_verb("a lane without steps has no first and no last");
  return {*schedule_, lane_, 0};
}

StepHandle Verbs::last() const {
  StepHandle handle = first();
  handle.step_ = static_cast<int>(steps().size()) - 1;
  return handle;
}

void Verbs::starts_after(const Verbs& other) const {
  if (!empty()) first().after(other.last());
}

StepHandle Verbs::copy(Slice slice) const {
  return step({input(slice.chunk)}, {output(slice.chunk)}, slice);
}

StepHandle Verbs::send(Slice slice, const Peers& to) const {
  return step({input(slice.chunk)}, with_peers({}, to), slice);
}

StepHandle Verbs::send_output(Slice slice, const Peers& to) const {
  return step({output(slice.chunk)}, with_peers({}, to), slice);
}

StepHandle Verbs::copy_send(Slice slice, const Peers& to) const {
  return step({input(slice.chunk)}, with_peers({output(slice.chunk)}, to), slice);
}

StepHandle Verbs::receive(int from, Slice slice) const { return receive_send(from, slice, {}); }

StepHandle Verbs::receive_send(int from, Slice slice, const Peers& to) const {
  return step({peer(from)}, with_peers({output(slice.chunk)}, to), slice);
}

StepHandle Verbs::receive_reduce(int from, Slice slice) const {
  return receive_reduce_copy_send(from, slice, {});
}

StepHandle Verbs::receive_reduce_send(int from, Slice slice, const Peers& to) const {
  return reduce_send({peer(from), input(slice.chunk)}, slice, to);
}

StepHandle Verbs::receive_reduce_copy_send(int from, Slice slice, const Peers& to) const {
  return reduce_copy_send({peer(from), input(slice.chunk)}, slice, to);
}

StepHandle Verbs::reduce_copy(std::vector<Operand> in, Slice slice) const {
  return reduce_copy_send(std::move(in), slice, {});
}

StepHandle Verbs::reduce_send(std::vector<Operand> in, Slice slice, const Peers& to) const {
  return step(std::move(in), with_peers({}, to), slice);
}

StepHandle Verbs::reduce_copy_send(std::vector<Operand> in, Slice slice, const Peers& to) const {
  return step(std::move(in), with_peers({output(slice.chunk)}, to), slice);
}

ScheduleBuilder::ScheduleBuilder(const PlanRequest& request, int chunks) {
  schedule_.what = request.what;
  schedule_.layout = collectives::layout_of(request.what);
  schedule_.rank = request.rank;
  schedule_.ranks = request.ranks;
  schedule_.root = collectives::has_root(request.what) ? request.root : 0;
  schedule_.chunks = chunks;
}

Verbs ScheduleBuilder::lane(int receives_on, int sends_on) {
  schedule_.lanes.push_back({receives_on, sends_on, {}});
  return {schedule_, static_cast<int>(schedule_.lanes.size()) - 1};
}

Schedule ScheduleBuilder::finish(int widest) && {
  schedule_.widest = widest;
  return std::move(schedule_);
}

std::vector<Operand> in_rank_order(const PlanRequest& request, int chunk) {
  std::vector<Operand> operands;
  operands.reserve(request.ranks);
  for (int rank = 0; rank < request.ranks; ++rank)
    operands.push_back(rank == request.rank ? input(chunk) : peer(rank));
  return operands;
}

namespace collectives {

static_assert(std::int64_t{kMostPairedRanks} * kMostPairedRanks <= std::numeric_limits<int>::max());

int block_count(Collective what, int ranks) {
  if (what != Collective::all_to_all) return ranks;
  if (ranks > kMostPairedRanks)
    throw Error(
        ErrorKind::unavailable,
        fmt::format("all_to_all: {} ranks have {} blocks, and tutti numbers those of at most "
                    "{} ranks; split the communicator",
                    ranks, std::int64_t{ranks} * ranks, kMostPairedRanks));
  return ranks * ranks;
}

}  // namespace collectives
}  // namespace tutti
