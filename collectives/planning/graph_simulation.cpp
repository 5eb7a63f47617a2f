#include "collectives/planning/graph_simulation.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <cmath>

#include <tutti/error.hpp>

#include "collectives/planning/graph_state.h"

namespace tutti {
namespace {

constexpr Picoseconds kLatestTime = 1'000'000'000'000'000'000;

/// Runs the actors: it takes events in the order of their times, and settles rates after all events
/// of one time.
class Runner {
 public:
  explicit Runner(const GraphRequest& request)
      : request_(request),
        actors_(request),
        sharing_(actors_.sharing(request)),
        state_(actors_, request.costs.window, request.plans.pieces()),
        repeats_(actors_, state_, request.plans.pieces()) {
    assert(request.costs.window >= 1 && request.costs.step >= 0);
  }

  GraphRun run() {
    for (std::uint32_t lane = 0; lane < state_.lanes.size(); ++lane) try_start(lane, 0);
    while (!state_.events.empty()) {
      const Picoseconds now = state_.events.top().time;
      bool unit_ended = false;
      while (!state_.events.empty() && state_.events.top().time == now) {
        const Event event = state_.events.top();
        state_.events.pop();
        if (event.is_flow)
          end_transfer(event, now);
        else
          unit_ended |= end_step(event.number, now) && event.number == repeats_.clock();
        if (++run_.events > request_.most_events) refuse_events();
        if (run_.events % 1'000'000 == 0 && request_.progress)
          request_.progress("simulation", state_.part_done(repeats_.clock()));
      }
      settle(now);
      if (unit_ended && may_skip()) run_.repeated_steps += repeats_.skip(now);
    }
    finish();
    return std::move(run_);
  }

 private:
  using Event = GraphState::Event;
  using Lane = GraphState::Lane;

  // A step that is left out cannot be recorded.
  bool may_skip() const {
    return request_.skip_repeats &&
           (request_.recorded_actors == 0 || run_.spans.size() >= request_.most_spans);
  }

  [[noreturn]] void refuse_events() const {
    throw Error(ErrorKind::unavailable,
                fmt::format("the simulation has more than {} events: choose fewer ranks, larger "
                            "messages or another algorithm",
                            request_.most_events));
  }

  void add_event(Picoseconds now, double later, std::uint32_t number, bool is_flow,
                 std::uint32_t version) {
    const double time = static_cast<double>(now) + later;
    if (!(time < static_cast<double>(kLatestTime)))
      throw Error(ErrorKind::unavailable,
                  "the call would take more than eleven days: links are too slow for its bytes");
    state_.events.push(
        {now + static_cast<Picoseconds>(std::ceil(later)), number, version, is_flow});
  }

  // Lets a lane begin its next step if it is known when it can.
  void try_start(std::uint32_t number, Picoseconds now) {
    Lane& lane = state_.lanes[number];
    if (lane.running || lane.ended) return;
    const RankShape::Step& step = state_.step_of(lane);
    Picoseconds start = lane.time;
    const TimeParts* reason = &lane.parts;
    const auto later = [&](Picoseconds time, const TimeParts& parts) {
      if (time <= start) return;
      start = time;
      reason = &parts;
    };
    if (const Lane* other = state_.awaited(lane, step); other != nullptr) {
      lane.waits_for_lane = !state_.is_done(lane, step, *other);
      if (lane.waits_for_lane) return;
      if (other->time <= now) later(other->time, other->parts);
    }
    const bool moves = state_.moves(lane, step);
    if (moves && !messages_ready(lane, step, later)) return;
    const auto last = state_.last(lane);
    const double bytes = moves ? static_cast<double>(step.bytes[last]) : 0;
    const double cost = moves ? static_cast<double>(request_.costs.step) : 0;
    const double in_rank =
        bytes * 1e3 *
        (1 / request_.costs.copy_gb_per_s +
         std::max(0.0, double(step.inputs) - 1) / request_.costs.reduce_gb_per_s);
    const double took = std::round(cost + in_rank);
    lane.next = *reason;
    lane.next.steps += cost;
    lane.next.bytes += took - cost;
    lane.running = true;
    lane.begin = std::max(start, now);
    lane.next.steps += static_cast<double>(lane.begin - start);
    add_event(lane.begin, took, number, false, 0);
    lane.end = lane.begin + static_cast<Picoseconds>(took);
  }

  // Tells when each message of the step has come and when there is room for what it sends; returns
  // false if that is not known yet.
  template <typename Later>
  bool messages_ready(const Lane& lane, const RankShape::Step& step, Later later) const {
    const GraphActors::Actor& actor = actors_.actors[lane.actor];
    const std::uint32_t* ports = actor.shape->ports_of_steps.data() + step.first_port;
    for (std::uint32_t k = 0; k < step.receives; ++k) {
      const std::uint32_t port = actors_.port_of_receive[actor.first_receive + ports[k]];
      if (port == GraphActors::kNone) continue;
      const GraphState::Stream& stream = state_.streams[actors_.ports[port].stream];
      const std::uint64_t message = state_.ports[port].consumed;
      if (stream.sent <= message) return false;
      if (stream.posted > message + state_.window()) continue;  // it came long ago
      const auto& one = state_.message(actors_.ports[port].stream, message);
      later(one.time, one.parts);
    }
    for (std::uint32_t k = step.receives; k < step.receives + step.sends; ++k) {
      const std::uint32_t number = actors_.stream_of_send[actor.first_send + ports[k]];
      if (number == GraphActors::kNone) continue;
      const GraphState::Stream& stream = state_.streams[number];
      if (stream.posted < state_.window()) continue;
      const std::uint64_t before = stream.posted - state_.window();
      const std::uint32_t port = actors_.streams[number].consumer;
      if (state_.ports[port].consumed <= before) return false;
      if (state_.ports[port].consumed > stream.posted) continue;  // it was free long ago
      const auto& room = state_.room(port, before);
      later(room.time, room.parts);
    }
    return true;
  }

  // Returns whether a round or a piece has ended with the step.
  bool end_step(std::uint32_t number, Picoseconds now) {
    Lane& lane = state_.lanes[number];
    assert(lane.running);
    const RankShape::Step& step = state_.step_of(lane);
    const GraphActors::Actor& actor = actors_.actors[lane.actor];
    record(lane, number, step, now);
    lane.running = false;
    lane.time = now;
    lane.parts = lane.next;
    if (state_.moves(lane, step)) {
      const std::uint32_t* ports = actor.shape->ports_of_steps.data() + step.first_port;
      const auto bytes = static_cast<double>(step.bytes[state_.last(lane)]);
      for (std::uint32_t k = 0; k < step.receives; ++k) {
        const std::uint32_t port = actors_.port_of_receive[actor.first_receive + ports[k]];
        if (port != GraphActors::kNone) consume(port, lane.parts, now);
      }
      for (std::uint32_t k = step.receives; k < step.receives + step.sends; ++k) {
        const std::uint32_t stream = actors_.stream_of_send[actor.first_send + ports[k]];
        if (stream != GraphActors::kNone) post(stream, bytes, lane.parts, now);
      }
    }
    const bool unit = state_.advance(lane);
    try_start(number, now);
    for (std::size_t other = 0; other < actor.shape->lanes.size(); ++other)
      if (state_.lanes[actor.first_lane + other].waits_for_lane)
        try_start(static_cast<std::uint32_t>(actor.first_lane + other), now);
    return unit;
  }

  void consume(std::uint32_t port, const TimeParts& parts, Picoseconds now) {
    const Picoseconds latency = actors_.streams[actors_.ports[port].stream].latency;
    auto& room = state_.room(port, state_.ports[port].consumed++);
    room.time = now + latency;
    room.parts = parts;
    room.parts.latency += static_cast<double>(latency);
    for (std::uint32_t at = actors_.first_writer[port]; at < actors_.first_writer[port + 1]; ++at)
      try_start(actors_.streams[actors_.writers[at]].lane, now);
  }

  void post(std::uint32_t number, double bytes, const TimeParts& parts, Picoseconds now) {
    GraphState::Stream& stream = state_.streams[number];
    auto& message = state_.message(number, stream.posted++);
    message.bytes = bytes;
    message.time = now;
    message.parts = parts;
    if (stream.posted == stream.sent + 1) begin_transfer(number, now);
  }

  // A channel sends one message after the other.
  void begin_transfer(std::uint32_t number, Picoseconds now) {
    GraphState::Stream& stream = state_.streams[number];
    while (stream.sent < stream.posted && state_.message(number, stream.sent).bytes <= 0)
      arrive(number, now);
    if (stream.sent == stream.posted) return;
    stream.left = state_.message(number, stream.sent).bytes;
    stream.since = now;
    stream.rate = 0;
    ++stream.version;
    stream.busy = true;
    sharing_.start(number);
    flows_changed_ = true;
  }

  void end_transfer(const Event& event, Picoseconds now) {
    GraphState::Stream& stream = state_.streams[event.number];
    if (event.version != stream.version || !stream.busy) return;
    stream.busy = false;
    stream.left = 0;
    sharing_.stop(event.number);
    flows_changed_ = true;
    arrive(event.number, now);
    if (stream.sent < stream.posted) begin_transfer(event.number, now);
  }

  void arrive(std::uint32_t number, Picoseconds now) {
    GraphState::Stream& stream = state_.streams[number];
    auto& message = state_.message(number, stream.sent++);
    const Picoseconds latency = actors_.streams[number].latency;
    message.parts.transfer += static_cast<double>(now - message.time);
    message.parts.latency += static_cast<double>(latency);
    message.time = now + latency;
    for (std::uint32_t at = actors_.first_reader[number]; at < actors_.first_reader[number + 1];
         ++at)
      try_start(actors_.ports[actors_.readers[at]].lane, now);
  }

  void settle(Picoseconds now) {
    if (!std::exchange(flows_changed_, false)) return;
    for (const std::uint32_t number : sharing_.settle()) {
      GraphState::Stream& stream = state_.streams[number];
      stream.left -= stream.rate * static_cast<double>(now - stream.since);
      stream.since = now;
      stream.rate = sharing_.rate(number);
      ++stream.version;
      if (stream.rate > 0)
        add_event(now, std::max(0.0, stream.left) / stream.rate, number, true, stream.version);
    }
  }

  void record(const Lane& lane, std::uint32_t number, const RankShape::Step& step,
              Picoseconds now) {
    if (lane.actor >= request_.recorded_actors || run_.spans.size() >= request_.most_spans) return;
    run_.spans.push_back(
        {lane.actor, static_cast<std::uint32_t>(number - actors_.actors[lane.actor].first_lane),
         step.receives, step.inputs, step.sends, step.bytes[state_.last(lane)], lane.piece,
         lane.round, lane.begin, now});
  }

  void finish() {
    for (const Lane& lane : state_.lanes) {
      if (!lane.ended)
        throw Error(ErrorKind::unavailable,
                    "the classes of ranks are too coarse: one waits for itself; choose fewer ranks "
                    "or another algorithm");
      if (lane.time < run_.time) continue;
      run_.time = lane.time;
      run_.parts = lane.parts;
    }
  }

  const GraphRequest& request_;
  const GraphActors actors_;
  LinkSharing sharing_;
  GraphState state_;
  GraphRepeats repeats_;
  GraphRun run_;
  bool flows_changed_ = false;
};

}  // namespace

GraphRun run_on_graph(const GraphRequest& request) { return Runner(request).run(); }

}  // namespace tutti
