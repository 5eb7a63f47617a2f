#include "runtime/engine/variable_blocks.h"

#include <algorithm>
#include <cassert>
#include <cstdint>
#include <limits>
#include <numeric>
#include <optional>
#include <vector>

#include <fmt/format.h>

#include "collectives/schedule/semantics.h"

namespace tutti {
namespace {

using PlacedBlock = BlockTable::Block;

/// Checks one call and fills its table.
class Layouter {
 public:
  Layouter(const Call& call, int rank, int size, BlockTable& table)
      : call_(call),
        what_(call.kind.what),
        rank_(static_cast<std::size_t>(rank)),
        size_(static_cast<std::size_t>(size)),
        width_(element_bytes(call.kind)),
        is_root_(rank == call.kind.root) {
    assert(rank >= 0 && rank < size && call.variable != nullptr && width_ > 0);
    table.blocks.assign(2 * size_, {0, 0});
    input_ = {table.blocks.data(), size_};
    output_ = {table.blocks.data() + size_, size_};
  }

  void write() {
    const VariableBlocks& given = *call_.variable;
    switch (what_) {
      case Collective::all_gather: write(given.output, output_, ""); break;
      case Collective::reduce_scatter: write(given.input, input_, ""); break;
      case Collective::gather:
        if (is_root_) write(given.output, output_, "");
        write_own(output_);
        break;
      case Collective::scatter:
        if (is_root_) write(given.input, input_, "");
        write_own(input_);
        break;
      default:
        write(given.input, input_, "input_");
        write(given.output, output_, "output_");
        if (input_[rank_].bytes != output_[rank_].bytes)
          refuse(call_.kind,
                 fmt::format("input_counts[{0}] of rank {0} itself is {1}, but "
                             "output_counts[{0}] is {2}",
                             rank_, input_[rank_].bytes / width_, output_[rank_].bytes / width_));
        return;
    }
    // One buffer has all blocks, and the other has only this rank's block, at its beginning.
    const auto& all = collectives::holds_one_block(what_, Place::input) ? output_ : input_;
    const auto& one = collectives::holds_one_block(what_, Place::input) ? input_ : output_;
    for (std::size_t peer = 0; peer < size_; ++peer) one[peer] = {all[peer].bytes, 0};
  }

  void check_memory() const {
    const Held in = held(Place::input), out = held(Place::output);
    if (call_.input == nullptr && in.bytes > 0) refuse(call_.kind, "input is null");
    if (call_.output == nullptr && out.bytes > 0) refuse(call_.kind, "output is null");
    if (in.bytes == 0 || out.bytes == 0)
      check_apart({}, out);
    else if (in_place(in, out))
      check_apart({}, in.is_list ? in : out);
    else
      check_apart(in, out);
  }

  std::size_t output_bytes() const { return held(Place::output).bytes; }

 private:
  /// Describes the blocks of a buffer of this rank.
  struct Held {
    std::string_view name;
    const std::byte* base = nullptr;
    std::span<const PlacedBlock> blocks = {};
    /// It has a block for each rank, even if there is only one rank, at the given displacements.
    bool is_list = false;
    std::size_t bytes = 0;
  };

  Held held(Place place) const {
    const bool input = place == Place::input;
    const auto& all = input ? input_ : output_;
    Held held{input ? "input" : "output",
              static_cast<const std::byte*>(input ? call_.input : call_.output), all};
    const bool elsewhere = !is_root_ && ((what_ == Collective::gather && !input) ||
                                         (what_ == Collective::scatter && input));
    if (elsewhere) held.blocks = {};
    held.is_list = !collectives::holds_one_block(what_, place);
    if (!held.is_list) held.blocks = {&all[rank_], 1};
    for (const PlacedBlock& block : held.blocks) held.bytes += block.bytes;
    return held;
  }

  void write(const BlockList& list, std::span<PlacedBlock> blocks, std::string_view prefix) const {
    assert(blocks.size() == size_);
    const auto expect = [&](std::string_view name, std::size_t entries) {
      if (entries != size_)
        refuse(call_.kind, fmt::format("{}{} has {} entries, one for each of {} ranks is needed",
                                       prefix, name, entries, size_));
    };
    expect("counts", list.counts.size());
    if (!list.displacements.empty()) expect("displacements", list.displacements.size());
    const std::size_t most =
        static_cast<std::size_t>(std::numeric_limits<std::ptrdiff_t>::max()) / width_;
    std::size_t end = 0, total = 0;
    for (std::size_t peer = 0; peer < size_; ++peer) {
      const std::size_t count = list.counts[peer];
      const std::size_t first = list.displacements.empty() ? end : list.displacements[peer];
      if (count > most || first > most - count || total > most - count)
        refuse(call_.kind,
               fmt::format("{}counts[{}]: {} elements of {} behind {} are more than memory can be",
                           prefix, peer, count, element_name(call_.kind.type, call_.kind.reduction),
                           std::max(first, total)));
      end = first + count;
      total += count;
      blocks[peer] = {count * width_, first * width_};
    }
  }

  void write_own(std::span<PlacedBlock> all) const {
    const std::size_t most =
        static_cast<std::size_t>(std::numeric_limits<std::ptrdiff_t>::max()) / width_;
    const std::size_t own = call_.variable->own_count;
    if (own > most)
      refuse(call_.kind, fmt::format("count: {} elements of {} are more than memory can be", own,
                                     element_name(call_.kind.type, call_.kind.reduction)));
    if (is_root_ && all[rank_].bytes != own * width_)
      refuse(call_.kind, fmt::format("count is {}, but counts[{}] of the root itself is {}", own,
                                     rank_, all[rank_].bytes / width_));
    all[rank_].bytes = own * width_;
  }

  bool in_place(const Held& in, const Held& out) const {
    if (in.is_list && out.is_list) {
      if (in.base != out.base) return false;
      for (std::size_t peer = 0; peer < size_; ++peer)
        if (input_[peer].bytes != output_[peer].bytes ||
            (input_[peer].bytes > 0 && input_[peer].offset != output_[peer].offset))
          refuse(call_.kind, fmt::format("in place, what goes to rank {0} and what comes from it "
                                         "must be of one length and in one place",
                                         peer));
      return true;
    }
    const Held& all = in.is_list ? in : out;
    const Held& one = in.is_list ? out : in;
    assert(all.is_list && !one.is_list && all.blocks.size() == size_);
    return one.base == all.base + all.blocks[rank_].offset;
  }

  struct Range {
    std::uintptr_t begin = 0, end = 0;
    const Held* held = nullptr;
    std::size_t block = 0;
  };

  // Returns the range from the first to the last block, if each block lies behind the one before.
  static std::optional<Range> extent(const Held& held) {
    const auto base = reinterpret_cast<std::uintptr_t>(held.base);
    Range all;
    for (const PlacedBlock& block : held.blocks) {
      if (block.bytes == 0) continue;
      if (base + block.offset < all.end) return std::nullopt;
      if (all.end == 0) all.begin = base + block.offset;
      all.end = base + block.offset + block.bytes;
    }
    return all;
  }

  // No block of `written` may share memory with another of them, or with one of `read`.
  void check_apart(const Held& read, const Held& written) const {
    const auto from = extent(read), to = extent(written);
    if (from && to && (from->end <= to->begin || to->end <= from->begin)) return;
    std::vector<Range> ranges;
    for (const Held* held : {&read, &written})
      for (std::size_t i = 0; i < held->blocks.size(); ++i) {
        const auto begin = reinterpret_cast<std::uintptr_t>(held->base) + held->blocks[i].offset;
        if (held->blocks[i].bytes > 0)
          ranges.push_back({begin, begin + held->blocks[i].bytes, held, i});
      }
    const auto before = [](const Range& a, const Range& b) { return a.begin < b.begin; };
    if (!std::is_sorted(ranges.begin(), ranges.end(), before))
      std::sort(ranges.begin(), ranges.end(), before);
    // The ranges that reach farthest, among all and among those that are written.
    const Range *farthest = nullptr, *farthest_written = nullptr;
    for (const Range& range : ranges) {
      const bool is_written = range.held == &written;
      const Range* other = is_written ? farthest : farthest_written;
      if (other != nullptr && other->end > range.begin) fail_overlap(*other, range);
      if (farthest == nullptr || range.end > farthest->end) farthest = &range;
      if (is_written && (farthest_written == nullptr || range.end > farthest_written->end))
        farthest_written = &range;
    }
  }

  [[noreturn]] void fail_overlap(const Range& a, const Range& b) const {
    const auto text = [](const Range& range) {
      return range.held->is_list ? fmt::format("block {} of the {}", range.block, range.held->name)
                                 : std::string(range.held->name);
    };
    refuse(call_.kind,
           fmt::format("{} and {} overlap (in place is: {})", text(a), text(b), in_place_rule()));
  }

  std::string_view in_place_rule() const {
    if (collectives::holds_one_block(what_, Place::input))
      return "input == output + displacements[rank]";
    if (collectives::holds_one_block(what_, Place::output))
      return "output == input + displacements[rank]";
    return "input == output";
  }

  const Call& call_;
  const Collective what_;
  const std::size_t rank_;
  const std::size_t size_;
  const std::size_t width_;
  const bool is_root_;
  std::span<PlacedBlock> input_, output_;  // parts of the table
};

const BlockList& known_to_all(Collective what, const VariableBlocks& blocks) {
  return what == Collective::all_gather ? blocks.output : blocks.input;
}

}  // namespace

std::size_t longest_known(Collective what, const VariableBlocks& blocks) {
  static_assert(kPairLengths != 0, "0 stands for blocks of one length");
  if (only_pairs_know(what)) return 0;
  const auto& counts = known_to_all(what, blocks).counts;
  return counts.empty() ? 0 : *std::max_element(counts.begin(), counts.end());
}

std::size_t lay_out(const Call& call, int rank, int size, const CallSignature& like,
                    BlockTable& table) {
  assert(like.lengths == kPairLengths && like.count == 0);
  Layouter layouter(call, rank, size, table);
  layouter.write();
  layouter.check_memory();
  table.call = like;
  if (!only_pairs_know(call.kind.what)) {
    const auto& counts = known_to_all(call.kind.what, *call.variable).counts;
    table.call.count = std::accumulate(counts.begin(), counts.end(), std::uint64_t{0});
    std::uint64_t hash = 0;
    for (const std::size_t count : counts) hash = mix(hash ^ count) + 1;
    table.call.lengths = std::max(kPairLengths + 1, static_cast<std::uint32_t>(hash >> 32));
  }
  assert(table.call.lengths >= kPairLengths && table.blocks.size() % 2 == 0);
  table.fingerprint = fingerprint(table.call);
  return layouter.output_bytes();
}

}  // namespace tutti
