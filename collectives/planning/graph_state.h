// Holds the state of a simulation over a graph: how far each lane is, what is in flight, and what
// comes next; and the search for states that repeat.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "collectives/planning/graph_actors.h"

namespace tutti {

class GraphState {
 public:
  struct Event {
    Picoseconds time;
    std::uint32_t number;   // of a lane whose step ends, or of a stream whose message has left
    std::uint32_t version;  // of a stream's rate; an event of an earlier version says nothing
    bool is_flow;
  };
  /// Is a heap with the earliest event at its top.
  class Events {
   public:
    bool empty() const { return list_.empty(); }
    const Event& top() const { return list_.front(); }
    void push(const Event& event) {
      list_.push_back(event);
      std::push_heap(list_.begin(), list_.end(), later);
    }
    void pop() {
      std::pop_heap(list_.begin(), list_.end(), later);
      list_.pop_back();
    }
    void clear() { list_.clear(); }

   private:
    static bool later(const Event& a, const Event& b) {
      if (a.time != b.time) return a.time > b.time;
      return a.is_flow != b.is_flow ? a.is_flow > b.is_flow : a.number > b.number;
    }
    std::vector<Event> list_;
  };

  struct Lane {
    std::uint32_t actor, shape_lane;
    std::uint32_t block = 0, k = 0;  // the step in the block
    std::uint64_t round = 0, piece = 0;
    std::uint64_t done = 0;          // steps of the call
    Picoseconds time = 0;            // when its last step ended
    Picoseconds begin = 0, end = 0;  // of the step that runs
    bool running = false, ended = false, waits_for_lane = false;
    TimeParts parts{};  // up to `time`
    TimeParts next{};   // up to `end`
  };
  struct Stream {
    std::uint64_t posted = 0;   // messages that the sender has written
    std::uint64_t sent = 0;     // those that have left it
    double left = 0, rate = 0;  // bytes of the message that is on its way, at `since`
    Picoseconds since = 0;
    std::uint32_t version = 0;
    bool busy = false;
  };
  struct Port {
    std::uint64_t consumed = 0;
  };
  struct Message {
    double bytes = 0;
    Picoseconds time = 0;  // when it was posted, then when it arrives
    TimeParts parts{};
  };
  struct Room {
    Picoseconds time = 0;  // when the sender knows that the message's room is free
    TimeParts parts{};
  };

  GraphState(const GraphActors& actors, int window, std::uint64_t pieces);

  std::uint64_t window() const { return window_; }
  Message& message(std::uint32_t stream, std::uint64_t number) {
    return messages[stream * window_ + number % window_];
  }
  const Message& message(std::uint32_t stream, std::uint64_t number) const {
    return messages[stream * window_ + number % window_];
  }
  Room& room(std::uint32_t port, std::uint64_t number) {
    return rooms[port * window_ + number % window_];
  }
  const Room& room(std::uint32_t port, std::uint64_t number) const {
    return rooms[port * window_ + number % window_];
  }

  const RankShape& shape_of(const Lane& lane) const { return *actors_->actors[lane.actor].shape; }
  const RankShape::Block& block_of(const Lane& lane) const {
    const RankShape& shape = shape_of(lane);
    return shape.blocks[shape.lanes[lane.shape_lane].first_block + lane.block];
  }
  const RankShape::Step& step_of(const Lane& lane) const {
    return shape_of(lane).steps[block_of(lane).first_step + lane.k];
  }
  std::size_t last(const Lane& lane) const { return lane.piece + 1 == pieces_ ? 1 : 0; }
  /// After the first piece, the engine leaves out empty pieces.
  bool moves(const Lane& lane, const RankShape::Step& step) const {
    return lane.piece == 0 || step.bytes[last(lane)] > 0;
  }
  /// Returns the lane for which the step waits; null if it waits for none.
  const Lane* awaited(const Lane& lane, const RankShape::Step& step) const;
  bool is_done(const Lane& lane, const RankShape::Step& step, const Lane& other) const;
  /// Goes on to the lane's next step. Returns whether a round or a piece has ended.
  bool advance(Lane& lane) const;
  /// Returns how much of a lane's steps is done, from 0 to 1.
  double part_done(std::uint32_t lane) const;

  std::vector<Lane> lanes;
  std::vector<Stream> streams;
  std::vector<Port> ports;
  std::vector<Message> messages;
  std::vector<Room> rooms;
  Events events;

 private:
  const GraphActors* actors_;
  std::uint64_t window_, pieces_;
};

/// Finds that a state is an earlier one, later by a constant: all that follows then repeats, until
/// a lane comes to the end of its rounds or of its pieces, and can be left out (as Brent finds
/// cycles: An improved Monte Carlo factorization algorithm, BIT 20, 1980).
class GraphRepeats {
 public:
  GraphRepeats(const GraphActors& actors, GraphState& state, std::uint64_t pieces);

  /// Returns the lane at whose rounds and pieces skip() is to be called.
  std::uint32_t clock() const { return clock_; }

  /// All events up to `now` are done. Returns the number of steps that were left out; all times
  /// that are to come are then later.
  std::uint64_t skip(Picoseconds now);

 private:
  /// Says what one repetition does.
  struct Repetition {
    bool of_pieces = false;
    std::uint64_t pieces = 0;  // how many pieces further all lanes are
    std::uint64_t times = 0;   // how often it can be repeated
  };
  struct Checkpoint {
    Picoseconds now;
    GraphState state;
  };

  void choose_clock();
  std::optional<Repetition> repetition(Picoseconds now) const;
  bool lane_repeats(std::size_t number, Picoseconds now, Repetition& found) const;
  bool stream_repeats(std::uint32_t number, Picoseconds now) const;
  bool port_repeats(std::uint32_t number, Picoseconds now) const;
  std::uint64_t apply(const Repetition& repetition, Picoseconds now);
  void shift_messages(std::uint64_t times, Picoseconds shift, Picoseconds now);

  const GraphActors& actors_;
  GraphState& state_;
  const std::uint64_t pieces_;
  std::uint64_t most_back_ = 1;  // the most pieces that a step looks back
  std::uint32_t clock_ = 0;
  std::uint64_t looks_ = 0, next_checkpoint_ = 4;
  std::optional<Checkpoint> checkpoint_;
};

}  // namespace tutti
