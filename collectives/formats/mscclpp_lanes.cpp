#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <deque>
#include <map>
#include <utility>

#include <tutti/error.hpp>

#include "collectives/formats/mscclpp.h"
#include "collectives/schedule/semantics.h"

namespace tutti::collectives::mscclpp {
namespace {

/// Holds for each block of each rank the number of its ops that are known to be done.
using Clock = std::vector<int>;

/// A step that uses a place of a rank's memory.
struct Use {
  int lane = 0;
  int step = 0;
  int block = 0;  // the block whose op it belongs to, counted over all ranks,
  int time = 0;   // and the number of that op, from 1
};

/// Records what is known of one place of a rank's memory.
struct Spot {
  std::vector<Use> writes, reads;
  bool has_packet = false;
  Clock packet;  // what its writer knew
};

class Execution {
 public:
  Execution(const std::vector<Gpu>& gpus, FilePlan& plan) : gpus_(gpus), plan_(plan) {
    for (std::size_t rank = 0; rank < gpus.size(); ++rank) {
      for (std::size_t number = 0; number < gpus[rank].blocks.size(); ++number)
        blocks_.push_back({static_cast<int>(rank), static_cast<int>(number), 0, {}});
      inbound_.emplace_back(gpus[rank].connections.size());
      memory_.emplace_back(static_cast<std::size_t>(2 * positions()) +
                           static_cast<std::size_t>(plan.ranks[rank].scratch_chunks));
      most_blocks_ = std::max(most_blocks_, static_cast<int>(gpus[rank].blocks.size()));
    }
    for (Block& block : blocks_) block.clock.resize(blocks_.size());
    for (std::size_t rank = 0; rank < gpus.size(); ++rank)
      for (std::size_t number = 0; number < gpus[rank].blocks.size(); ++number) {
        const int own = static_cast<int>(number);
        plan.ranks[rank].lanes.push_back({most_blocks_ + own, own, {}});
      }
  }

  void run() {
    for (bool moved = true; moved;) {
      moved = false;
      for (Block& block : blocks_)
        while (advance(block)) moved = true;
    }
  }

 private:
  struct Block {
    int rank;
    int number;
    int done;
    Clock clock;
  };

  int positions() const {
    return std::max(positions_of(plan_, Place::input), positions_of(plan_, Place::output));
  }

  bool advance(Block& block) {
    const auto& ops =
        gpus_[static_cast<std::size_t>(block.rank)].blocks[static_cast<std::size_t>(block.number)];
    if (static_cast<std::size_t>(block.done) == ops.size()) return false;
    const PlanOp& op = ops[static_cast<std::size_t>(block.done)];
    if (!can_start(block, op)) return false;
    const int self = static_cast<int>(&block - blocks_.data());
    block.clock[static_cast<std::size_t>(self)] = block.done + 1;
    if (op.kind->does == Does::moves) {
      for (std::size_t k = 0; k < op.from.size(); ++k)
        add_step(block, {op.from[k]}, {op.to[k]}, op);
    } else if (op.kind->does == Does::reduces) {
      add_step(block, op.from, op.to, op);
    }
    if (op.kind->signals)
      for (const int channel : op.channels) signal(block, channel);
    ++block.done;
    return true;
  }

  static void join(Clock& clock, const Clock& other) {
    for (std::size_t at = 0; at < other.size(); ++at) clock[at] = std::max(clock[at], other[at]);
  }

  bool can_start(Block& block, const PlanOp& op) {
    if (op.kind->does == Does::waits) return await_signals(block, op);
    if (op.kind->does == Does::meets) return await_blocks(block, op);
    if (!op.kind->reads_packets) return true;
    const auto each_packet = [&](auto&& visit) {
      for (const Memory& from : op.from)
        for (int k = 0; from.place == Place::scratch && k < op.count; ++k)
          if (!visit(spot(from, k))) return false;
      return true;
    };
    if (!each_packet([](const Spot& at) { return at.has_packet; })) return false;
    return each_packet([&](const Spot& at) {
      join(block.clock, at.packet);
      return true;
    });
  }

  bool await_signals(Block& block, const PlanOp& op) {
    auto& inbound = inbound_[static_cast<std::size_t>(block.rank)];
    std::map<int, std::size_t> needed;
    for (const int channel : op.channels) ++needed[channel];
    for (const auto& [channel, count] : needed)
      if (inbound[static_cast<std::size_t>(channel)].size() < count) return false;
    for (const int channel : op.channels) {
      join(block.clock, inbound[static_cast<std::size_t>(channel)].front());
      inbound[static_cast<std::size_t>(channel)].pop_front();
    }
    return true;
  }

  void signal(const Block& block, int channel) {
    const Connection& to =
        gpus_[static_cast<std::size_t>(block.rank)].connections[static_cast<std::size_t>(channel)];
    inbound_[static_cast<std::size_t>(to.peer)][static_cast<std::size_t>(to.other)].push_back(
        block.clock);
  }

  // All that meet go on together: the last one to come lets the others pass.
  bool await_blocks(Block& block, const PlanOp& op) {
    const int self = static_cast<int>(&block - blocks_.data());
    if (const auto passed = passing_.find(self); passed != passing_.end()) {
      join(block.clock, passed->second);
      passing_.erase(passed);
      return true;
    }
    std::vector<int>& here = meeting_[{block.rank, op.barrier}];
    if (std::find(here.begin(), here.end(), self) == here.end()) here.push_back(self);
    if (static_cast<int>(here.size()) < op.meeting) return false;
    Clock all = block.clock;
    for (const int other : here) join(all, blocks_[static_cast<std::size_t>(other)].clock);
    for (const int other : here)
      if (other != self) passing_[other] = all;
    here.clear();
    join(block.clock, all);
    return true;
  }

  Spot& spot(const Memory& memory, int k) {
    int index = memory.index + k;
    if (memory.place == Place::scratch) {
      index += 2 * positions();
    } else {
      const bool one = holds_one_block(plan_.what, memory.place);
      if (one) index = memory.rank;
      if (memory.place == Place::output && !plan_.in_place) index += positions();
    }
    return memory_[static_cast<std::size_t>(memory.rank)][static_cast<std::size_t>(index)];
  }

  // Returns the lane of `rank` that is the other end for a block of another rank.
  int lane_for(const Block& block, int rank) {
    const int self = static_cast<int>(&block - blocks_.data());
    auto& lanes = plan_.ranks[static_cast<std::size_t>(rank)].lanes;
    const auto [found, added] = ends_.try_emplace({rank, self}, static_cast<int>(lanes.size()));
    if (added) lanes.push_back({block.number, most_blocks_ + block.number, {}});
    return found->second;
  }

  // Adds the step of an op to the block's lane, and the other ends of its messages. What a peer
  // sends comes before it, what a peer receives behind it.
  void add_step(const Block& block, const std::vector<Memory>& from, const std::vector<Memory>& to,
                const PlanOp& op) {
    FileStep step;
    step.count = op.count;
    for (const Memory& memory : from) {
      step.in.push_back(operand(block, memory));
      if (memory.rank != block.rank)
        add_end(block, memory, {{memory.place, memory.index}}, {{Place::peer, block.rank}}, op);
    }
    for (const Memory& memory : to) step.out.push_back(operand(block, memory));
    check_peers(block, op, step.in);
    check_peers(block, op, step.out);
    std::vector<Memory> own_reads, own_writes;
    const auto is_own = [&](const Memory& memory) { return memory.rank == block.rank; };
    std::copy_if(from.begin(), from.end(), std::back_inserter(own_reads), is_own);
    std::copy_if(to.begin(), to.end(), std::back_inserter(own_writes), is_own);
    add(block, block.rank, block.number, std::move(step), own_reads, own_writes);
    for (const Memory& memory : to)
      if (memory.rank != block.rank)
        add_end(block, memory, {{Place::peer, block.rank}}, {{memory.place, memory.index}}, op);
    if (op.kind->writes_packets)
      for (const Memory& memory : to)
        for (int k = 0; memory.place == Place::scratch && k < op.count; ++k) {
          spot(memory, k).has_packet = true;
          spot(memory, k).packet = block.clock;
        }
  }

  static Operand operand(const Block& block, const Memory& memory) {
    if (memory.rank == block.rank) return {memory.place, memory.index};
    return {Place::peer, memory.rank};
  }

  static void check_peers(const Block& block, const PlanOp& op, std::vector<Operand> operands) {
    std::sort(operands.begin(), operands.end());
    for (std::size_t k = 1; k < operands.size(); ++k)
      if (operands[k].place == Place::peer && operands[k] == operands[k - 1])
        throw Error(ErrorKind::unavailable,
                    fmt::format("GPU {} uses the memory of GPU {} twice in an op {}; tutti's steps "
                                "have one message from and to each peer",
                                block.rank, operands[k].index, op.kind->name));
  }

  void add_end(const Block& block, const Memory& memory, std::vector<Operand> in,
               std::vector<Operand> out, const PlanOp& op) {
    const bool reads = in[0].place != Place::peer;
    FileStep step{std::move(in), std::move(out), op.count, {}};
    const std::vector<Memory> used{memory};
    add(block, memory.rank, lane_for(block, memory.rank), std::move(step),
        reads ? used : std::vector<Memory>(), reads ? std::vector<Memory>() : used);
  }

  void add(const Block& block, int rank, int lane, FileStep step, const std::vector<Memory>& reads,
           const std::vector<Memory>& writes) {
    auto& steps =
        plan_.ranks[static_cast<std::size_t>(rank)].lanes[static_cast<std::size_t>(lane)].steps;
    const int self = static_cast<int>(&block - blocks_.data());
    const Use use{lane, static_cast<int>(steps.size()), self, block.done + 1};
    std::map<int, int> before;  // by lane: the last step that must come first
    const auto order_after = [&](const std::vector<Use>& uses) {
      for (const Use& other : uses)
        if (other.lane != lane &&
            block.clock[static_cast<std::size_t>(other.block)] >= other.time) {
          const auto [kept, added] = before.try_emplace(other.lane, other.step);
          kept->second = std::max(kept->second, other.step);
        }
    };
    for (const Memory& memory : reads)
      for (int k = 0; k < step.count; ++k) {
        order_after(spot(memory, k).writes);
        note(spot(memory, k).reads, use);
      }
    for (const Memory& memory : writes)
      for (int k = 0; k < step.count; ++k) {
        order_after(spot(memory, k).writes);
        order_after(spot(memory, k).reads);
        note(spot(memory, k).writes, use);
      }
    for (const auto& [other, number] : before) step.after.push_back({other, number, 0});
    steps.push_back(std::move(step));
  }

  // Keeps the last use of each lane and block.
  static void note(std::vector<Use>& uses, const Use& use) {
    for (Use& known : uses)
      if (known.lane == use.lane && known.block == use.block) {
        known = use;
        return;
      }
    uses.push_back(use);
  }

  const std::vector<Gpu>& gpus_;
  FilePlan& plan_;
  std::vector<Block> blocks_;
  int most_blocks_ = 1;
  std::vector<std::vector<std::deque<Clock>>> inbound_;  // by rank and connection: signals
  std::map<std::pair<int, int>, std::vector<int>> meeting_;
  std::map<int, Clock> passing_;
  std::vector<std::vector<Spot>> memory_;    // by rank
  std::map<std::pair<int, int>, int> ends_;  // by rank and block: the lane of its messages
};

}  // namespace

void write_lanes(const std::vector<Gpu>& gpus, FilePlan& plan) {
  assert(gpus.size() == plan.ranks.size());
  std::int64_t moves = 0, cells = 0;
  for (const Gpu& gpu : gpus) {
    cells += positions_of(plan, Place::input) + positions_of(plan, Place::output);
    for (const auto& block : gpu.blocks)
      for (const PlanOp& op : block)
        moves += op.count * static_cast<std::int64_t>(op.from.size() + op.to.size());
  }
  if (moves > kMostFileMoves || cells > kMostFileCells)
    throw Error(ErrorKind::unavailable,
                fmt::format("the plan moves {} chunks, of {} in all buffers; {} and {} are read at "
                            "most",
                            moves, cells, kMostFileMoves, kMostFileCells));
  Execution(gpus, plan).run();
}

}  // namespace tutti::collectives::mscclpp
