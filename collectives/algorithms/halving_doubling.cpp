// halving_doubling: recursive halving reduces a share of the buffer on every rank, and recursive
// doubling collects the shares. This takes 2 log2(ranks) messages and sends no more bytes than a
// ring, which suits middle sizes. (Rabenseifner: Optimization of collective reduction operations.
// ICCS 2004.) If the number of ranks is not a power of two, some ranks form pairs that act as one
// member of the exchange (Pairing): each of the two reduces half of the buffer, and then one of
// them communicates for both.
#include <cassert>
#include <utility>

#include "collectives/algorithms/stages.h"
#include "collectives/schedule/rank_arithmetic.h"

namespace tutti {
namespace {

using namespace collectives;

/// One rank's part in the exchange of a group. Chunks have the numbers of the members.
class Exchange {
 public:
  explicit Exchange(const Group& group)
      : group_(group), pairing_{group.size()}, index_(group.index()) {}

  int chunks() const { return pairing_.members(); }
  int widest() const { return pairing_.members() / 2; }
  bool passive() const { return pairing_.passive(index_); }

  /// A passive rank sends the upper half of its input to its partner in the pair, reduces the lower
  /// half, and sends that.
  void give(const Verbs& lane) const {
    assert(passive());
    const int fellow = group_.next();
    lane.send(upper(), {fellow});
    lane.reduce_send({input(0), peer(fellow)}, lower(), {fellow});
  }

  /// A passive rank receives the result from its partner, which has communicated for both.
  void receive_result(const Verbs& lane) const {
    assert(passive());
    lane.receive(group_.next(), lower());
    lane.receive(group_.next(), upper());
  }

  /// Each member ends with its own chunk, completed, in `to`.
  void halve(const Verbs& lane, Place to) const {
    assert(!passive() && to != Place::input);
    Place held = Place::input;
    if (pairing_.speaks_for_two(index_)) {
      const int fellow = group_.previous();
      lane.send(lower(), {fellow});
      lane.step({peer(fellow), input(upper().chunk)}, {{to, upper().chunk}}, upper());
      lane.step({peer(fellow)}, {{to, 0}}, lower());
      held = to;
    }
    for (int round = pairing_.rounds() - 1; round >= 0; --round) {
      const int partner = partner_of(round);
      const Slice theirs = slice_of(partner, round);
      const Slice ours = slice_of(index_, round);
      lane.step({{held, theirs.chunk}}, {peer(group_.at(partner))}, theirs);
      std::vector<Operand> both{{held, ours.chunk}, peer(group_.at(partner))};
      if (partner < index_) std::swap(both[0], both[1]);
      const auto reduced = lane.step(both, {{to, ours.chunk}}, ours);
      if (round == 0) reduced.completes();
      held = to;
    }
  }

  /// Every member ends with all chunks, and sends them to the passive rank of its pair, if there is
  /// one.
  void collect(const Verbs& lane) const {
    assert(!passive());
    for (int round = 0; round < pairing_.rounds(); ++round) {
      const int partner = partner_of(round);
      lane.send_output(slice_of(index_, round), {group_.at(partner)});
      lane.receive(group_.at(partner), slice_of(partner, round));
    }
    if (!pairing_.speaks_for_two(index_)) return;
    lane.send_output(lower(), {group_.previous()});
    lane.send_output(upper(), {group_.previous()});
  }

  /// The last member ends with all chunks: in each round a member whose bit is 0 sends the chunks
  /// that it has gathered.
  void gather(const Verbs& lane, Place held) const {
    assert(!passive() && held != Place::input);
    for (int round = 0; round < pairing_.rounds(); ++round) {
      const int partner = partner_of(round);
      const Slice ours = slice_of(index_, round);
      const Slice theirs = slice_of(partner, round);
      if (partner > index_) {
        lane.step({{held, ours.chunk}}, {peer(group_.at(partner))}, ours);
        return;
      }
      lane.step({peer(group_.at(partner))}, {{held, theirs.chunk}}, theirs);
    }
  }

 private:
  Slice lower() const { return {0, chunks() / 2}; }
  Slice upper() const { return {chunks() / 2, chunks() / 2}; }
  int partner_of(int round) const { return pairing_.partner(index_, round); }
  /// Returns the chunks of the members that differ from the member of `index` only in the lowest
  /// `round` bits.
  Slice slice_of(int index, int round) const {
    assert(0 <= round && round < pairing_.rounds());
    return {pairing_.member(index) >> round << round, 1 << round};
  }

  const Group& group_;
  const Pairing pairing_;
  const int index_;
};

Schedule all_reduce(const PlanRequest& request) {
  const Group group = Group::all(request);
  const Exchange exchange(group);
  ScheduleBuilder plan(request, exchange.chunks());
  const Verbs halving = plan.lane(0, 0);
  const Verbs doubling = plan.lane(1, 1);
  if (exchange.passive()) {
    exchange.give(halving);
    exchange.receive_result(doubling);
  } else {
    exchange.halve(halving, Place::output);
    exchange.collect(doubling);
  }
  doubling.starts_after(halving);
  return std::move(plan).finish(exchange.widest());
}

/// The root is the last member of the group, which never belongs to a pair.
Schedule reduce(const PlanRequest& request) {
  const Group group = Group::all(request, request.root + 1);
  const Exchange exchange(group);
  ScheduleBuilder plan(request, exchange.chunks());
  const Verbs lane = plan.lane();
  if (exchange.passive()) {
    exchange.give(lane);
    return std::move(plan).finish(exchange.widest());
  }
  const Place held = request.rank == request.root ? Place::output : Place::scratch;
  if (held == Place::scratch) plan.scratch_chunks(exchange.chunks());
  exchange.halve(lane, held);
  exchange.gather(lane, held);
  return std::move(plan).finish(exchange.widest());
}

}  // namespace

Algorithm halving_doubling_algorithm() {
  return {.name = "halving_doubling",
          .plans = {{Collective::all_reduce, all_reduce}, {Collective::reduce, reduce}},
          .rewrites_output = true,
          .numbering = Numbering::far};
}

}  // namespace tutti
