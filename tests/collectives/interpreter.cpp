#include "interpreter.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <deque>
#include <map>
#include <tuple>
#include <vector>

#include "collectives/schedule/semantics.h"
#include "common/random.h"

namespace tutti::testing {
namespace {

/// A number that depends on how it was computed. `sum` is correct for any order of reduction;
/// `bits` depends on the order.
struct Element {
  std::uint64_t sum = 0;
  std::uint64_t bits = 0;

  bool operator==(const Element&) const = default;
};

/// Completing a result multiplies it by this factor. The factor is odd, so that multiplying twice
/// or never is noticed.
constexpr std::uint64_t kPostFactor = 0x2545f4914f6cdd1du;
/// The factor by which a premultiplied sum multiplies the input of `rank`. It is odd for the same
/// reason.
std::uint64_t premultiplier(int rank) { return mix(std::uint64_t(rank) + 77) | 1; }
constexpr Element kUnwritten{0xdead, 0xdead};

Element own_element(int rank, int operation, int index) {
  const std::uint64_t key = (std::uint64_t(rank) << 40) ^ (std::uint64_t(operation) << 32) ^ index;
  return {mix(key + 1), mix(~key)};
}

Element combine(std::span<const Element> operands, bool completes) {
  if (operands.size() == 1 && !completes) return operands[0];
  Element result{0, completes};
  for (const Element& operand : operands) {
    result.sum += operand.sum;
    result.bits = mix(result.bits * 31 + operand.bits);
  }
  if (completes) result.sum *= kPostFactor;
  return result;
}

using Elements = std::vector<Element>;

struct RankState {
  int operation = 0;
  int busy_lanes = 0;
  Elements input;
  Elements output;
  Elements scratch;
  // The number of steps of this operation that each lane has done, over all pieces.
  std::vector<int> done;
};

/// Defines how the buffers are divided: the lengths of the chunks of each piece, computed from
/// numbers that all ranks know.
struct Cut {
  Cut(const Schedule& schedule, const InterpretOptions& options)
      : layout(schedule.layout),
        chunks(collectives::positions(schedule.what, schedule.ranks, schedule.chunks)),
        count(options.count) {
    assert(options.message_elements >= schedule.widest);
    most = options.message_elements / schedule.widest;
    piece_elements = layout == Layout::whole ? most * chunks : most;
    pieces = std::max(1, (count + piece_elements - 1) / piece_elements);
  }

  int elements_of(int piece) const {
    return std::min(piece_elements, count - piece * piece_elements);
  }

  int length(int piece, int chunk) const {
    if (layout == Layout::blocks) return elements_of(piece);
    return begin_in_piece(piece, chunk + 1) - begin_in_piece(piece, chunk);
  }

  /// Returns where the piece of the chunk at a position begins in a buffer that holds all chunks.
  int begin(int piece, int chunk) const {
    if (layout == Layout::blocks) return chunk * count + piece * piece_elements;
    return piece * piece_elements + begin_in_piece(piece, chunk);
  }

  int begin_in_piece(int piece, int chunk) const {
    const int width = (elements_of(piece) + chunks - 1) / chunks;
    return std::min(chunk * width, elements_of(piece));
  }

  int buffer_elements() const { return layout == Layout::whole ? count : count * chunks; }

  Layout layout;
  int chunks;  // chunks of a piece (whole), or places for blocks in a buffer
  int count;
  int most;  // greatest number of elements of a chunk's piece
  int piece_elements;
  int pieces;
};

class Interpreter {
 public:
  Interpreter(std::span<const Schedule> schedules, const InterpretOptions& options)
      : schedules_(schedules),
        options_(options),
        what_(schedules[0].what),
        cut_(schedules[0], options),
        random_(options.seed),
        ranks_(schedules.size()) {
    for (std::size_t rank = 0; rank < schedules.size(); ++rank) {
      ranks_[rank].scratch.assign(schedules[rank].scratch_chunks * cut_.most, kUnwritten);
      for (std::size_t lane = 0; lane < schedules[rank].lanes.size(); ++lane)
        lanes_.emplace_back(rank, lane);
    }
  }

  std::string run() {
    for (int rank = 0; rank < int(ranks_.size()); ++rank) begin_operation(rank);
    while (error_.empty()) {
      // The first lane that can advance, starting with a random one, does one step.
      const std::size_t start = random_.next() % lanes_.size();
      bool moved = false;
      for (std::size_t i = 0; i < lanes_.size() && !moved; ++i) {
        const auto [rank, lane] = lanes_[(start + i) % lanes_.size()];
        moved = advance(rank, lane);
      }
      if (!moved) break;
    }
    if (!error_.empty()) return error_;
    for (const RankState& rank : ranks_)
      if (rank.operation < options_.operations) return "stuck";
    for (const auto& [name, channel] : channels_)
      if (!channel.empty()) return "a message is left over";
    return "";
  }

 private:
  using ChannelName = std::tuple<int, int, int>;  // sender, receiver, number

  int lane_steps(int rank, int lane) const {
    return int(schedules_[rank].lanes[lane].steps.size());
  }

  void begin_operation(int rank) {
    RankState& state = ranks_[rank];
    const Schedule& schedule = schedules_[rank];
    if (state.operation == options_.operations) return;
    state.done.assign(schedule.lanes.size(), 0);
    state.busy_lanes = 0;
    for (int lane = 0; lane < int(schedule.lanes.size()); ++lane)
      state.busy_lanes += lane_steps(rank, lane) > 0;
    state.input.assign(cut_.buffer_elements(), kUnwritten);
    for (int i = 0; i < cut_.buffer_elements(); ++i)
      if (input_has(rank, i)) state.input[i] = input_element(rank, state.operation, i);
    state.output.assign(cut_.buffer_elements(), kUnwritten);
  }

  collectives::RankCall call(int rank) const {
    return {what_, rank, int(ranks_.size()), schedules_[0].root};
  }

  /// Returns the block to which an element of a buffer belongs.
  int block_of(Place place, int rank, int element) const {
    if (cut_.layout == Layout::whole || cut_.count == 0) return 0;
    const int at = element / cut_.count;
    const int ranks = int(ranks_.size());
    if (what_ != Collective::all_to_all) return at;
    return place == Place::input ? collectives::pair_chunk(rank, at, ranks)
                                 : collectives::pair_chunk(at, rank, ranks);
  }
  /// Returns the number of an element of a buffer among all elements of the call.
  int number_of(Place place, int rank, int element) const {
    const int block = block_of(place, rank, element);
    return cut_.layout == Layout::whole ? element : block * cut_.count + element % cut_.count;
  }
  bool input_has(int rank, int element) const {
    return collectives::input_exists(call(rank), block_of(Place::input, rank, element));
  }
  bool output_has(int rank, int element) const {
    return collectives::output_exists(call(rank), block_of(Place::output, rank, element));
  }
  Element input_element(int rank, int operation, int element) const {
    return own_element(rank, operation, number_of(Place::input, rank, element));
  }

  bool advance(int rank, int lane) {
    RankState& state = ranks_[rank];
    const Lane& plan = schedules_[rank].lanes[lane];
    const int steps = lane_steps(rank, lane);
    const int done = state.done.empty() ? 0 : state.done[lane];
    if (state.operation == options_.operations || done == cut_.pieces * steps) return false;
    const Step& step = plan.steps[done % steps];
    const int piece = done / steps;
    if (step.after.lane >= 0 && piece >= step.after.pieces_back) {
      const int target = (piece - step.after.pieces_back) * lane_steps(rank, step.after.lane);
      if (state.done[step.after.lane] <= target + step.after.step) return false;
    }
    for (const Operand& from : step.in)
      if (from.place == Place::peer && channels_[{from.index, rank, plan.receives_on}].empty())
        return false;
    for (const Operand& to : step.out)
      if (to.place == Place::peer &&
          int(channels_[{rank, to.index, plan.sends_on}].size()) >= options_.window)
        return false;

    execute(rank, plan, step, piece);
    if (++state.done[lane] == cut_.pieces * steps && --state.busy_lanes == 0) {
      check_results(rank);
      ++state.operation;
      begin_operation(rank);
    }
    return true;
  }

  void execute(int rank, const Lane& lane, const Step& step, int piece) {
    std::vector<Elements> operands;
    int length = 0;
    for (int k = 0; k < step.count; ++k) length += cut_.length(piece, step.chunk + k);
    for (const Operand& from : step.in) {
      operands.push_back(read(rank, lane, from, step, piece));
      if (int(operands.back().size()) != length)
        error_ = fmt::format("rank {} expects {} elements from rank {}, gets {}", rank, length,
                             from.index, operands.back().size());
    }
    if (!error_.empty()) return;

    Elements result(length);
    Elements column(operands.size());
    for (int i = 0; i < length; ++i) {
      for (std::size_t k = 0; k < operands.size(); ++k) column[k] = operands[k][i];
      result[i] = combine(column, step.completes);
    }
    for (const Operand& to : step.out) {
      if (to.place == Place::peer)
        channels_[{rank, to.index, lane.sends_on}].push_back(result);
      else
        write(rank, to, step, piece, result);
    }
    for (const Operand& from : step.in)
      if (from.place == Place::peer) channels_[{from.index, rank, lane.receives_on}].pop_front();
  }

  /// Returns the memory of a chunk in one of the rank's buffers.
  std::span<Element> memory(int rank, const Operand& operand, int k, const Step& step, int piece) {
    RankState& state = ranks_[rank];
    const std::size_t length = cut_.length(piece, step.chunk + k);
    if (operand.place == Place::scratch)
      return {state.scratch.data() + (operand.index + k) * cut_.most, length};
    const int at = collectives::position(what_, int(ranks_.size()), operand) + k;
    const int begin = cut_.begin(piece, at);
    // In place, input and output are the same buffer wherever both exist.
    const bool own =
        operand.place == Place::output && !(options_.in_place && input_has(rank, at * cut_.count));
    return {(own ? state.output : state.input).data() + begin, length};
  }

  Elements read(int rank, const Lane& lane, const Operand& from, const Step& step, int piece) {
    if (from.place == Place::peer) return channels_[{from.index, rank, lane.receives_on}].front();
    Elements elements;
    for (int k = 0; k < step.count; ++k) {
      const auto chunk = memory(rank, from, k, step, piece);
      elements.insert(elements.end(), chunk.begin(), chunk.end());
    }
    if (from.place == Place::input && collectives::reduces(what_))
      for (Element& element : elements) element.sum *= premultiplier(rank);
    return elements;
  }

  void write(int rank, const Operand& to, const Step& step, int piece, const Elements& result) {
    auto next = result.begin();
    for (int k = 0; k < step.count; ++k)
      for (Element& element : memory(rank, to, k, step, piece)) element = *next++;
  }

  void check_results(int rank) {
    const int operation = ranks_[rank].operation;
    for (const RankState& other : ranks_)
      if (what_ == Collective::barrier && other.operation < operation)
        error_ = "a rank has left the barrier before all have come";
    if (what_ == Collective::barrier) return;
    auto& agreed = agreed_[operation];
    agreed.resize(cut_.buffer_elements());
    for (int i = 0; i < cut_.buffer_elements(); ++i) {
      if (!options_.in_place && input_has(rank, i) &&
          ranks_[rank].input[i] != input_element(rank, operation, i))
        error_ = fmt::format("rank {} has changed its input", rank);
      if (!output_has(rank, i)) continue;
      const bool shared = options_.in_place && input_has(rank, i);
      const Element found = (shared ? ranks_[rank].input : ranks_[rank].output)[i];
      if (found.sum != expected_sum(rank, operation, i))
        error_ = fmt::format("rank {}: element {} of operation {} is wrong", rank, i, operation);
      if (what_ != Collective::all_reduce) continue;
      if (agreed[i].bits == 0) agreed[i] = found;
      if (agreed[i] != found)
        error_ = fmt::format("rank {}: element {} has other bits than elsewhere", rank, i);
    }
  }

  std::uint64_t expected_sum(int receiver, int operation, int element) const {
    const int number = number_of(Place::output, receiver, element);
    if (!collectives::reduces(what_)) {
      const int block = block_of(Place::output, receiver, element);
      return own_element(collectives::source_of(call(receiver), block), operation, number).sum;
    }
    std::uint64_t sum = 0;
    for (int rank = 0; rank < int(ranks_.size()); ++rank)
      sum += own_element(rank, operation, number).sum * premultiplier(rank);
    return sum * kPostFactor;
  }

  const std::span<const Schedule> schedules_;
  const InterpretOptions options_;
  const Collective what_;
  const Cut cut_;
  SeededRandom random_;
  std::vector<RankState> ranks_;
  std::vector<std::pair<int, int>> lanes_;
  std::map<ChannelName, std::deque<Elements>> channels_;
  // For all_reduce: the results of the first rank that finished, by operation.
  std::map<int, Elements> agreed_;
  std::string error_;
};

}  // namespace

std::string interpret(std::span<const Schedule> schedules, const InterpretOptions& options) {
  return Interpreter(schedules, options).run();
}

}  // namespace tutti::testing
