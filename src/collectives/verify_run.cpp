// Runs all ranks on symbols, as the engine does it: a step starts when the step that it is `after`
// is done, all its messages are there and all its slots are free; then it reads, writes, posts and
// releases. Lanes are sequential, channels have one writer and one reader, and waiting for a slot
// is waiting for a token on a channel back: a Kahn network, which ends alike in every order. One
// order is enough, then: a lane runs until it must wait, and is looked at again when what it waits
// for has moved.
#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "collectives/expressions.h"
#include "collectives/print.h"
#include "collectives/semantics.h"
#include "collectives/verify_checks.h"

namespace tutti::collectives {
namespace {

struct LaneName {
  int rank = -1;
  int lane = -1;
};

struct Message {
  int operation = 0;
  int piece = 0;
  int step = 0;  // of the sender's lane
  int chunk = 0;
  int count = 0;
};

struct Channel {
  int from = 0;
  int to = 0;
  int number = 0;
  int sender = -1;    // lane; -1: nobody sends
  int receiver = -1;  // lane; -1: nobody receives
  int posted = 0;
  int released = 0;
};

struct LaneState {
  LaneName name;
  const Lane* lane = nullptr;
  // A channel for each peer that a step names, in order: those of step s in `in` begin at first[2 *
  // s], those in `out` at first[2 * s + 1].
  std::vector<int> channels;
  std::vector<int> first{0};
  std::vector<int> followers;  // lanes of this rank with steps after one of this lane
  int done = 0;                // steps of this operation, over all pieces
  bool queued = false;

  std::span<const int> receives(int step) const { return part(2 * step); }
  std::span<const int> sends(int step) const { return part(2 * step + 1); }
  std::span<const int> part(int i) const {
    return {channels.data() + first[i], std::size_t(first[i + 1] - first[i])};
  }
};

struct RankState {
  int first_lane = 0;
  int busy_lanes = 0;
  int operation = 0;
  std::vector<Value> cells;  // input, then output, of each piece; then scratch
};

class Run {
 public:
  Run(std::span<const Schedule> schedules, const VerifyOptions& options)
      : schedules_(schedules),
        options_(options),
        ranks_(static_cast<int>(schedules.size())),
        chunks_(schedules[0].chunks),
        what_(schedules[0].what),
        values_(ranks_, items(), !reduces(what_)),
        agreed_(items(), kNothing),
        rank_states_(ranks_) {
    for (int rank = 0; rank < ranks_; ++rank) add_rank(rank);
    messages_.resize(channels_.size() * options_.window);
    message_values_.resize(messages_.size() * schedules[0].widest);
  }

  void run() {
    for (int rank = 0; rank < ranks_; ++rank) begin_operation(rank);
    while (!queue_.empty()) {
      const int lane = queue_.back();
      queue_.pop_back();
      lanes_[lane].queued = false;
      while (advance(lane)) {
      }
    }
    for (const RankState& rank : rank_states_)
      if (rank.operation < options_.operations) fail_deadlock();
    for (int id = 0; id < static_cast<int>(channels_.size()); ++id)
      if (!empty(channels_[id])) fail_leftover(id);
  }

 private:
  int items() const { return options_.operations * options_.pieces * schedules_[0].chunks; }
  int item(int operation, int piece, int chunk) const {
    return (operation * options_.pieces + piece) * chunks_ + chunk;
  }

  // --- set-up ---

  void add_rank(int rank) {
    const Schedule& schedule = schedules_[rank];
    RankState& state = rank_states_[rank];
    state.first_lane = static_cast<int>(lanes_.size());
    state.cells.assign(std::size_t(options_.pieces) * 2 * chunks_ + schedule.scratch_chunks,
                       kNothing);
    for (int lane = 0; lane < static_cast<int>(schedule.lanes.size()); ++lane) {
      lanes_.emplace_back();
      lanes_.back().name = {rank, lane};
      lanes_.back().lane = &schedule.lanes[lane];
      resolve_channels(static_cast<int>(lanes_.size()) - 1);
    }
    for (int lane = 0; lane < static_cast<int>(schedule.lanes.size()); ++lane)
      for (const Step& step : schedule.lanes[lane].steps)
        if (step.after.lane >= 0) {
          auto& followers = lanes_[state.first_lane + step.after.lane].followers;
          const int follower = state.first_lane + lane;
          if (followers.empty() || followers.back() != follower) followers.push_back(follower);
        }
  }

  void resolve_channels(int lane) {
    LaneState& state = lanes_[lane];
    const int rank = state.name.rank;
    for (const Step& step : state.lane->steps) {
      for (const Operand& operand : step.in)
        if (operand.place == Place::peer) {
          const int id = channel(operand.index, rank, state.lane->receives_on);
          claim(channels_[id].receiver, lane, channels_[id], "receives from", operand.index);
          state.channels.push_back(id);
        }
      state.first.push_back(static_cast<int>(state.channels.size()));
      for (const Operand& operand : step.out)
        if (operand.place == Place::peer) {
          const int id = channel(rank, operand.index, state.lane->sends_on);
          claim(channels_[id].sender, lane, channels_[id], "sends to", operand.index);
          state.channels.push_back(id);
        }
      state.first.push_back(static_cast<int>(state.channels.size()));
    }
  }

  int channel(int from, int to, int number) {
    const auto key = (std::uint64_t(from) * ranks_ + to) << 32 | std::uint64_t(number);
    const auto [found, added] = channel_ids_.try_emplace(key, int(channels_.size()));
    if (added) {
      channels_.emplace_back();
      channels_.back().from = from;
      channels_.back().to = to;
      channels_.back().number = number;
    }
    return found->second;
  }

  void claim(int& owner, int lane, const Channel& channel, std::string_view verb, int peer) {
    if (owner >= 0 && owner != lane)
      throw Rejected{fmt::format("rank {}: lane {} and lane {} both {} rank {} on channel {}",
                                 lanes_[lane].name.rank, lanes_[owner].name.lane,
                                 lanes_[lane].name.lane, verb, peer, channel.number)};
    owner = lane;
  }

  // --- the run ---

  void begin_operation(int rank) {
    RankState& state = rank_states_[rank];
    const Schedule& schedule = schedules_[rank];
    while (state.operation < options_.operations) {
      for (int piece = 0; piece < options_.pieces; ++piece)
        for (int chunk = 0; chunk < chunks_; ++chunk) {
          Value& in = state.cells[cell(input_at(chunk), piece)];
          Value& out = state.cells[cell(output_at(chunk), piece)];
          out = kNothing;
          in = input_exists(what_, rank, schedule.root, chunk)
                   ? values_.leaf(rank, item(state.operation, piece, chunk))
                   : kNothing;
        }
      state.busy_lanes = 0;
      const int lanes = static_cast<int>(schedule.lanes.size());
      for (int lane = state.first_lane; lane < state.first_lane + lanes; ++lane) {
        lanes_[lane].done = 0;
        if (lanes_[lane].lane->steps.empty()) continue;
        ++state.busy_lanes;
        wake(lane);
      }
      if (state.busy_lanes > 0) return;
      end_operation(rank);  // a rank without steps has nothing to wait for
    }
  }

  void wake(int lane) {
    if (lane < 0 || lanes_[lane].queued) return;
    lanes_[lane].queued = true;
    queue_.push_back(lane);
  }

  bool ended(const LaneState& lane) const {
    return lane.done == options_.pieces * static_cast<int>(lane.lane->steps.size());
  }

  const Step& current(const LaneState& lane) const {
    return lane.lane->steps[lane.done % lane.lane->steps.size()];
  }

  /// Whether `after` of the lane's current step is still to come.
  bool must_wait(const LaneState& lane) const {
    const After& after = current(lane).after;
    const int piece = lane.done / static_cast<int>(lane.lane->steps.size()) - after.pieces_back;
    if (after.lane < 0 || piece < 0) return false;
    const LaneState& other = lanes_[rank_states_[lane.name.rank].first_lane + after.lane];
    return other.done <= piece * static_cast<int>(other.lane->steps.size()) + after.step;
  }

  bool empty(const Channel& channel) const { return channel.posted == channel.released; }
  bool full(const Channel& channel) const {
    return channel.posted - channel.released == options_.window;
  }

  /// Does the lane's next step, if it can be done now.
  bool advance(int number) {
    LaneState& lane = lanes_[number];
    if (ended(lane) || must_wait(lane)) return false;
    const int step = lane.done % static_cast<int>(lane.lane->steps.size());
    for (const int id : lane.receives(step))
      if (empty(channels_[id])) return false;
    for (const int id : lane.sends(step))
      if (full(channels_[id])) return false;

    execute(lane, step);
    for (const int id : lane.sends(step)) {
      ++channels_[id].posted;
      wake(channels_[id].receiver);
    }
    for (const int id : lane.receives(step)) {
      ++channels_[id].released;
      wake(channels_[id].sender);
    }
    ++lane.done;
    for (const int follower : lane.followers) wake(follower);
    if (ended(lane) && --rank_states_[lane.name.rank].busy_lanes == 0) {
      end_operation(lane.name.rank);
      begin_operation(lane.name.rank);
    }
    return true;
  }

  void execute(const LaneState& lane, int number) {
    const Step& step = lane.lane->steps[number];
    const RankState& rank = rank_states_[lane.name.rank];
    const int piece = lane.done / static_cast<int>(lane.lane->steps.size());
    const auto receives = lane.receives(number);
    const auto sends = lane.sends(number);
    for (const int id : receives) check_message(lane, id, step, piece);
    for (const int id : sends)
      messages_[slot(id, channels_[id].posted)] = {rank.operation, piece, number, step.chunk,
                                                   step.count};

    for (int k = 0; k < step.count; ++k) {
      operands_.clear();
      std::size_t receive = 0;
      for (const Operand& operand : step.in)
        operands_.push_back(operand.place == Place::peer
                                ? oldest_value(receives[receive++], k)
                                : rank_states_[lane.name.rank].cells[cell(operand, piece) + k]);
      const Value result = combine(lane, step, piece, k);
      std::size_t send = 0;
      for (const Operand& operand : step.out) {
        if (operand.place == Place::peer) {
          const int id = sends[send++];
          message_values_[slot(id, channels_[id].posted) * schedules_[0].widest + k] = result;
        } else {
          write(lane, step, operand, piece, k, result);
        }
      }
    }
  }

  std::size_t slot(int channel, int message) const {
    return std::size_t(channel) * options_.window + message % options_.window;
  }
  const Message& oldest(int channel) const {
    return messages_[slot(channel, channels_[channel].released)];
  }
  Value oldest_value(int channel, int k) const {
    return message_values_[slot(channel, channels_[channel].released) * schedules_[0].widest + k];
  }

  Value combine(const LaneState& lane, const Step& step, int piece, int k) {
    const int operation = rank_states_[lane.name.rank].operation;
    const int expected = item(operation, piece, step.chunk + k);
    for (std::size_t i = 0; i < operands_.size(); ++i) {
      const Value value = operands_[i];
      if (value == kNothing)
        fail(lane, step, k, "reads " + operand_at(step.in[i], k) + ", where nothing was written");
      if (values_.item(value) != expected)
        fail(lane, step, k,
             fmt::format("reads {}, expecting {}, but finds {}", operand_at(step.in[i], k),
                         item_text(expected), item_text(values_.item(value))));
      if (what_ == Collective::barrier) continue;
      if (values_.is_final(value) && (step.completes || operands_.size() > 1))
        fail(lane, step, k,
             fmt::format("{} {}, which is complete already",
                         step.completes ? "completes" : "reduces", operand_at(step.in[i], k)));
    }
    if (what_ != Collective::barrier)
      if (const int twice = values_.counted_twice(operands_); twice >= 0)
        fail(lane, step, k, fmt::format("double contribution: adds rank {}'s input twice", twice));
    return values_.fold(operands_, step.completes);
  }

  void write(const LaneState& lane, const Step& step, const Operand& to, int piece, int k,
             Value result) {
    RankState& rank = rank_states_[lane.name.rank];
    const std::size_t target = cell(to, piece) + k;
    Value& held = rank.cells[target];
    // A copy onto itself is no write: the engine leaves it out.
    const auto is_target = [&](const Operand& from) {
      return from.place != Place::peer && cell(from, piece) + k == target;
    };
    const bool onto_itself = step.in.size() == 1 && is_target(step.in[0]) && held == result;
    if (to.place == Place::output && what_ != Collective::barrier && held != kNothing &&
        values_.is_final(held) && !onto_itself)
      fail(lane, step, k, fmt::format("writes {}, which is complete already", operand_at(to, k)));
    held = result;
  }

  // --- results ---

  void end_operation(int rank) {
    RankState& state = rank_states_[rank];
    for (int piece = 0; piece < options_.pieces; ++piece)
      for (int chunk = 0; chunk < chunks_; ++chunk)
        if (output_exists(what_, rank, schedules_[rank].root, chunk))
          check_result(rank, item(state.operation, piece, chunk),
                       state.cells[cell(output_at(chunk), piece)]);
    ++state.operation;
  }

  void check_result(int rank, int item, Value value) {
    const auto wrong = [&](const std::string& what) {
      throw Rejected{fmt::format("rank {}: the output's {} {}", rank, item_text(item), what)};
    };
    if (value == kNothing) wrong("is never written");
    if (what_ == Collective::all_gather || what_ == Collective::broadcast) {
      const int source = what_ == Collective::broadcast ? schedules_[0].root : item % chunks_;
      if (value != values_.leaf(source, item)) wrong(fmt::format("is not rank {}'s", source));
      return;
    }
    if (const int missing = values_.missing(value); missing >= 0)
      wrong(fmt::format("misses the contribution of rank {}", missing));
    if (what_ == Collective::barrier) return;
    if (!values_.is_final(value)) wrong("is never completed");
    if (what_ != Collective::all_reduce) return;
    if (agreed_[item] == kNothing) agreed_[item] = value;
    if (agreed_[item] != value)
      wrong("is reduced in another order than on other ranks: their bits would differ");
  }

  // --- memory ---

  static Operand input_at(int chunk) { return {Place::input, chunk}; }
  static Operand output_at(int chunk) { return {Place::output, chunk}; }

  /// Input and output of different pieces are different memory; scratch serves all pieces.
  std::size_t cell(const Operand& operand, int piece) const {
    const std::size_t chunks = chunks_;
    if (operand.place == Place::scratch) return options_.pieces * 2 * chunks + operand.index;
    const bool apart = operand.place == Place::output && !options_.in_place;
    return piece * 2 * chunks + (apart ? chunks : 0) + operand.index;
  }

  // --- verdicts ---

  void check_message(const LaneState& lane, int id, const Step& step, int piece) {
    const Message& message = oldest(id);
    const Channel& channel = channels_[id];
    const int operation = rank_states_[lane.name.rank].operation;
    if (message.operation == operation && message.piece == piece && message.chunk == step.chunk &&
        message.count == step.count)
      return;
    fail(lane, step, -1,
         fmt::format("expects a message of {} ({}) on channel {}, but {} sends {} ({})",
                     chunks_text(step.chunk, step.count), moment_text(operation, piece),
                     channel.number,
                     where(channel.from, lanes_[channel.sender].name.lane, message.step),
                     chunks_text(message.chunk, message.count),
                     moment_text(message.operation, message.piece)));
  }

  std::string item_text(int item) const {
    const int moment = item / chunks_;
    return fmt::format("chunk {} of {}", item % chunks_,
                       moment_text(moment / options_.pieces, moment % options_.pieces));
  }

  static std::string operand_at(const Operand& operand, int k) {
    return to_text(Operand{operand.place, operand.index + (operand.place == Place::peer ? 0 : k)});
  }

  /// `k`: the step's chunk that is wrong, or -1 for all of them.
  [[noreturn]] void fail(const LaneState& lane, const Step& step, int k,
                         const std::string& what) const {
    const int steps = static_cast<int>(lane.lane->steps.size());
    throw Rejected{
        fmt::format("{} ({}, {}{}) {}", where(lane.name.rank, lane.name.lane, lane.done % steps),
                    k < 0 ? chunks_text(step.chunk, step.count) : chunks_text(step.chunk + k, 1),
                    moment_text(rank_states_[lane.name.rank].operation, lane.done / steps),
                    options_.in_place ? ", in place" : "", what)};
  }

  [[noreturn]] void fail_leftover(int id) const {
    const Message& message = oldest(id);
    const Channel& channel = channels_[id];
    throw Rejected{
        fmt::format("{} ({}, {}) sends a message to rank {} on channel {} that nobody receives",
                    where(channel.from, lanes_[channel.sender].name.lane, message.step),
                    chunks_text(message.chunk, message.count),
                    moment_text(message.operation, message.piece), channel.to, channel.number)};
  }

  /// What a lane that cannot go on waits for: in words, and whose lane would have to move.
  std::pair<std::string, int> reason(const LaneState& lane) const {
    const Step& step = current(lane);
    if (must_wait(lane))
      return {fmt::format("lane {} step {}", step.after.lane, step.after.step),
              rank_states_[lane.name.rank].first_lane + step.after.lane};
    const int number = lane.done % static_cast<int>(lane.lane->steps.size());
    for (const int id : lane.receives(number)) {
      const Channel& channel = channels_[id];
      if (!empty(channel)) continue;
      return {fmt::format("a message from rank {} on channel {}{}", channel.from, channel.number,
                          channel.sender < 0 ? ", where nobody sends" : ""),
              channel.sender};
    }
    for (const int id : lane.sends(number)) {
      const Channel& channel = channels_[id];
      if (!full(channel)) continue;
      return {fmt::format("room for a message to rank {} on channel {} (window {}){}", channel.to,
                          channel.number, options_.window,
                          channel.receiver < 0 ? ", where nobody receives" : ""),
              channel.receiver};
    }
    return {"nothing", -1};
  }

  /// Follows who waits for whom from the first lane that is stuck, until it comes round or ends.
  [[noreturn]] void fail_deadlock() const {
    int lane = 0;
    while (ended(lanes_[lane]) || lanes_[lane].lane->steps.empty()) ++lane;
    std::string text = "deadlock: ";
    std::vector<bool> seen(lanes_.size());
    constexpr int kMostLines = 8;
    for (int line = 0; lane >= 0 && !seen[lane] && line < kMostLines; ++line) {
      seen[lane] = true;
      const LaneState& state = lanes_[lane];
      const int steps = static_cast<int>(state.lane->steps.size());
      if (line > 0) text += "; ";
      if (ended(state)) {
        text += fmt::format("rank {} lane {} has ended operation {}", state.name.rank,
                            state.name.lane, rank_states_[state.name.rank].operation);
        break;
      }
      const auto [what, whose] = reason(state);
      text += fmt::format(
          "{} ({}, {}) waits for {}", where(state.name.rank, state.name.lane, state.done % steps),
          chunks_text(current(state).chunk, current(state).count),
          moment_text(rank_states_[state.name.rank].operation, state.done / steps), what);
      lane = whose;
    }
    throw Rejected{text};
  }

  const std::span<const Schedule> schedules_;
  const VerifyOptions options_;
  const int ranks_;
  const int chunks_;
  const Collective what_;
  Expressions values_;
  std::vector<Value> agreed_;  // all_reduce: by item, the first rank's result
  std::vector<RankState> rank_states_;
  std::vector<LaneState> lanes_;
  std::vector<Channel> channels_;
  std::vector<Message> messages_;      // `window` a channel
  std::vector<Value> message_values_;  // `widest` a message
  std::unordered_map<std::uint64_t, int> channel_ids_;
  std::vector<int> queue_;       // lanes that may be able to go on
  std::vector<Value> operands_;  // of the step being done
};

}  // namespace

void check_run(std::span<const Schedule> schedules, const VerifyOptions& options) {
  const auto leaves = std::int64_t{schedules[0].chunks} * std::int64_t(schedules.size()) *
                      options.pieces * options.operations;
  if (leaves > 1 << 28) throw Rejected{"too many chunks, pieces and operations to verify at once"};
  Run(schedules, options).run();
}

}  // namespace tutti::collectives
