#include "collectives/planning/rank_plans.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <unordered_map>

#include <tutti/error.hpp>

namespace tutti {
namespace {

/// The most ports and steps of all ranks that are kept: some gigabytes.
constexpr std::size_t kMostRecords = 40'000'000;

std::uint64_t hash_of(const RankShape& shape) {
  std::uint64_t hash = shape.lanes.size();
  for (const RankShape::Lane& lane : shape.lanes) hash = joined(hash, lane.steps);
  for (const RankShape::Block& block : shape.blocks) hash = joined(hash, block.count);
  for (const RankShape::Step& step : shape.steps)
    hash = joined(joined(hash, step.bytes[0] ^ std::uint64_t{step.receives} << 32), step.sends);
  for (const auto* ports : {&shape.receives, &shape.sends})
    for (const RankShape::Port& port : *ports) hash = joined(hash, port.label);
  return hash;
}

}  // namespace

/// Writes one rank's shape and ports.
class RankPlans::Writer {
 public:
  explicit Writer(RankPlans& plans) : plans_(plans) {}

  void begin_lane(int receives_on, int sends_on) {
    receives_on_ = receives_on;
    sends_on_ = sends_on;
    shape_.lanes.push_back({static_cast<std::uint32_t>(shape_.blocks.size()), 0, 0});
    numbers_.clear();
  }

  void begin_block(std::uint64_t steps, std::uint64_t count) {
    RankShape::Lane& lane = shape_.lanes.back();
    shape_.blocks.push_back({static_cast<std::uint32_t>(shape_.steps.size()),
                             static_cast<std::uint32_t>(steps), count});
    first_of_block_ = lane.steps;
    ++lane.blocks;
    lane.steps += steps * count;
  }

  void add(std::span<const Operand> in, std::span<const Operand> out,
           std::array<std::uint64_t, 2> bytes, const After& after) {
    const RankShape::Block& block = shape_.blocks.back();
    const auto number = static_cast<std::uint32_t>(shape_.steps.size());
    RankShape::Step step{.first_port = static_cast<std::uint32_t>(shape_.ports_of_steps.size()),
                         .receives = 0,
                         .sends = 0,
                         .inputs = static_cast<std::uint32_t>(in.size()),
                         .bytes = bytes,
                         .position = first_of_block_ + (number - block.first_step),
                         .apart = block.steps,
                         .rounds = block.count,
                         .after_lane = after.lane,
                         .after_step = after.step,
                         .pieces_back = after.pieces_back};
    for (const Operand& operand : in)
      if (operand.place == Place::peer) ++step.receives, use(operand.index, true, step);
    for (const Operand& operand : out)
      if (operand.place == Place::peer) ++step.sends, use(operand.index, false, step);
    shape_.steps.push_back(step);
  }

  RankShape finish() && {
    // `after` names steps of a lane; from here on, steps of the shape.
    for (RankShape::Step& step : shape_.steps)
      if (step.after_lane >= 0)
        step.after_step += static_cast<std::int32_t>(
            shape_.blocks[shape_.lanes[static_cast<std::size_t>(step.after_lane)].first_block]
                .first_step);
    return std::move(shape_);
  }

 private:
  void use(int peer, bool receives, const RankShape::Step& step) {
    auto& shapes = receives ? shape_.receives : shape_.sends;
    auto& ports = receives ? plans_.receives_ : plans_.sends_;
    const std::uint64_t key = std::uint64_t{static_cast<std::uint32_t>(peer)} << 1 | receives;
    const auto [found, added] =
        numbers_.try_emplace(key, static_cast<std::uint32_t>(shapes.size()));
    if (added) {
      shapes.push_back({static_cast<std::uint32_t>(shape_.lanes.size() - 1), 0, {}});
      ports.push_back({peer, receives ? receives_on_ : sends_on_});
    }
    RankShape::Port& port = shapes[found->second];
    port.label = joined(port.label, shape_.steps.size());
    for (const std::size_t last : {0u, 1u}) port.bytes[last] += step.bytes[last] * step.rounds;
    shape_.ports_of_steps.push_back(found->second);
  }

  RankPlans& plans_;
  RankShape shape_;
  int receives_on_ = 0, sends_on_ = 0;
  std::uint64_t first_of_block_ = 0;
  std::unordered_map<std::uint64_t, std::uint32_t> numbers_;  // the lane's ports
};

RankPlans::RankPlans(const CallSignature& call, std::size_t message_bytes)
    : call_(call), message_bytes_(message_bytes) {
  assert(call.lengths == 0);
}

void RankPlans::add(const collectives::Rounds& rounds) {
  const Schedule& schedule = rounds.written;
  assert(schedule.rank == ranks());
  const auto moves_peers = [](const collectives::Repeat& one) { return one.shift.peer != 0; };
  if (std::any_of(rounds.repeats.begin(), rounds.repeats.end(), moves_peers))
    return add_each_step(collectives::expand(rounds));
  const std::size_t element = moved_bytes(call_);
  if (static_cast<std::size_t>(schedule.widest) * least_chunk_bytes(element) > message_bytes_)
    throw Error(ErrorKind::unavailable,
                fmt::format("{}: a step moves {} chunks, more than messages of {} bytes hold",
                            to_string(call_.what), schedule.widest, message_bytes_));
  const Cut how =
      cut(schedule.layout, call_.count, element, schedule.chunks, schedule.widest, message_bytes_);
  pieces_ = how.pieces;
  const bool whole = schedule.layout == Layout::whole;
  const std::array<std::uint64_t, 2> all{how.piece_elements, how.last_elements};
  const auto chunks = static_cast<std::uint64_t>(schedule.chunks);
  rounded_ = whole && (how.chunk_elements[1] * chunks != all[1] ||
                       (how.pieces > 1 && how.chunk_elements[0] * chunks != all[0]));
  const auto bytes_of = [&](const Step& step) {
    std::array<std::uint64_t, 2> bytes{};
    for (const std::size_t last : {0u, 1u}) {
      bytes[last] = static_cast<std::uint64_t>(step.count) * how.chunk_elements[last];
      if (whole) bytes[last] = std::min(bytes[last], all[last]);
      bytes[last] *= step.in.empty() ? 0 : element;
    }
    return bytes;
  };
  Writer writer(*this);
  auto next = rounds.repeats.begin();
  for (int lane = 0; lane < static_cast<int>(schedule.lanes.size()); ++lane) {
    const Lane& written = schedule.lanes[static_cast<std::size_t>(lane)];
    writer.begin_lane(written.receives_on, written.sends_on);
    const int steps = static_cast<int>(written.steps.size());
    for (int step = 0, left = 0; step < steps; ++step, --left) {
      if (left == 0) {
        const bool repeats =
            next != rounds.repeats.end() && next->lane == lane && next->first == step;
        const collectives::Repeat repeat = repeats ? *next++ : collectives::Repeat{};
        assert(repeat.count >= 1 && repeat.steps >= 1);
        writer.begin_block(static_cast<std::uint64_t>(repeat.steps),
                           static_cast<std::uint64_t>(repeat.count));
        left = repeat.steps;
      }
      const Step& one = written.steps[static_cast<std::size_t>(step)];
      writer.add(one.in, one.out, bytes_of(one), one.after);
    }
  }
  finish(std::move(writer).finish());
}

void RankPlans::add_each_step(const Schedule& schedule) {
  assert(schedule.rank == ranks());
  const Program program = compile(schedule, call_, message_bytes_);
  pieces_ = program.pieces;
  Writer writer(*this);
  for (std::size_t lane = 0; lane < schedule.lanes.size(); ++lane) {
    const Lane& written = schedule.lanes[lane];
    writer.begin_lane(written.receives_on, written.sends_on);
    for (std::size_t step = 0; step < written.steps.size(); ++step) {
      writer.begin_block(1, 1);
      const Step& one = written.steps[step];
      const Program::Step& flat = program.steps[program.lanes[lane].first_step + step];
      writer.add(one.in, one.out, flat.bytes, one.after);
    }
  }
  finish(std::move(writer).finish());
}

void RankPlans::finish(RankShape shape) {
  // Ranks whose lanes have nothing to do wait for nothing.
  records_ += shape.receives.size() + shape.sends.size();
  const std::uint64_t hash = hash_of(shape);
  auto [first, last] = known_.equal_range(hash);
  first = std::find_if(first, last, [&](const auto& one) { return shapes_[one.second] == shape; });
  if (first == last) {
    records_ += shape.steps.size();
    first = known_.emplace(hash, static_cast<std::uint32_t>(shapes_.size()));
    shapes_.push_back(std::move(shape));
  }
  shape_of_.push_back(first->second);
  const std::size_t begin = first_receive_.back();
  for (std::size_t at = begin; at < receives_.size(); ++at) by_peer_.push_back(at);
  std::sort(by_peer_.begin() + static_cast<std::ptrdiff_t>(begin), by_peer_.end(),
            [&](std::size_t a, std::size_t b) { return receives_[a] < receives_[b]; });
  first_receive_.push_back(receives_.size());
  first_send_.push_back(sends_.size());
  if (records_ > kMostRecords)
    throw Error(ErrorKind::unavailable,
                fmt::format("the schedules of the first {} ranks have {} steps and peers already; "
                            "at most {} are simulated: choose another algorithm or fewer ranks",
                            ranks(), records_, kMostRecords));
}

std::uint64_t RankPlans::steps_of(int rank) const {
  std::uint64_t steps = 0;
  for (const RankShape::Lane& lane : shape(rank).lanes) steps += lane.steps;
  return steps * pieces_;
}

std::size_t RankPlans::other_end(int from, std::size_t send) const {
  const Port& port = sends_[send];
  const auto at = [&](int rank) {
    return by_peer_.begin() + static_cast<std::ptrdiff_t>(first_receive(rank));
  };
  const Port wanted{from, port.channel};
  const auto found =
      std::lower_bound(at(port.peer), at(port.peer + 1), wanted,
                       [&](std::size_t one, const Port& than) { return receives_[one] < than; });
  if (found != at(port.peer + 1) && receives_[*found] == wanted) return *found;
  throw Error(ErrorKind::internal,
              fmt::format("rank {} receives nothing from rank {} on channel {}", port.peer, from,
                          port.channel));
}

}  // namespace tutti
