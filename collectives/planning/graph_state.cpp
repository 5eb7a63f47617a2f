#include "collectives/planning/graph_state.h"

#include <cassert>
#include <cmath>
#include <limits>

namespace tutti {
namespace {

constexpr Picoseconds kSame = 4;  // ps: what rounding may change

bool same(Picoseconds a, Picoseconds b) { return std::abs(a - b) <= kSame; }
bool same(double a, double b) { return std::abs(a - b) <= 1e-6 * std::max(std::abs(a), 1.0); }

/// Returns how long it is from now on; what has been is all alike.
Picoseconds from_now(Picoseconds time, Picoseconds now) {
  return std::max<Picoseconds>(0, time - now);
}

// Adds what has repeated from `then` to `parts`, which takes `shift` in all. What was last then may
// have been another chain, of which a part was longer; the others take the place of that part.
void add(TimeParts& parts, const TimeParts& then, Picoseconds shift) {
  const TimeParts more{
      std::max(0.0, parts.steps - then.steps), std::max(0.0, parts.bytes - then.bytes),
      std::max(0.0, parts.transfer - then.transfer), std::max(0.0, parts.latency - then.latency)};
  const double share = more.sum() > 0 ? static_cast<double>(shift) / more.sum() : 0;
  parts.steps += share * more.steps;
  parts.bytes += share * more.bytes;
  parts.transfer += share * more.transfer;
  parts.latency += share * more.latency;
}

}  // namespace

GraphState::GraphState(const GraphActors& actors, int window, std::uint64_t pieces)
    : streams(actors.streams.size()),
      ports(actors.ports.size()),
      messages(actors.streams.size() * static_cast<std::size_t>(window)),
      rooms(actors.ports.size() * static_cast<std::size_t>(window)),
      actors_(&actors),
      window_(static_cast<std::uint64_t>(window)),
      pieces_(pieces) {
  for (std::uint32_t actor = 0; actor < actors.actors.size(); ++actor)
    for (std::uint32_t lane = 0; lane < actors.actors[actor].shape->lanes.size(); ++lane) {
      Lane& one = lanes.emplace_back();
      one.actor = actor;
      one.shape_lane = lane;
      one.ended = actors.actors[actor].shape->lanes[lane].steps == 0;
    }
}

const GraphState::Lane* GraphState::awaited(const Lane& lane, const RankShape::Step& step) const {
  if (step.after_lane < 0 || lane.piece < static_cast<std::uint64_t>(step.pieces_back))
    return nullptr;
  return &lanes[actors_->actors[lane.actor].first_lane + static_cast<std::size_t>(step.after_lane)];
}

bool GraphState::is_done(const Lane& lane, const RankShape::Step& step, const Lane& other) const {
  const RankShape& shape = shape_of(lane);
  const RankShape::Step& before = shape.steps[static_cast<std::size_t>(step.after_step)];
  const std::uint64_t round = before.rounds == step.rounds ? lane.round : before.rounds - 1;
  const std::uint64_t piece = lane.piece - static_cast<std::uint64_t>(step.pieces_back);
  return other.done >
         piece * shape.lanes[other.shape_lane].steps + before.position + round * before.apart;
}

bool GraphState::advance(Lane& lane) const {
  const RankShape::Block& block = block_of(lane);
  ++lane.done;
  if (++lane.k < block.steps) return false;
  lane.k = 0;
  if (++lane.round < block.count) return true;
  lane.round = 0;
  if (++lane.block < shape_of(lane).lanes[lane.shape_lane].blocks) return false;
  lane.block = 0;
  lane.ended = ++lane.piece == pieces_;
  return true;
}

double GraphState::part_done(std::uint32_t number) const {
  if (number >= lanes.size()) return 1;
  const Lane& lane = lanes[number];
  const double all = static_cast<double>(pieces_) *
                     static_cast<double>(shape_of(lane).lanes[lane.shape_lane].steps);
  return all > 0 ? static_cast<double>(lane.done) / all : 1;
}

GraphRepeats::GraphRepeats(const GraphActors& actors, GraphState& state, std::uint64_t pieces)
    : actors_(actors), state_(state), pieces_(pieces) {
  for (const GraphActors::Actor& actor : actors.actors)
    for (const RankShape::Step& step : actor.shape->steps)
      most_back_ = std::max(most_back_, static_cast<std::uint64_t>(step.pieces_back));
  choose_clock();
}

void GraphRepeats::choose_clock() {
  while (clock_ < state_.lanes.size() && state_.lanes[clock_].ended) ++clock_;
}

std::uint64_t GraphRepeats::skip(Picoseconds now) {
  choose_clock();
  if (clock_ == state_.lanes.size()) return 0;
  ++looks_;
  if (checkpoint_)
    if (const auto found = repetition(now)) {
      const std::uint64_t steps = apply(*found, now);
      checkpoint_.reset();
      looks_ = 0;
      next_checkpoint_ = 4;
      return steps;
    }
  if (looks_ >= next_checkpoint_) {
    checkpoint_.emplace(Checkpoint{now, state_});
    next_checkpoint_ = looks_ * 2;
  }
  return 0;
}

std::optional<GraphRepeats::Repetition> GraphRepeats::repetition(Picoseconds now) const {
  if (now <= checkpoint_->now) return std::nullopt;
  const std::uint64_t most = static_cast<std::uint64_t>(
      (std::numeric_limits<Picoseconds>::max() / 4 - now) / (now - checkpoint_->now));
  const GraphState::Lane& clock = state_.lanes[clock_];
  const GraphState::Lane& before = checkpoint_->state.lanes[clock_];
  Repetition found{clock.piece != before.piece, clock.piece - before.piece, most};
  for (std::size_t lane = 0; lane < state_.lanes.size(); ++lane)
    if (!lane_repeats(lane, now, found)) return std::nullopt;
  for (std::uint32_t stream = 0; stream < state_.streams.size(); ++stream)
    if (!stream_repeats(stream, now)) return std::nullopt;
  for (std::uint32_t port = 0; port < state_.ports.size(); ++port)
    if (!port_repeats(port, now)) return std::nullopt;
  if (found.times == 0) return std::nullopt;
  return found;
}

bool GraphRepeats::lane_repeats(std::size_t number, Picoseconds now, Repetition& found) const {
  const GraphState::Lane& lane = state_.lanes[number];
  const GraphState::Lane& then = checkpoint_->state.lanes[number];
  if (lane.ended || then.ended) return lane.ended && then.ended;
  if (lane.block != then.block || lane.k != then.k || lane.running != then.running ||
      lane.waits_for_lane != then.waits_for_lane)
    return false;
  if (lane.running && !same(lane.end - now, then.end - checkpoint_->now)) return false;
  if (lane.done != then.done && !same(lane.time - now, then.time - checkpoint_->now)) return false;
  if (found.of_pieces) {
    if (lane.piece - then.piece != found.pieces || lane.round != then.round) return false;
    // The first pieces and the last one are not like the others.
    if (then.piece < most_back_ || lane.piece + 2 > pieces_) return false;
    found.times = std::min(found.times, (pieces_ - 2 - lane.piece) / found.pieces);
    return true;
  }
  if (lane.piece != then.piece) return false;
  if (lane.round == then.round) return true;
  const RankShape::Block& block = state_.block_of(lane);
  for (std::uint32_t k = 0; k < block.steps; ++k)
    if (state_.shape_of(lane).steps[block.first_step + k].after_lane >= 0) return false;
  if (lane.round + 2 > block.count) return false;
  found.times = std::min(found.times, (block.count - 2 - lane.round) / (lane.round - then.round));
  return true;
}

bool GraphRepeats::stream_repeats(std::uint32_t number, Picoseconds now) const {
  const GraphState& before = checkpoint_->state;
  const GraphState::Stream& stream = state_.streams[number];
  const GraphState::Stream& then = before.streams[number];
  if (stream.posted - stream.sent != then.posted - then.sent || stream.busy != then.busy)
    return false;
  if (stream.busy) {
    const auto left = [](const GraphState::Stream& one, Picoseconds at) {
      return one.left - one.rate * static_cast<double>(at - one.since);
    };
    if (!same(left(stream, now), left(then, checkpoint_->now)) ||
        std::abs(stream.rate - then.rate) > 1e-9 * then.rate)
      return false;
  }
  const bool moved = stream.posted != then.posted;
  for (std::uint64_t back = 1; back <= std::min(state_.window(), stream.posted); ++back) {
    if (back > then.posted) return false;
    const auto& message = state_.message(number, stream.posted - back);
    const auto& one = before.message(number, then.posted - back);
    const bool arrived = back > stream.posted - stream.sent;
    if (!arrived && message.bytes != one.bytes) return false;
    if (!moved ? !same(from_now(message.time, now), from_now(one.time, checkpoint_->now))
               : !same(message.time - now, one.time - checkpoint_->now))
      return false;
  }
  return true;
}

bool GraphRepeats::port_repeats(std::uint32_t number, Picoseconds now) const {
  const GraphState& before = checkpoint_->state;
  const std::uint32_t stream = actors_.ports[number].stream;
  const std::uint64_t consumed = state_.ports[number].consumed,
                      then = before.ports[number].consumed;
  if (consumed - then != state_.streams[stream].posted - before.streams[stream].posted)
    return false;
  for (std::uint64_t back = 1; back <= std::min(state_.window(), consumed); ++back) {
    if (back > then) return false;
    const Picoseconds room = state_.room(number, consumed - back).time,
                      earlier = before.room(number, then - back).time;
    if (consumed == then ? !same(from_now(room, now), from_now(earlier, checkpoint_->now))
                         : !same(room - now, earlier - checkpoint_->now))
      return false;
  }
  return true;
}

// Puts the state where it is after the repetitions.
std::uint64_t GraphRepeats::apply(const Repetition& repetition, Picoseconds now) {
  const std::uint64_t times = repetition.times;
  const Picoseconds shift = static_cast<Picoseconds>(times) * (now - checkpoint_->now);
  std::uint64_t steps = 0;
  state_.events.clear();
  for (std::uint32_t number = 0; number < state_.lanes.size(); ++number) {
    GraphState::Lane& lane = state_.lanes[number];
    const GraphState::Lane& then = checkpoint_->state.lanes[number];
    if (lane.done == then.done) continue;
    steps += times * (lane.done - then.done);
    lane.done += times * (lane.done - then.done);
    lane.piece += times * (lane.piece - then.piece);
    lane.round += times * (lane.round - then.round);
    lane.time += shift;
    add(lane.parts, then.parts, shift);
    if (!lane.running) continue;
    lane.begin += shift;
    lane.end += shift;
    add(lane.next, then.next, shift);
    state_.events.push({lane.end, number, 0, false});
  }
  shift_messages(times, shift, now);
  return steps;
}

void GraphRepeats::shift_messages(std::uint64_t times, Picoseconds shift, Picoseconds now) {
  const GraphState& before = checkpoint_->state;
  const std::uint64_t window = state_.window();
  std::vector<GraphState::Message> messages(window);
  std::vector<GraphState::Room> rooms(window);
  for (std::uint32_t number = 0; number < state_.streams.size(); ++number) {
    GraphState::Stream& stream = state_.streams[number];
    const std::uint64_t then = before.streams[number].posted, more = times * (stream.posted - then);
    if (stream.busy) {
      stream.left -= stream.rate * static_cast<double>(now - stream.since);
      stream.since = now + shift;
      if (stream.rate > 0)
        state_.events.push({stream.since + static_cast<Picoseconds>(
                                               std::ceil(std::max(0.0, stream.left) / stream.rate)),
                            number, stream.version, true});
    }
    if (more == 0) continue;
    const std::uint64_t count = std::min(window, stream.posted);
    for (std::uint64_t back = 1; back <= count; ++back) {
      GraphState::Message& message = messages[back - 1] =
          state_.message(number, stream.posted - back);
      message.time += shift;
      add(message.parts, before.message(number, then - back).parts, shift);
    }
    stream.posted += more;
    stream.sent += more;
    for (std::uint64_t back = 1; back <= count; ++back)
      state_.message(number, stream.posted - back) = messages[back - 1];
  }
  for (std::uint32_t number = 0; number < state_.ports.size(); ++number) {
    GraphState::Port& port = state_.ports[number];
    const std::uint64_t then = before.ports[number].consumed, more = times * (port.consumed - then);
    if (more == 0) continue;
    const std::uint64_t count = std::min(window, port.consumed);
    for (std::uint64_t back = 1; back <= count; ++back) {
      GraphState::Room& room = rooms[back - 1] = state_.room(number, port.consumed - back);
      room.time += shift;
      add(room.parts, before.room(number, then - back).parts, shift);
    }
    port.consumed += more;
    for (std::uint64_t back = 1; back <= count; ++back)
      state_.room(number, port.consumed - back) = rooms[back - 1];
  }
}

}  // namespace tutti
