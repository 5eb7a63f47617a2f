#include "collectives/schedule/program.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <unordered_map>

#include <fmt/format.h>

#include <tutti/error.hpp>

#include "collectives/schedule/answers.h"
#include "collectives/schedule/semantics.h"
#include "collectives/schedule/zero_copy.h"

namespace tutti {
namespace {

// Chunks start on cache lines, so that the steps of two ranks never write to the same line.
constexpr std::size_t kAlign = 64;

constexpr std::uint64_t ceil_div(std::uint64_t a, std::uint64_t b) { return (a + b - 1) / b; }
constexpr std::uint64_t round_up(std::uint64_t a, std::uint64_t b) { return ceil_div(a, b) * b; }

std::uint64_t elements_of_line(std::size_t element_bytes) {
  return kAlign % element_bytes == 0 ? kAlign / element_bytes : 1;
}

std::uint64_t most_elements(std::size_t element_bytes, int widest, std::size_t message_bytes) {
  return message_bytes / static_cast<std::size_t>(widest) / least_chunk_bytes(element_bytes) *
         elements_of_line(element_bytes);
}

/// Returns the cut if lengths are not known: pieces are as large as messages allow.
Cut full_pieces(std::size_t element_bytes, int widest, std::size_t message_bytes) {
  const std::uint64_t most = most_elements(element_bytes, widest, message_bytes);
  return {1, most, {most, most}, most};
}

bool uses(const Step& step, Place place) {
  const auto is = [place](const Operand& operand) { return operand.place == place; };
  return std::any_of(step.in.begin(), step.in.end(), is) ||
         std::any_of(step.out.begin(), step.out.end(), is);
}

bool is_peer(const Operand& operand) { return operand.place == Place::peer; }
bool is_output(const Operand& operand) { return operand.place == Place::output; }
bool is_of_call(const Operand& operand) {
  return operand.place == Place::input || operand.place == Place::output;
}

class Compiler {
 public:
  Compiler(const Schedule& schedule, const CallSignature& call, std::size_t message_bytes,
           bool zero_copy, Stripe stripe)
      : schedule_(schedule),
        zero_copy_(zero_copy && call.lengths == 0 && !call.accumulates_f32),
        held_bytes_(element_bytes(call.type, call.reduction)),
        moved_bytes_(moved_bytes(call)),
        cut_(call.lengths == 0 ? tutti::cut(schedule.layout, call.count, moved_bytes_,
                                            schedule.chunks, schedule.widest, message_bytes)
                               : full_pieces(moved_bytes_, schedule.widest, message_bytes)) {
    program_.call = call;
    program_.variable = call.lengths != 0;
    program_.zero_copy = zero_copy_;
    program_.stripe = stripe;
    program_.fingerprint = fingerprint(call);
    program_.pieces = cut_.pieces;
    program_.piece_bytes = cut_.piece_elements * held_bytes_;
    program_.widening = std::countr_zero(moved_bytes_) - std::countr_zero(held_bytes_);
    for (const int last : {0, 1}) {
      program_.chunk_bytes[last] = cut_.chunk_elements[last] * moved_bytes_;
      program_.segment_stride[last] =
          (blocks() ? call.count : cut_.chunk_elements[last]) * held_bytes_;
    }
    program_.scratch_stride =
        round_up(std::max(program_.chunk_bytes[0], program_.chunk_bytes[1]), kAlign);
    program_.scratch_bytes =
        program_.scratch_stride * static_cast<std::uint64_t>(schedule.scratch_chunks);
  }

  Program run() {
    if (zero_copy_) sources_ = collectives::zero_copy_sources(schedule_);
    for (const Lane& lane : schedule_.lanes) {
      program_.lanes.push_back({static_cast<std::uint32_t>(program_.steps.size()),
                                static_cast<std::uint32_t>(lane.steps.size())});
      answered_ = collectives::answered_peers(lane);
      for (const Step& step : lane.steps) add(lane, step);
    }
    return std::move(program_);
  }

 private:
  bool blocks() const { return schedule_.layout == Layout::blocks; }

  const CallSignature& call() const { return program_.call; }

  // Returns the bytes in a message of chunks [first, first + count) in a full or in the last piece.
  std::uint64_t slice_bytes(int first, int count, int last) const {
    if (blocks())
      return static_cast<std::uint64_t>(count) * cut_.chunk_elements[last] * moved_bytes_;
    const std::uint64_t all = last != 0 ? cut_.last_elements : cut_.piece_elements;
    const std::uint64_t width = cut_.chunk_elements[last];
    const std::uint64_t begin =
        std::min<std::uint64_t>(static_cast<std::uint64_t>(first) * width, all);
    const std::uint64_t end =
        std::min<std::uint64_t>(static_cast<std::uint64_t>(first + count) * width, all);
    return (end - begin) * moved_bytes_;
  }

  // Returns the offset of a chunk of the first piece.
  std::uint64_t offset(const Operand& operand, int last) const {
    const auto index = static_cast<std::uint64_t>(operand.index);
    if (operand.place == Place::scratch) return index * program_.scratch_stride;
    if (!blocks()) return index * program_.segment_stride[last];
    if (program_.variable) return block_number(operand);
    if (collectives::holds_one_block(schedule_.what, operand.place)) {
      assert(operand.index == schedule_.rank);
      return 0;
    }
    const int block = collectives::position(schedule_.what, schedule_.ranks, operand);
    return static_cast<std::uint64_t>(block) * program_.segment_stride[last];
  }

  std::uint32_t block_number(const Operand& operand) const {
    const int position = collectives::position(schedule_.what, schedule_.ranks, operand);
    return static_cast<std::uint32_t>(position +
                                      (operand.place == Place::output ? schedule_.ranks : 0));
  }

  // Returns the position in the table of the length of a step's first chunk.
  std::uint32_t first_block(int chunk) const {
    assert(collectives::length_known(collectives::rank_call_of(schedule_), chunk));
    const bool given = schedule_.what != Collective::all_to_all ||
                       collectives::input_exists(collectives::rank_call_of(schedule_), chunk);
    return block_number({given ? Place::input : Place::output, chunk});
  }

  void add(const Lane& lane, const Step& step) {
    Program::Step flat{};
    flat.first_operand = number(program_.operands.size());
    flat.inputs = number(step.in.size());
    flat.outputs = number(step.out.size());
    flat.receives =
        static_cast<std::uint32_t>(std::count_if(step.in.begin(), step.in.end(), is_peer));
    flat.posts =
        static_cast<std::uint32_t>(std::count_if(step.out.begin(), step.out.end(), is_peer));
    const bool apart =
        program_.variable || (blocks() && cut_.pieces > 1) || uses(step, Place::scratch);
    const int moved = step.in.empty() ? 0 : step.count;
    flat.segments = apart || moved == 0 ? static_cast<std::uint32_t>(moved) : 1;
    if (program_.variable && moved > 0) flat.first_block = first_block(step.chunk);
    for (const int last : {0, 1}) flat.bytes[last] = slice_bytes(step.chunk, moved, last);
    flat.divide_by = step.completes && program_.call.op == Op::avg
                         ? static_cast<std::uint32_t>(schedule_.ranks)
                         : 1;
    const Program::Masks masks = masks_of(step);
    const bool computes =
        collectives::reduces(schedule_.what) &&
        (step.in.size() > 1 || flat.divide_by > 1 || masks.premultiplied_inputs != 0 ||
         call().accumulates_f32 || (call().reproducible && schedule_.ranks == 1));
    if (computes) flat.kernel = kernel(step);
    if (marks()) program_.masks.push_back(masks);
    flat.after = step.after;
    for (const Operand& operand : step.in) add(operand, receives_, lane.receives_on);
    for (std::size_t k = 0; k < step.out.size(); ++k) {
      const Operand& operand = step.out[k];
      if (operand.place == Place::output && k < 64) flat.results |= std::uint64_t{1} << k;
      add(operand, sends_, lane.sends_on);
    }
    pair_answers(step, program_.operands.data() + flat.first_operand);
    if (zero_copy_ && flat.segments == 1) {
      const std::size_t number = program_.steps.size() - program_.lanes.back().first_step;
      const collectives::ZeroCopySource& source = sources_[program_.lanes.size() - 1][number];
      const bool from_output = source.operand >= static_cast<int>(flat.inputs);
      if (from_output || (source.operand >= 0 && !computes)) mark_zero_copy(source, step, flat);
    }
    program_.widest_step =
        std::max<std::uint64_t>(program_.widest_step, step.in.size() + step.out.size());
    program_.steps.push_back(flat);
  }

  bool premultiplies() const {
    return collectives::reduces(schedule_.what) && call().reduction == 0 &&
           call().op == Op::premul_sum;
  }

  bool marks() const { return premultiplies() || call().accumulates_f32; }

  Program::Kernel kernel(const Step& step) const {
    using Fold = Program::Fold;
    const bool all_summands =
        call().reproducible && step.in.size() == static_cast<std::size_t>(schedule_.ranks);
    return {call().reduction != 0 ? Fold::user
            : all_summands        ? Fold::fixed_point
                                  : Fold::reduce,
            call().type, call().op,
            call().accumulates_f32 ? accumulation_type(call().type) : call().type};
  }

  Program::Masks masks_of(const Step& step) const {
    Program::Masks masks;
    if (!marks()) return masks;
    assert(std::max(step.in.size(), step.out.size()) <= kMaxMarkedOperands);
    for (std::size_t k = 0; k < step.in.size(); ++k) {
      const std::uint64_t bit = std::uint64_t{1} << k;
      if (premultiplies() && step.in[k].place == Place::input) masks.premultiplied_inputs |= bit;
      if (call().accumulates_f32 && !is_of_call(step.in[k])) masks.f32_inputs |= bit;
    }
    for (std::size_t k = 0; k < step.out.size(); ++k)
      if (call().accumulates_f32 && !is_of_call(step.out[k]))
        masks.f32_outputs |= std::uint64_t{1} << k;
    return masks;
  }

  void pair_answers(const Step& step, Program::Operand* flat) const {
    if (answered_.empty()) return;
    std::unordered_map<int, std::uint32_t> answers;  // indexed by peer
    for (std::size_t k = 0; k < step.out.size(); ++k)
      if (is_peer(step.out[k])) answers[step.out[k].index] = number(step.in.size() + k);
    for (std::size_t k = 0; k < step.in.size(); ++k) {
      if (!is_peer(step.in[k]) ||
          !std::binary_search(answered_.begin(), answered_.end(), step.in[k].index))
        continue;
      flat[k].partner = answers.at(step.in[k].index);
      flat[flat[k].partner].partner = number(k);
    }
  }

  void mark_zero_copy(const collectives::ZeroCopySource& source, const Step& step,
                      const Program::Step& flat) {
    for (std::size_t k = 0; k < step.out.size(); ++k) {
      if (!is_peer(step.out[k])) continue;
      Program::Operand& message = program_.operands[flat.first_operand + flat.inputs + k];
      message.source = static_cast<std::uint32_t>(source.operand);
      message.zero_copy_in_place = source.in_place;
      message.comes_back = source.answered;
      const Operand output{Place::output, step.chunk};
      if (source.answered) message.offset = {offset(output, 0), offset(output, 1)};
    }
  }

  // Asserts that a number fits 32 bits: a program with more records of a kind would not fit in the
  // memory of any machine.
  static std::uint32_t number(std::size_t of) {
    assert(of < Program::kNone);
    return static_cast<std::uint32_t>(of);
  }

  /// The ports of one direction, and the index of each by peer and channel.
  struct Ports {
    std::vector<Program::Port>& list;
    std::unordered_map<std::uint64_t, std::uint32_t> numbers = {};
  };

  std::uint32_t port_of(Ports& ports, int peer, int channel) const {
    assert(channel < kStripeChannels || program_.stripe.of == 1);
    channel += static_cast<int>(program_.stripe.number) * kStripeChannels;
    const auto key = static_cast<std::uint64_t>(peer) << 32 | static_cast<std::uint32_t>(channel);
    const auto [found, added] = ports.numbers.try_emplace(key, number(ports.list.size()));
    if (added) ports.list.push_back({peer, channel});
    return found->second;
  }

  void add(const Operand& operand, Ports& ports, int channel) {
    Program::Operand flat{};
    flat.place = operand.place;
    if (is_peer(operand))
      flat.port = port_of(ports, operand.index, channel);
    else
      flat.offset = {offset(operand, 0), offset(operand, 1)};
    program_.operands.push_back(flat);
  }

  const Schedule& schedule_;
  const bool zero_copy_;
  // Indexed by lane and step, if messages may be sent zero-copy.
  std::vector<std::vector<collectives::ZeroCopySource>> sources_;
  const std::size_t held_bytes_;   // bytes of an element in the call's buffers
  const std::size_t moved_bytes_;  // bytes of an element in messages and scratch
  const Cut cut_;
  std::vector<int> answered_;  // peers whose messages the lane being compiled answers
  Program program_;
  Ports receives_{program_.receives};
  Ports sends_{program_.sends};
};

}  // namespace

Cut cut(Layout layout, std::uint64_t count, std::size_t element_bytes, int chunks, int widest,
        std::size_t message_bytes) {
  assert(element_bytes > 0 && chunks > 0 && widest > 0);
  const std::uint64_t line = elements_of_line(element_bytes);
  const std::uint64_t chunk_most = most_elements(element_bytes, widest, message_bytes);
  assert(chunk_most > 0);
  // A piece is `parts` consecutive chunks (Layout::whole), or the same share of every block
  // (Layout::blocks).
  const auto parts =
      layout == Layout::whole ? static_cast<std::uint64_t>(chunks) : std::uint64_t{1};
  const std::uint64_t fewest = std::max<std::uint64_t>(1, ceil_div(count, parts * chunk_most));
  Cut result{};
  // Pieces have equal sizes, in place of full pieces and a small rest.
  result.piece_elements = std::max(parts * line, round_up(ceil_div(count, fewest), parts * line));
  result.pieces = std::max<std::uint64_t>(1, ceil_div(count, result.piece_elements));
  result.last_elements = count - (result.pieces - 1) * result.piece_elements;
  result.chunk_elements[0] = result.piece_elements / parts;
  result.chunk_elements[1] = layout == Layout::whole
                                 ? round_up(ceil_div(result.last_elements, parts), line)
                                 : result.last_elements;
  assert(result.pieces >= 1 && result.last_elements <= result.piece_elements);
  return result;
}

std::size_t least_chunk_bytes(std::size_t element_bytes) {
  return elements_of_line(element_bytes) * element_bytes;
}

std::size_t moved_bytes(const CallSignature& call) {
  return call.accumulates_f32 ? size_of(accumulation_type(call.type))
                              : element_bytes(call.type, call.reduction);
}

ScheduleProperties properties_of(std::span<const Schedule> schedules) {
  ScheduleProperties found;
  for (const Schedule& schedule : schedules) {
    found.widest = std::max(found.widest, schedule.widest);
    std::vector<bool> written(static_cast<std::size_t>(schedule.chunks));
    for (const Lane& lane : schedule.lanes) {
      found.channels = std::max({found.channels, lane.receives_on + 1, lane.sends_on + 1});
      for (const Step& step : lane.steps) {
        found.most_operands = std::max({found.most_operands, step.in.size(), step.out.size()});
        if (step.in.size() != static_cast<std::size_t>(schedule.ranks) &&
            (step.in.size() > 1 || step.completes))
          found.reduces_at_once = false;
        if (!std::any_of(step.out.begin(), step.out.end(), is_output)) continue;
        for (int chunk = step.chunk; chunk < step.chunk + step.count; ++chunk) {
          if (written[static_cast<std::size_t>(chunk)]) found.rewrites_output = true;
          written[static_cast<std::size_t>(chunk)] = true;
        }
      }
    }
  }
  return found;
}

Program compile(const Schedule& schedule, const CallSignature& call, std::size_t message_bytes,
                bool zero_copy, Stripe stripe) {
  assert(stripe.number < stripe.of && stripe.of <= static_cast<std::uint64_t>(kMostStripes));
  const std::size_t room = message_bytes / least_chunk_bytes(moved_bytes(call));
  if (static_cast<std::size_t>(schedule.widest) > room)
    throw Error(ErrorKind::unavailable,
                fmt::format("{}: a step moves {} chunks, but messages of {} bytes hold {}; raise "
                            "TUTTI_MESSAGE_BYTES and TUTTI_RING_BYTES, or leave them out",
                            to_string(schedule.what), schedule.widest, message_bytes, room));
  return Compiler(schedule, call, message_bytes, zero_copy, stripe).run();
}

}  // namespace tutti
