// Runs kernels that only move bytes under ThreadSanitizer: two ranks have a ring that holds a few
// messages, so that each of its places is used again and again. races_test.py reads what it says.
#include <gtest/gtest.h>

#include "on_gpu.h"
#include "rank.h"

namespace tutti::device {
namespace {

class Races : public OnGpu {};

TEST_F(Races, OfAnAllGatherThatGoesThroughItsRingsManyTimes) {
  constexpr int kRanks = 2;
  constexpr std::size_t kMessageBytes = 512, kBytes = 16 * kMessageBytes;
  Rings rings(*gpu_, 3 * kMessageBytes);
  CallSignature call;
  call.what = Collective::all_gather;
  call.type = DataType::uint8;
  call.count = kBytes;
  std::vector<std::unique_ptr<Rank>> ranks;
  std::vector<std::byte*> in, out;
  for (int rank = 0; rank < kRanks; ++rank) {
    const Schedule schedule = named("ring").plan({call.what, rank, kRanks, 0});
    ranks.push_back(std::make_unique<Rank>(
        *gpu_, std::vector<Program>{compile(schedule, call, kMessageBytes, false, {0, 1})}, &rings,
        rank));
    in.push_back(ranks.back()->array<std::byte>(kBytes));
    out.push_back(ranks.back()->array<std::byte>(kRanks * kBytes));
  }
  for (int turn = 0; turn < 3; ++turn) {
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
      std::memset(in[rank], static_cast<int>(10 * turn + 1) + static_cast<int>(rank), kBytes);
      ranks[rank]->begin(in[rank], out[rank]);
    }
    run_all(ranks, "tutti_run_bytes", kThreads);
    for (const std::byte* const result : out)
      for (std::size_t i = 0; i < kRanks * kBytes; ++i)
        ASSERT_EQ(static_cast<std::size_t>(result[i]),
                  10u * static_cast<unsigned>(turn) + 1 + i / kBytes);
  }
}

}  // namespace
}  // namespace tutti::device
