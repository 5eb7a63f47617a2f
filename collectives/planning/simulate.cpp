#include "collectives/planning/simulate.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <limits>
#include <map>
#include <unordered_map>

#include "collectives/schedule/semantics.h"
#include "common/wire.h"
#include "transport/ring/ring.h"

namespace tutti {
namespace {

constexpr Picoseconds kNever = std::numeric_limits<Picoseconds>::max();
constexpr std::uint64_t kMostPieces = 6;   // the number of pieces of a call that are simulated
constexpr std::size_t kNetworkWindow = 8;  // messages, over TCP with a short round-trip time

Picoseconds moving(std::uint64_t bytes, Picoseconds kib) {
  assert(kib >= 0);
  return static_cast<Picoseconds>(bytes) * kib / 1024;
}

/// Returns the number of bytes of a rank's buffers that one call uses: from the start of each to
/// the last byte that a step moves.
std::uint64_t touched_bytes(const Program& program) {
  std::array<std::uint64_t, 3> ends{};  // by Place
  for (const Program::Step& step : program.steps)
    for (std::size_t k = 0; k < std::size_t{step.inputs} + step.outputs; ++k) {
      const Program::Operand& operand = program.operands[step.first_operand + k];
      if (operand.place == Place::peer) continue;
      const std::uint64_t pieces_before =
          operand.place == Place::scratch ? 0 : (program.pieces - 1) * program.piece_bytes;
      std::uint64_t& end = ends[static_cast<std::size_t>(operand.place)];
      end = std::max(end, pieces_before + operand.offset[0] + step.bytes[0]);
    }
  return ends[0] + ends[1] + ends[2];
}

/// A channel from one rank to another. `seen` and `freed` have an entry for each message: the time
/// when the receiver can see it, and the time when its room is free again.
struct Channel {
  int from, to;
  LinkCosts costs;
  bool crosses_network;  // the channel joins two machines
  std::size_t window;    // messages
  // The channel of the messages over which this channel's messages are written, or -1.
  int answers = -1;
  bool answered = false;  // the room of its messages is free when their answers have been read
  std::vector<Picoseconds> seen{}, freed{};
  std::size_t received = 0;

  Picoseconds next_message() const { return received < seen.size() ? seen[received] : kNever; }
  Picoseconds next_room() const {
    if (answers >= 0 || seen.size() < window) return 0;
    const std::size_t before = seen.size() - window;
    return before < freed.size() ? freed[before] : kNever;
  }
};

struct ChannelName {
  int from, to, number;

  bool operator==(const ChannelName&) const = default;
  struct Hash {
    std::size_t operator()(const ChannelName& name) const noexcept {
      const auto ranks =
          static_cast<std::uint64_t>(name.from) << 32 | static_cast<std::uint32_t>(name.to);
      return mix(ranks ^ mix(static_cast<std::uint32_t>(name.number)));
    }
  };
};

/// A step with its price; index 1 is for the last piece.
struct PricedStep {
  std::uint32_t first_channel;  // the channels on which it receives, then those on which it sends
  std::uint32_t receives, sends;
  After after;
  std::array<Picoseconds, 2> cost;
  std::array<std::uint64_t, 2> bytes;
};

struct SimulatedLane {
  std::uint32_t first_step, steps;
  std::uint64_t done = 0;  // number of steps of this call
};

struct SimulatedRank {
  std::size_t first_lane = 0, end_lane = 0;
  std::size_t turn = 0;  // the lane that is tried first
  std::size_t busy_lanes = 0;
  int calls = 0;  // number of calls that have ended
};

struct Core {
  std::vector<int> ranks{};
  std::size_t at = 0;    // the rank whose turn it is
  Picoseconds time = 0;  // the current time; if the core waits, the time at which it looks again
  // If the core waits: the time since when; `at` is the rank whose turn it was then.
  Picoseconds since = 0;
  bool waits = false;
  Picoseconds busy = 0;  // the time that it has spent with steps, calls and turns
};

/// Finds the core whose time comes first; of those with the same time, the first one. It is a
/// tournament: a leaf for each core, and in each inner node the winner of the two below.
class EarliestCore {
 public:
  explicit EarliestCore(const std::vector<Core>& cores) : cores_(cores) {
    while (leaves_ < cores.size()) leaves_ *= 2;
    winners_.assign(2 * leaves_, 0);
    for (std::size_t leaf = 0; leaf < leaves_; ++leaf)
      winners_[leaves_ + leaf] = static_cast<std::uint32_t>(leaf);
    for (std::size_t node = leaves_ - 1; node > 0; --node) play(node);
  }

  std::size_t get() const { return winners_[1]; }

  /// The time of a core has changed.
  void update(std::size_t core) {
    for (std::size_t node = (leaves_ + core) / 2; node > 0; node /= 2) play(node);
  }

 private:
  Picoseconds time_of(std::uint32_t core) const {
    return core < cores_.size() ? cores_[core].time : kNever;
  }
  void play(std::size_t node) {
    const std::uint32_t left = winners_[2 * node], right = winners_[2 * node + 1];
    winners_[node] = time_of(right) < time_of(left) ? right : left;
  }

  const std::vector<Core>& cores_;
  std::size_t leaves_ = 2;  // a power of two
  std::vector<std::uint32_t> winners_;
};

class Run {
 public:
  Run(std::span<const Program> programs, const Cluster& cluster)
      : cluster_(cluster),
        pieces_(std::min(programs[0].pieces, kMostPieces)),
        calls_(pieces_ == 1   ? 8
               : pieces_ <= 3 ? 4
                              : 2) {
    assert(cluster.core_of.size() == programs.size());
    assert(cluster.machine_of.size() == programs.size());
    cores_.resize(1 + *std::max_element(cluster.core_of.begin(), cluster.core_of.end()));
    for (std::size_t rank = 0; rank < programs.size(); ++rank) {
      cores_[cluster.core_of[rank]].ranks.push_back(static_cast<int>(rank));
      add_rank(programs[rank]);
    }
    ends_.assign(static_cast<std::size_t>(calls_) * pieces_, 0);
    network_free_at_.assign(
        1 + *std::max_element(cluster.machine_of.begin(), cluster.machine_of.end()), 0);
  }

  Picoseconds run(std::uint64_t all_pieces) {
    for (SimulatedRank& rank : ranks_) begin_call(rank);
    EarliestCore earliest(cores_);
    earliest_ = &earliest;
    for (std::size_t next = earliest.get(); cores_[next].time != kNever; next = earliest.get()) {
      turn(cores_[next]);
      earliest.update(next);
    }
    for ([[maybe_unused]] const SimulatedRank& rank : ranks_)
      assert(rank.calls == calls_ && "a schedule that was proved comes to its end");
    const Picoseconds call = ends_.back() / calls_;
    assert(call >= 0 && all_pieces >= pieces_);
    if (all_pieces == pieces_) return call;
    // A rank that runs ahead of others on its core would seem to take no time in the last call.
    Picoseconds busiest = 0;
    for (const Core& core : cores_) busiest = std::max(busiest, core.busy);
    const Picoseconds last =
        std::max((ends_.back() - ends_[pieces_ - 1]) / (calls_ - 1), busiest / calls_);
    return call + static_cast<Picoseconds>(all_pieces - pieces_) * last /
                      static_cast<Picoseconds>(pieces_);
  }

 private:
  // --- set-up ---

  void add_rank(const Program& program) {
    const int self = static_cast<int>(ranks_.size());
    SimulatedRank& rank = ranks_.emplace_back();
    rank.first_lane = rank.turn = lanes_.size();
    for (const Program::Lane& lane : program.lanes)
      lanes_.push_back({static_cast<std::uint32_t>(steps_.size() + lane.first_step), lane.steps});
    rank.end_lane = lanes_.size();
    const std::uint64_t touched = touched_bytes(program);
    for (const Program::Step& step : program.steps) add_step(program, step, self, touched);
  }

  void add_step(const Program& program, const Program::Step& step, int self,
                std::uint64_t touched) {
    const MachineCosts& costs = cluster_.costs;
    PricedStep priced{static_cast<std::uint32_t>(channels_of_steps_.size()),
                      step.receives,
                      step.posts,
                      step.after,
                      {},
                      step.bytes};
    const Program::Operand* operands = program.operands.data() + step.first_operand;
    std::array<Picoseconds, 2> cost{};
    for (std::size_t k = 0; k < std::size_t{step.inputs} + step.outputs; ++k) {
      const Program::Operand& operand = operands[k];
      const bool in = k < step.inputs;
      Picoseconds kib = near_or_far(touched);
      if (operand.place == Place::peer) {
        const Program::Port& port =
            in ? program.receives[operand.port] : program.sends[operand.port];
        const int id =
            in ? channel(port.peer, self, port.channel) : channel(self, port.peer, port.channel);
        channels_of_steps_.push_back(id);
        widen(channels_[id], std::max(step.bytes[0], step.bytes[1]));
        const LinkCosts& link = channels_[id].costs;
        const bool answers = operand.partner != Program::kNone && !channels_[id].crosses_network;
        if (!in && answers) pair(program, operands, k, self, id);
        kib = in ? link.read_kib : answers ? costs.copy_kib : link.write_kib;
        for (Picoseconds& of : cost) of += costs.message + link.message;
      }
      if (in && k > 0 && !step.copies()) kib += costs.reduce_kib;
      for (const int last : {0, 1})
        if (step.bytes[last] > kInlineBytes) cost[last] += moving(step.bytes[last], kib);
    }
    for (const int last : {0, 1}) priced.cost[last] = costs.step + cost[last];
    steps_.push_back(priced);
  }

  // Returns the cost of a KiB in a buffer. The bytes come from the core's cache as long as they
  // fit, and then less and less.
  Picoseconds near_or_far(std::uint64_t touched) const {
    const MachineCosts& costs = cluster_.costs;
    const auto cache = static_cast<std::uint64_t>(costs.cache_bytes);
    const std::uint64_t beyond = std::min(touched - std::min(touched, cache / 2), cache);
    return costs.copy_kib + static_cast<Picoseconds>(beyond / 1024) *
                                (costs.far_kib - costs.copy_kib) /
                                static_cast<Picoseconds>(cache / 1024);
  }

  int channel(int from, int to, int number) {
    assert(from != to && number >= 0);
    const auto [found, added] =
        ids_.try_emplace({from, to, number}, static_cast<int>(channels_.size()));
    if (added) {
      const LinkKind link = cluster_.link_between(from, to);
      const bool crosses_network = link == LinkKind::other_machine;
      channels_.push_back({from, to, cluster_.costs.link(link), crosses_network,
                           crosses_network ? kNetworkWindow : kLines});
    }
    return found->second;
  }

  void widen(Channel& channel, std::uint64_t bytes) const {
    if (bytes <= kInlineBytes || channel.crosses_network) return;
    channel.window =
        std::min(channel.window, std::max<std::size_t>(2, cluster_.ring_bytes / padded(bytes)));
  }

  // Marks the channels of an output that answers the input which is its partner.
  void pair(const Program& program, const Program::Operand* operands, std::size_t output, int self,
            int id) {
    const Program::Port& port = program.receives[operands[operands[output].partner].port];
    const int from = channel(port.peer, self, port.channel);
    channels_[id].answers = from;
    channels_[from].answered = true;
  }

  // --- the run ---

  void begin_call(SimulatedRank& rank) {
    rank.busy_lanes = 0;
    for (std::size_t lane = rank.first_lane; lane < rank.end_lane; ++lane) {
      lanes_[lane].done = 0;
      if (lanes_[lane].steps > 0) ++rank.busy_lanes;
    }
    if (rank.busy_lanes == 0) rank.calls = calls_;  // the rank takes no part in the call
  }

  // Lets the core's next rank that can do a step do it, or lets the core wait.
  void turn(Core& core) {
    assert(core.time != kNever && !core.ranks.empty());
    const std::size_t sharers = core.ranks.size();
    if (core.waits && sharers > 1) {  // the ranks have taken turns meanwhile
      const Picoseconds turns = (core.time - core.since) / cluster_.costs.yield;
      core.at = (core.at + static_cast<std::size_t>(turns)) % sharers;
    }
    core.waits = false;
    Picoseconds soonest = kNever;
    for (std::size_t i = 0; i < sharers; ++i) {
      const int number = core.ranks[(core.at + i) % sharers];
      const auto [lane, start] = next_lane(ranks_[number]);
      soonest = std::min(soonest, start);
      if (start > core.time) continue;
      pass(core, static_cast<Picoseconds>(i) * cluster_.costs.yield);
      core.at = (core.at + i) % sharers;
      return perform(ranks_[number], lane, core);
    }
    core.waits = true;
    core.since = core.time;
    core.time = soonest;
  }

  // Returns the first lane in turn whose step can start now, or the lane whose step can start
  // soonest, and the time.
  std::pair<std::size_t, Picoseconds> next_lane(const SimulatedRank& rank) const {
    std::pair<std::size_t, Picoseconds> next{rank.first_lane, kNever};
    if (rank.calls == calls_) return next;
    const std::size_t lanes = rank.end_lane - rank.first_lane;
    for (std::size_t i = 0; i < lanes; ++i) {
      const std::size_t lane = rank.first_lane + (rank.turn - rank.first_lane + i) % lanes;
      const Picoseconds start = start_of(rank, lanes_[lane]);
      if (start < next.second) next = {lane, start};
    }
    return next;
  }

  std::uint64_t piece_of(const SimulatedLane& lane) const { return lane.done / lane.steps; }
  bool ended(const SimulatedLane& lane) const { return lane.done == pieces_ * lane.steps; }
  const PricedStep& step_of(const SimulatedLane& lane) const {
    return steps_[lane.first_step + lane.done % lane.steps];
  }
  std::size_t last(const SimulatedLane& lane) const {
    return piece_of(lane) + 1 == pieces_ ? 1 : 0;
  }
  // Returns whether the step moves anything: after the first piece, the engine leaves out empty
  // pieces.
  bool moves(const SimulatedLane& lane) const {
    return piece_of(lane) == 0 || step_of(lane).bytes[last(lane)] > 0;
  }

  Picoseconds start_of(const SimulatedRank& rank, const SimulatedLane& lane) const {
    if (ended(lane) || must_wait(rank, lane)) return kNever;
    if (!moves(lane)) return 0;
    const PricedStep& step = step_of(lane);
    const int* channels = channels_of_steps_.data() + step.first_channel;
    Picoseconds start = 0;
    for (std::uint32_t k = 0; k < step.receives + step.sends; ++k) {
      const Channel& channel = channels_[channels[k]];
      start = std::max(start, k < step.receives ? channel.next_message() : channel.next_room());
    }
    return start;
  }

  bool must_wait(const SimulatedRank& rank, const SimulatedLane& lane) const {
    const After& after = step_of(lane).after;
    const auto back = static_cast<std::uint64_t>(after.pieces_back);
    if (after.lane < 0 || piece_of(lane) < back) return false;
    const SimulatedLane& other = lanes_[rank.first_lane + static_cast<std::size_t>(after.lane)];
    return other.done <=
           (piece_of(lane) - back) * other.steps + static_cast<std::uint64_t>(after.step);
  }

  static void pass(Core& core, Picoseconds time) {
    assert(time >= 0 && "time does not run backwards");
    core.time += time;
    core.busy += time;
  }

  void perform(SimulatedRank& rank, std::size_t number, Core& core) {
    SimulatedLane& lane = lanes_[number];
    assert(!ended(lane) && rank.busy_lanes > 0);
    if (moves(lane)) {
      pass(core, step_of(lane).cost[last(lane)]);
      move_messages(step_of(lane), last(lane), core.time);
    }
    rank.turn = number + 1 == rank.end_lane ? rank.first_lane : number + 1;
    const std::uint64_t piece = piece_of(lane);
    ++lane.done;
    if (piece_of(lane) != piece) {
      Picoseconds& end = ends_[rank.calls * pieces_ + piece];
      end = std::max(end, core.time);
    }
    if (!ended(lane) || --rank.busy_lanes > 0) return;
    pass(core, cluster_.costs.call);
    if (++rank.calls < calls_) begin_call(rank);
  }

  void move_messages(const PricedStep& step, std::size_t last, Picoseconds now) {
    const bool large = step.bytes[last] > kInlineBytes;
    const int* channels = channels_of_steps_.data() + step.first_channel;
    for (std::uint32_t k = 0; k < step.receives; ++k) {
      Channel& channel = channels_[channels[k]];
      ++channel.received;
      assert(channel.received <= channel.seen.size());
      if (channel.answers >= 0)
        // The answer lay over a message of this rank, whose room is now free.
        channels_[channel.answers].freed.push_back(now);
      if (channel.answered) continue;
      channel.freed.push_back(now + channel.costs.latency);
      wake(channel.from, channel.freed.back());
    }
    for (std::uint32_t k = step.receives; k < step.receives + step.sends; ++k) {
      Channel& channel = channels_[channels[k]];
      Picoseconds gone = now;
      if (channel.crosses_network) {  // the message follows those that were sent before
        Picoseconds& line = network_free_at_[cluster_.machine_of[channel.from]];
        gone = line = std::max(line, now) + moving(step.bytes[last], cluster_.costs.network_kib);
      }
      channel.seen.push_back(gone + channel.costs.latency + (large ? channel.costs.payload : 0));
      wake(channel.to, channel.seen.back());
    }
  }

  void wake(int rank, Picoseconds time) {
    assert(time >= 0);
    Core& core = cores_[cluster_.core_of[rank]];
    if (!core.waits) return;
    core.time = std::min(core.time, std::max(core.since, time));
    earliest_->update(static_cast<std::size_t>(cluster_.core_of[rank]));
  }

  const Cluster& cluster_;
  const std::uint64_t pieces_;
  const int calls_;
  std::vector<Core> cores_;
  EarliestCore* earliest_ = nullptr;  // during run()
  std::vector<SimulatedRank> ranks_;
  std::vector<SimulatedLane> lanes_;
  std::vector<PricedStep> steps_;
  std::vector<int> channels_of_steps_;
  std::vector<Channel> channels_;
  std::unordered_map<ChannelName, int, ChannelName::Hash> ids_;
  // For each piece of each call, the time at which the slowest rank has ended it.
  std::vector<Picoseconds> ends_;
  // For each machine, the time when all that was sent has left its network link.
  std::vector<Picoseconds> network_free_at_;
};

}  // namespace

LinkKind Cluster::link_between(int a, int b) const {
  assert(a != b && core_of.size() == machine_of.size());
  if (machine_of[a] != machine_of[b]) return LinkKind::other_machine;
  return core_of[a] == core_of[b] ? LinkKind::same_core : link;
}

Cluster cluster_of(const MachineCosts& costs, std::vector<int> machine_of, int cores, LinkKind link,
                   std::size_t ring_bytes) {
  assert(!machine_of.empty() && cores > 0);
  Cluster cluster{costs, {}, std::move(machine_of), link, ring_bytes};
  std::map<int, int> ranks;                    // number of ranks so far on each machine
  std::map<std::pair<int, int>, int> numbers;  // the numbers of the cores that are used
  for (const int machine : cluster.machine_of) {
    const auto number = static_cast<int>(numbers.size());
    const std::pair core(machine, ranks[machine]++ % cores);
    cluster.core_of.push_back(numbers.try_emplace(core, number).first->second);
  }
  return cluster;
}

Cluster one_machine(const MachineCosts& costs, int ranks, int cores, LinkKind link,
                    std::size_t ring_bytes) {
  return cluster_of(costs, std::vector<int>(static_cast<std::size_t>(ranks)), cores, link,
                    ring_bytes);
}

Picoseconds simulate(std::span<const Program> programs, const Cluster& cluster) {
  assert(!programs.empty() && cluster.costs.cache_bytes >= 1024 && cluster.costs.yield > 0);
  return Run(programs, cluster).run(programs[0].pieces);
}

}  // namespace tutti
