// Kernels walk variable programs, and those in which messages are wider than the data.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>

#include "../compute/reference.h"
#include "on_gpu.h"
#include "rank.h"

namespace tutti::device {
namespace {

constexpr int kRanks = 3;
constexpr std::size_t kMessageBytes = 512;

class OtherWalks : public OnGpu {};

/// How many elements go from each rank to each other one; where all ranks know the lengths of the
/// blocks, a block has one length wherever it goes.
using Lengths = std::array<std::array<std::uint64_t, kRanks>, kRanks>;
constexpr Lengths kByOwner{{{0, 0, 0}, {700, 700, 700}, {33, 33, 33}}};
constexpr Lengths kByPair{{{5, 0, 301}, {700, 1, 2}, {0, 129, 64}}};

/// The blocks of one buffer, which lie one after another from the last to the first.
std::array<BlockTable::Block, kRanks> laid_out(const std::array<std::uint64_t, kRanks>& lengths) {
  std::array<BlockTable::Block, kRanks> blocks{};
  std::uint64_t at = 0;
  for (int peer = kRanks; peer-- > 0;) {
    blocks[peer] = {lengths[peer] * sizeof(float), at};
    at += blocks[peer].bytes;
  }
  return blocks;
}

float element(int from, int to, std::uint64_t i) {
  return static_cast<float>(from * 100 + to * 10 + static_cast<int>(i % 7));
}

/// One rank's buffers and table in a variable collective.
class Variable {
 public:
  Variable(Collective what, int self) : what_(what), self_(self) {
    std::array<std::uint64_t, kRanks> in{}, out{};
    for (int peer = 0; peer < kRanks; ++peer) {
      const bool pairs = what == Collective::all_to_all;
      in[peer] = pairs ? kByPair[self][peer] : kByOwner[peer][0];
      out[peer] = pairs ? kByPair[peer][self] : kByOwner[peer][0];
    }
    input = laid_out(in);
    output = laid_out(out);
    // A buffer with one block has it at its beginning, whichever it is.
    for (int peer = 0; peer < kRanks; ++peer) {
      if (what == Collective::all_gather) input[peer].offset = 0;
      if (what == Collective::reduce_scatter) output[peer].offset = 0;
    }
  }
  /// What this rank gives to `to`.
  float given(int to, std::uint64_t i) const {
    return element(self_, what_ == Collective::all_gather ? 0 : to, i);
  }
  float expected(int from, std::uint64_t i) const {
    if (what_ == Collective::all_gather) return element(from, 0, i);
    if (what_ == Collective::all_to_all) return element(from, self_, i);
    float sum = 0;
    for (int rank = 0; rank < kRanks; ++rank) sum += element(rank, self_, i);
    return sum;
  }
  bool gives(int to) const { return what_ != Collective::all_gather || to == self_; }
  bool gets(int from) const { return what_ != Collective::reduce_scatter || from == self_; }

  std::array<BlockTable::Block, kRanks> input, output;

 private:
  Collective what_;
  int self_;
};

void check_variable(Gpu& gpu, Collective what, const Algorithm& algorithm) {
  CallSignature call;
  call.what = what;
  call.type = DataType::f32;
  call.lengths = kPairLengths;
  Rings rings(gpu, 3 * kMessageBytes);
  std::vector<std::unique_ptr<Rank>> ranks;
  std::vector<float*> outputs;
  for (int self = 0; self < kRanks; ++self) {
    const Program program = compile(algorithm.plan({what, self, kRanks, 0}), call, kMessageBytes);
    auto& rank =
        *ranks.emplace_back(std::make_unique<Rank>(gpu, std::vector{program}, &rings, self));
    const Variable buffers(what, self);
    auto* const table = rank.array<BlockTable::Block>(2 * kRanks);
    std::copy(buffers.input.begin(), buffers.input.end(), table);
    std::copy(buffers.output.begin(), buffers.output.end(), table + kRanks);
    std::uint64_t longest = 0;
    for (int k = 0; k < 2 * kRanks; ++k) longest = std::max(longest, table[k].bytes);
    rank.call().table = table;
    rank.call().pieces = (longest + program.piece_bytes - 1) / program.piece_bytes;
    ASSERT_GT(rank.call().pieces, 1u);
    if (what == Collective::all_to_all) rank.call().pair_mask = ~std::uint32_t{0};
    auto* const in = rank.array<float>(3000);
    outputs.push_back(rank.array<float>(3000));
    for (int to = 0; to < kRanks; ++to)
      for (std::uint64_t i = 0; buffers.gives(to) && i < buffers.input[to].bytes / 4; ++i)
        in[buffers.input[to].offset / 4 + i] = buffers.given(to, i);
    rank.begin(reinterpret_cast<std::byte*>(in), reinterpret_cast<std::byte*>(outputs.back()));
  }
  run_all(ranks, "tutti_run_f32", kThreads);
  for (int self = 0; self < kRanks; ++self) {
    const Variable buffers(what, self);
    for (int from = 0; from < kRanks; ++from)
      for (std::uint64_t i = 0; buffers.gets(from) && i < buffers.output[from].bytes / 4; ++i)
        ASSERT_EQ(outputs[self][buffers.output[from].offset / 4 + i], buffers.expected(from, i))
            << "rank " << self << ", block " << from << ", element " << i;
  }
}

TEST_F(OtherWalks, OfBlocksWhoseLengthsDifferGiveTheirResults) {
  for (const Algorithm& algorithm : algorithms())
    for (const auto what :
         {Collective::all_gather, Collective::reduce_scatter, Collective::all_to_all}) {
      if (!algorithm.knows(what, kRanks)) continue;
      if (what == Collective::all_to_all && !algorithm.direct) continue;
      SCOPED_TRACE(std::string(algorithm.name) + " " + std::string(to_string(what)));
      check_variable(*gpu_, what, algorithm);
      if (HasFailure()) return;
    }
}

/// An all_reduce of f16 whose sums are small integers, each input times two.
void check_f16(Gpu& gpu, const Algorithm& algorithm, const CallSignature& call) {
  Rings rings(gpu, 3 * kMessageBytes);
  std::vector<std::unique_ptr<Rank>> ranks;
  std::vector<float16*> outputs;
  const auto value = [](int rank, std::uint64_t i) {
    return static_cast<float>((i + static_cast<std::uint64_t>(rank)) % 16);
  };
  for (int self = 0; self < kRanks; ++self) {
    const Program program =
        compile(algorithm.plan({call.what, self, kRanks, 0}), call, kMessageBytes);
    auto& rank =
        *ranks.emplace_back(std::make_unique<Rank>(gpu, std::vector{program}, &rings, self));
    auto* const in = rank.array<float16>(call.count);
    outputs.push_back(rank.array<float16>(call.count));
    for (std::uint64_t i = 0; i < call.count; ++i)
      in[i] = reference::nearest<float16>(value(self, i));
    const auto two = reference::nearest<float16>(2);
    std::memcpy(rank.call().premultiplier, &two, sizeof two);
    rank.begin(reinterpret_cast<std::byte*>(in), reinterpret_cast<std::byte*>(outputs.back()));
  }
  run_all(ranks, "tutti_run_f16", kThreads);
  const float factor = call.op == Op::premul_sum ? 2.0f : 1.0f;
  for (int self = 0; self < kRanks; ++self)
    for (std::uint64_t i = 0; i < call.count; ++i) {
      float sum = 0;
      for (int rank = 0; rank < kRanks; ++rank) sum += factor * value(rank, i);
      if (call.op == Op::avg) sum /= kRanks;
      ASSERT_EQ(outputs[self][i].bits, reference::nearest<float16>(sum).bits)
          << "rank " << self << ", element " << i;
    }
}

TEST_F(OtherWalks, OfMessagesWiderThanTheDataAndOfSumsInFixedPointGiveTheirResults) {
  for (const auto op : {Op::sum, Op::avg, Op::premul_sum})
    for (const bool wide : {false, true})
      for (const char* name : {"ring", "all_pairs", "one_shot"}) {
        CallSignature call;
        call.what = Collective::all_reduce;
        call.type = DataType::f16;
        call.op = op;
        call.count = 1001;
        call.accumulates_f32 = wide;
        call.reproducible = !wide && std::string_view(name) != "ring";
        SCOPED_TRACE(std::string(name) + " " + std::string(to_string(op)) + (wide ? " wide" : ""));
        check_f16(*gpu_, named(name), call);
        if (HasFailure()) return;
      }
}

}  // namespace
}  // namespace tutti::device
