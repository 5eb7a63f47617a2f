// Runs kernels that only move bytes under ThreadSanitizer: two ranks have a ring that holds a few
// messages, so that each of its places is used again and again. races_test.py reads what it says.
#include <gtest/gtest.h>

#include "on_gpu.h"
#include "rank.h"

namespace tutti::device {
namespace {

class Races : public OnGpu {};

// Messages go one way alone: an answer would order by chance what only the ring's words should.
TEST_F(Races, OfABroadcastThatGoesThroughItsRingManyTimes) {
  constexpr int kRanks = 2;
  constexpr std::size_t kMessageBytes = 512, kBytes = 32 * kMessageBytes;
  Rings rings(*gpu_, 3 * kMessageBytes);
  CallSignature call;
  call.what = Collective::broadcast;
  call.type = DataType::uint8;
  call.count = kBytes;
  std::vector<std::unique_ptr<Rank>> ranks;
  std::vector<std::byte*> in, out;
  for (int rank = 0; rank < kRanks; ++rank) {
    const Schedule schedule = named("ring").plan({call.what, rank, kRanks, 0});
    ranks.push_back(std::make_unique<Rank>(
        *gpu_, std::vector<Program>{compile(schedule, call, kMessageBytes, false, {0, 1})}, &rings,
        rank));
    // Kernels that are launched again would be ordered by the threads of the host that run them.
    ranks.back()->call().patience = 100'000'000;
    in.push_back(ranks.back()->array<std::byte>(kBytes));
    out.push_back(ranks.back()->array<std::byte>(kBytes));
  }
  for (int turn = 0; turn < 3; ++turn) {
    std::memset(in[0], turn + 1, kBytes);
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) ranks[rank]->begin(in[rank], out[rank]);
    run_all(ranks, "tutti_run_bytes", kThreads);
    for (std::size_t i = 0; i < kBytes; ++i)
      ASSERT_EQ(static_cast<int>(out[1][i]), turn + 1) << "turn " << turn << ", byte " << i;
  }
}

}  // namespace
}  // namespace tutti::device
