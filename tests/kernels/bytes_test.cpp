// Counts how many bytes of vectors and messages kernels load and store, by accesses of 16 bytes,
// and compares them with the least that the algorithm needs.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "on_gpu.h"
#include "rank.h"

namespace tutti::device {
namespace {

class MovedBytes : public OnGpu {
 protected:
  // Returns what all kernels have moved since the last call. The stand-in has loaded the library.
  static std::uint64_t take() {
    static void* const library = dlopen(std::getenv("FAKE_CUDA_KERNELS"), RTLD_NOW);
    static const auto moved =
        reinterpret_cast<std::uint64_t (*)()>(dlsym(library, "take_moved_bytes"));
    if (moved == nullptr) throw std::runtime_error("the kernels do not count what they move");
    return moved();
  }
};

// Around a ring of n ranks, each n-th of a vector is loaded and sent; added to the input and sent
// n - 2 times; added, stored and sent; stored and sent n - 2 times; and stored.
std::uint64_t least_around_a_ring(std::uint64_t ranks, std::uint64_t bytes) {
  return (2 + 3 * (ranks - 2) + 4 + 3 * (ranks - 2) + 2) * bytes;
}

TEST_F(MovedBytes, OfAnAllReduceAroundARingAreATenthAboveTheLeastAtMost) {
  constexpr std::size_t kMessageBytes = 32 << 10, kBytes = 1 << 20;
  for (const int size : {2, 4, 8}) {
    Rings rings(*gpu_, 3 * kMessageBytes);
    CallSignature call;
    call.what = Collective::all_reduce;
    call.type = DataType::f32;
    call.count = kBytes / sizeof(float);
    std::vector<std::unique_ptr<Rank>> ranks;
    std::vector<float*> outputs;
    for (int rank = 0; rank < size; ++rank) {
      const Schedule schedule = named("ring").plan({call.what, rank, size, 0});
      ranks.push_back(std::make_unique<Rank>(
          *gpu_, std::vector<Program>{compile(schedule, call, kMessageBytes, false, {0, 1})},
          &rings, rank));
      auto* const input = ranks.back()->array<float>(call.count);
      std::fill_n(input, call.count, 1.0f);
      outputs.push_back(ranks.back()->array<float>(call.count));
      ranks.back()->begin(reinterpret_cast<std::byte*>(input),
                          reinterpret_cast<std::byte*>(outputs.back()));
    }
    take();
    run_all(ranks, "tutti_run_f32", 256);
    const auto moved = static_cast<double>(take());
    const auto least =
        static_cast<double>(least_around_a_ring(static_cast<std::uint64_t>(size), kBytes));
    EXPECT_GE(moved, least) << size << " ranks";
    EXPECT_LE(moved, 1.1 * least) << size << " ranks";
    for (const float* const output : outputs)
      for (std::size_t i = 0; i < call.count; ++i) ASSERT_EQ(output[i], static_cast<float>(size));
    RecordProperty("moved_over_least_" + std::to_string(size), std::to_string(moved / least));
  }
}

}  // namespace
}  // namespace tutti::device
