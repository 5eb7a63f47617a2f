// Executes all ranks with symbols, as the engine does: a step starts when the step in its `after`
// is done, all its messages have arrived and all its slots are free; then it reads, writes, posts
// and releases. Lanes are sequential, channels have one writer and one reader, and waiting for a
// slot is waiting for a token on a channel in the opposite direction. This is a Kahn network, which
// ends in the same state in every order of execution, so one order is enough: a lane runs until it
// must wait, and is tried again when the thing that it waits for has moved.
#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <utility>

#include "collectives/formats/print.h"
#include "collectives/schedule/answers.h"
#include "collectives/verify/checks.h"
#include "collectives/verify/symbolic_channels.h"
#include "collectives/verify/symbolic_memory.h"

namespace tutti::collectives {
namespace {

/// The state of a lane. The lanes of all ranks are numbered consecutively.
struct LaneState {
  int rank = 0;
  int number = 0;  // its index in its schedule
  const std::vector<Step>* steps = nullptr;
  // A channel for each peer that a step names, in order. The channels of step s for `in` begin at
  // first[2 * s], those for `out` at first[2 * s + 1].
  std::vector<int> channels;
  std::vector<int> first{0};
  std::vector<int> followers;  // the lanes of this rank that have a step after one of this lane
  int done = 0;                // number of steps done in this operation, over all pieces
  bool queued = false;

  int step_count() const { return static_cast<int>(steps->size()); }
  int step() const { return done % step_count(); }
  int piece() const { return done / step_count(); }
  const Step& current() const { return (*steps)[step()]; }

  std::span<const int> receives() const { return part(2 * step()); }
  std::span<const int> sends() const { return part(2 * step() + 1); }
  std::span<const int> part(int i) const {
    return {channels.data() + first[i], static_cast<std::size_t>(first[i + 1] - first[i])};
  }
};

struct RankState {
  int first_lane = 0;
  int end_lane = 0;
  int busy_lanes = 0;
  int operation = 0;
};

class Run {
 public:
  Run(std::span<const Schedule> schedules, const VerifyOptions& options)
      : options_(options),
        memory_(schedules, options),
        channels_(static_cast<int>(schedules.size()), options.window, schedules[0].widest) {
    for (const Schedule& schedule : schedules) add_rank(schedule);
    channels_.reserve();
  }

  void run() {
    for (int rank = 0; rank < static_cast<int>(ranks_.size()); ++rank) begin_operation(rank);
    while (!queue_.empty()) {
      const int lane = queue_.back();
      queue_.pop_back();
      lanes_[lane].queued = false;
      while (advance(lanes_[lane])) {
      }
    }
    for (const RankState& rank : ranks_)
      if (rank.operation < options_.operations) fail_deadlock();
    for (int id = 0; id < channels_.size(); ++id)
      if (!channels_.empty(id)) fail_leftover(id);
  }

 private:
  // --- set-up ---

  void add_rank(const Schedule& schedule) {
    RankState& rank = ranks_.emplace_back();
    rank.first_lane = static_cast<int>(lanes_.size());
    rank.end_lane = rank.first_lane + static_cast<int>(schedule.lanes.size());
    for (const Lane& lane : schedule.lanes) {
      LaneState& state = lanes_.emplace_back();
      state.rank = schedule.rank;
      state.number = static_cast<int>(lanes_.size()) - 1 - rank.first_lane;
      state.steps = &lane.steps;
      for (const Step& step : lane.steps) add_channels(state, lane, step);
      for (const int peer : answered_peers(lane))
        channels_.set_answered(channels_.id(peer, state.rank, lane.receives_on),
                               channels_.id(state.rank, peer, lane.sends_on));
    }
    for (int lane = rank.first_lane; lane < rank.end_lane; ++lane)
      for (const Step& step : *lanes_[lane].steps) {
        if (step.after.lane < 0) continue;
        auto& followers = lanes_[rank.first_lane + step.after.lane].followers;
        if (followers.empty() || followers.back() != lane) followers.push_back(lane);
      }
  }

  void add_channels(LaneState& state, const Lane& lane, const Step& step) {
    const int self = static_cast<int>(&state - lanes_.data());
    for (const Operand& from : step.in) {
      if (from.place != Place::peer) continue;
      state.channels.push_back(
          channels_.add_receiver(from.index, state.rank, lane.receives_on, self));
      if (state.channels.back() < 0) {
        const int other =
            channels_[channels_.id(from.index, state.rank, lane.receives_on)].receiver;
        fail_shared(state, other, "receives from", from.index, lane.receives_on);
      }
    }
    state.first.push_back(static_cast<int>(state.channels.size()));
    for (const Operand& to : step.out) {
      if (to.place != Place::peer) continue;
      state.channels.push_back(channels_.add_sender(state.rank, to.index, lane.sends_on, self));
      if (state.channels.back() < 0) {
        const int other = channels_[channels_.id(state.rank, to.index, lane.sends_on)].sender;
        fail_shared(state, other, "sends to", to.index, lane.sends_on);
      }
    }
    state.first.push_back(static_cast<int>(state.channels.size()));
  }

  // --- the run ---

  void begin_operation(int number) {
    RankState& rank = ranks_[number];
    for (; rank.operation < options_.operations; end_operation(number)) {
      memory_.begin_operation(number, rank.operation);
      assert(rank.busy_lanes == 0);
      for (int lane = rank.first_lane; lane < rank.end_lane; ++lane) {
        lanes_[lane].done = 0;
        if (lanes_[lane].steps->empty()) continue;
        ++rank.busy_lanes;
        wake(lane);
      }
      if (rank.busy_lanes > 0) return;
    }
  }

  void end_operation(int number) {
    assert(ranks_[number].busy_lanes == 0);
    memory_.check_results(number, ranks_[number].operation,
                          [&](int chunk) { return writer_of(ranks_[number], chunk); });
    ++ranks_[number].operation;
  }

  /// Names the last step, in the order of lanes, that writes `chunk` of the output of the rank.
  std::string writer_of(const RankState& rank, int chunk) const {
    std::string writer = "which no step writes";
    for (int number = rank.first_lane; number < rank.end_lane; ++number) {
      const LaneState& lane = lanes_[number];
      for (int k = 0; k < lane.step_count(); ++k) {
        const Step& step = (*lane.steps)[k];
        const auto is_output = [](const Operand& to) { return to.place == Place::output; };
        if (step.chunk <= chunk && chunk < step.chunk + step.count &&
            std::any_of(step.out.begin(), step.out.end(), is_output))
          writer = fmt::format("written by lane {} step {}", lane.number, k);
      }
    }
    return writer;
  }

  void wake(int lane) {
    if (lane < 0 || lanes_[lane].queued) return;
    lanes_[lane].queued = true;
    queue_.push_back(lane);
  }

  bool ended(const LaneState& lane) const {
    return lane.done == options_.pieces * lane.step_count();
  }

  const LaneState& predecessor(const LaneState& lane) const {
    assert(lane.current().after.lane >= 0);
    return lanes_[ranks_[lane.rank].first_lane + lane.current().after.lane];
  }

  /// Returns whether the step in the `after` of the lane's current step has not been done yet.
  bool must_wait(const LaneState& lane) const {
    const After& after = lane.current().after;
    if (after.lane < 0 || lane.piece() < after.pieces_back) return false;
    const int piece = lane.piece() - after.pieces_back;
    const LaneState& other = predecessor(lane);
    return other.done <= piece * other.step_count() + after.step;
  }

  /// Does the lane's next step if that is possible now, and returns whether it did.
  bool advance(LaneState& lane) {
    if (ended(lane) || must_wait(lane)) return false;
    const auto receives = lane.receives();
    const auto sends = lane.sends();
    for (const int id : receives)
      if (channels_.empty(id)) return false;
    for (const int id : sends)
      if (channels_.full(id)) return false;

    const Step& step = lane.current();
    RankState& rank = ranks_[lane.rank];
    for (const int id : receives) check_label(lane, id);
    if (!step.in.empty())
      for (int k = 0; k < step.count; ++k) move_chunk(lane, k);
    for (const int id : sends) {
      channels_.post(id, {rank.operation, lane.piece(), lane.step(), step.chunk, step.count,
                          answered_by(lane, id)});
      wake(channels_[id].receiver);
    }
    for (const int id : receives) {
      const auto freed = channels_.release(id);
      if (freed.own >= 0) wake(channels_[freed.own].sender);
      if (freed.answered >= 0) wake(channels_[freed.answered].sender);
    }
    ++lane.done;
    assert(rank.busy_lanes > 0 && lane.done <= options_.pieces * lane.step_count());
    for (const int follower : lane.followers) wake(follower);
    if (ended(lane) && --rank.busy_lanes == 0) {
      end_operation(lane.rank);
      begin_operation(lane.rank);
    }
    return true;
  }

  /// Returns the channel of the message that a message on `id` answers, or -1.
  int answered_by(const LaneState& lane, int id) const {
    const auto receives = lane.receives();
    const auto answered = std::find_if(receives.begin(), receives.end(),
                                       [&](int from) { return channels_[from].answered_on == id; });
    return answered == receives.end() ? -1 : *answered;
  }

  /// Moves the `k`-th of the chunks of the lane's current step.
  void move_chunk(const LaneState& lane, int k) {
    const Step& step = lane.current();
    const int piece = lane.piece();
    const int chunk = chunk_of(step, k);
    values_.clear();
    places_.clear();
    std::size_t receive = 0;
    try {
      for (const Operand& from : step.in) {
        const bool buffer = from.place != Place::peer;
        places_.push_back({from.place, from.index + (buffer ? k : 0)});
        values_.push_back(buffer ? memory_.read(lane.rank, places_.back(), piece)
                                 : channels_.peek(lane.receives()[receive++])[k]);
      }
      const int item = chunk == kAnyChunk ? SymbolicMemory::kAnyItem
                                          : memory_.item(ranks_[lane.rank].operation, piece, chunk);
      const Value result = memory_.combine(values_, places_, item, step.completes);
      std::size_t send = 0;
      for (const Operand& to : step.out) {
        const Operand place{to.place, to.index + k};
        if (to.place == Place::peer)
          channels_.acquire(lane.sends()[send++])[k] = result;
        else if (step.completes || step.in.size() > 1 ||
                 !memory_.changes_nothing(places_[0], place, piece))
          memory_.write(lane.rank, place, piece, result);
      }
    } catch (const Rejected& rejected) {
      throw Rejected{at(lane, chunks_text(chunk, 1)) + " " + rejected.why, rejected.too_large};
    }
  }

  /// Checks that both ends of a message move the same chunks, from which its length follows.
  void check_label(const LaneState& lane, int id) const {
    const MessageLabel& label = channels_.label(id);
    const Step& step = lane.current();
    const int operation = ranks_[lane.rank].operation;
    if (label.operation == operation && label.piece == lane.piece() && label.chunk == step.chunk &&
        label.count == step.count)
      return;
    const auto& channel = channels_[id];
    throw Rejected{fmt::format(
        "{} expects a message of {} ({}) on channel {}, but {} sends {} ({})",
        at(lane, chunks_text(step.chunk, step.count)), chunks_text(step.chunk, step.count),
        moment_text(operation, lane.piece()), channel.number,
        where(channel.from, lanes_[channel.sender].number, label.step),
        chunks_text(label.chunk, label.count), moment_text(label.operation, label.piece))};
  }

  // --- texts of verdicts ---

  /// Says where a lane is: "rank 1 lane 0 step 2 (chunk 3, piece 0 of operation 1, in place)".
  std::string at(const LaneState& lane, const std::string& chunks) const {
    return fmt::format("{} ({}, {}{})", where(lane.rank, lane.number, lane.step()), chunks,
                       moment_text(ranks_[lane.rank].operation, lane.piece()),
                       options_.in_place ? ", in place" : "");
  }

  [[noreturn]] void fail_shared(const LaneState& lane, int other, std::string_view verb, int peer,
                                int number) const {
    throw Rejected{fmt::format("rank {}: lane {} {} rank {} on channel {}, but so does lane {}",
                               lane.rank, lane.number, verb, peer, number, lanes_[other].number)};
  }

  [[noreturn]] void fail_leftover(int id) const {
    const MessageLabel& label = channels_.label(id);
    const auto& channel = channels_[id];
    throw Rejected{
        fmt::format("{} ({}, {}) sends a message to rank {} on channel {} that nobody receives",
                    where(channel.from, lanes_[channel.sender].number, label.step),
                    chunks_text(label.chunk, label.count),
                    moment_text(label.operation, label.piece), channel.to, channel.number)};
  }

  /// Returns why a lane cannot go on, in words, and the lane that would have to move first, or -1.
  std::pair<std::string, int> reason(const LaneState& lane) const {
    if (must_wait(lane)) {
      const After& after = lane.current().after;
      return {fmt::format("lane {} step {}", after.lane, after.step),
              static_cast<int>(&predecessor(lane) - lanes_.data())};
    }
    for (const int id : lane.receives()) {
      if (!channels_.empty(id)) continue;
      const auto& channel = channels_[id];
      return {fmt::format("a message from rank {} on channel {}{}", channel.from, channel.number,
                          channel.sender < 0 ? ", where nobody sends" : ""),
              channel.sender};
    }
    for (const int id : lane.sends()) {
      if (!channels_.full(id)) continue;
      const auto& channel = channels_[id];
      if (channel.answered_on >= 0 && channels_.empty(id)) return unread_answers(id);
      return {fmt::format("room for a message to rank {} on channel {} (window {}){}", channel.to,
                          channel.number, options_.window,
                          channel.receiver < 0 ? ", where nobody receives" : ""),
              channel.receiver};
    }
    assert(false && "a lane that can go on was forgotten");
    return {"nothing", -1};
  }

  /// Returns what reason() does, for a channel whose messages have been answered in their slots.
  std::pair<std::string, int> unread_answers(int id) const {
    const auto& answers = channels_[channels_[id].answered_on];
    return {fmt::format("room for a message to rank {} on channel {} (window {}): the answers to "
                        "those before, on channel {}, are still to be received{}",
                        answers.from, channels_[id].number, options_.window, answers.number,
                        answers.receiver < 0 ? ", where nobody receives" : ""),
            answers.receiver};
  }

  /// Follows the chain of waiting lanes from the first lane that is stuck, until it returns to a
  /// lane or ends.
  [[noreturn]] void fail_deadlock() const {
    constexpr int kMostLanes = 8;  // a cycle may contain hundreds of lanes
    const auto stuck = [&](const LaneState& lane) { return !ended(lane); };
    auto lane =
        static_cast<int>(std::find_if(lanes_.begin(), lanes_.end(), stuck) - lanes_.begin());
    std::string text = "deadlock: ";
    std::vector<bool> seen(lanes_.size());
    for (int shown = 0; lane >= 0 && !seen[lane] && shown < kMostLanes; ++shown) {
      seen[lane] = true;
      const LaneState& state = lanes_[lane];
      if (shown > 0) text += "; ";
      if (ended(state)) {
        text += fmt::format("rank {} lane {} has ended operation {}", state.rank, state.number,
                            ranks_[state.rank].operation);
        break;
      }
      const auto [what, whose] = reason(state);
      text += at(state, chunks_text(state.current().chunk, state.current().count)) + " waits for " +
              what;
      lane = whose;
    }
    throw Rejected{text};
  }

  const VerifyOptions options_;
  SymbolicMemory memory_;
  SymbolicChannels channels_;
  std::vector<RankState> ranks_;
  std::vector<LaneState> lanes_;
  std::vector<int> queue_;       // lanes that may be able to continue
  std::vector<Value> values_;    // the values of the chunk that is being moved,
  std::vector<Operand> places_;  // and the places from which they were read
};

}  // namespace

void check_run(std::span<const Schedule> schedules, const VerifyOptions& options) {
  assert(!schedules.empty() && "check_shape() has passed");
  const auto leaves = std::int64_t{schedules[0].chunks} *
                      static_cast<std::int64_t>(schedules.size()) * options.pieces *
                      options.operations;
  if (leaves > 1 << 28)
    throw Rejected{"too many chunks, pieces and operations to verify at once", true};
  if (options.window > 1 << 16)
    throw Rejected{"a window of more than 65536 messages to verify", true};
  Run(schedules, options).run();
}

}  // namespace tutti::collectives
