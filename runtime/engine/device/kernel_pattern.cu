// These kernels find out whether what one GPU writes to the memory of another arrives whole and in
// order; see transport/cuda_ipc/pattern.h.
#include "transport/cuda_ipc/pattern.h"

#include "common/wire.h"
#include "compute/cuda/combine.cuh"
#include "runtime/engine/device/records.h"
#include "runtime/engine/device/words.cuh"

namespace tutti::device {
namespace {

using cuda_ipc::Pattern;

constexpr std::uint32_t kLooks = 4096;
constexpr std::uint64_t kWordsOfLine = sizeof(RingLine) / 8;
constexpr std::uint64_t kWordsOfLines = kRingLines * kWordsOfLine;

// The sequence of the first line is the flag.
__device__ std::uint64_t flag_of(const Pattern& pattern) { return pattern.seed | 1; }
__device__ std::uint64_t* flag_word(const Pattern& pattern) {
  return reinterpret_cast<std::uint64_t*>(pattern.lines);
}

/// Calls `use(word, value)` for the words of this thread: those of the lines but the flag, and
/// those of the data.
template <class Use>
__device__ void for_each_word(const Pattern& pattern, Use use) {
  auto* const lines = reinterpret_cast<std::uint64_t*>(pattern.lines);
  auto* const data = reinterpret_cast<std::uint64_t*>(pattern.data);
  const std::uint64_t all = kWordsOfLines + pattern.data_bytes / 8;
  for (std::uint64_t i = own_thread(); i < all; i += all_threads()) {
    if (i == 0) continue;
    use(i < kWordsOfLines ? lines + i : data + (i - kWordsOfLines), mix(pattern.seed + i));
  }
}

}  // namespace

extern "C" __global__ void __launch_bounds__(cuda_ipc::kPatternThreads)
    tutti_pattern_write(const __grid_constant__ Pattern pattern) {
  for_each_word(pattern, [](std::uint64_t* word, std::uint64_t value) { *word = value; });
  __syncthreads();
  if (own_thread() != 0) return;
  store_release_system(flag_word(pattern), flag_of(pattern));
  store_release_system(pattern.result, cuda_ipc::kWritten);
}

extern "C" __global__ void __launch_bounds__(cuda_ipc::kPatternThreads)
    tutti_pattern_check(const __grid_constant__ Pattern pattern) {
  __shared__ std::uint32_t seen, right;
  if (own_thread() == 0) {
    seen = 0;
    right = 1;
    for (std::uint32_t looks = 0; looks < kLooks && seen == 0; ++looks)
      seen = load_acquire_system(flag_word(pattern)) == flag_of(pattern) ? 1 : 0;
  }
  __syncthreads();
  if (seen != 0) {
    bool same = true;
    for_each_word(pattern, [&same](std::uint64_t* word, std::uint64_t value) {
      same = same && *word == value;
    });
    if (!same) lower_shared(&right, 0);
    __syncthreads();
    auto* const lines = reinterpret_cast<std::uint64_t*>(pattern.lines);
    for (std::uint64_t i = own_thread(); i < kWordsOfLines; i += all_threads()) lines[i] = 0;
  }
  __syncthreads();
  if (own_thread() != 0) return;
  const std::uint64_t compared = right != 0 ? cuda_ipc::kRight : cuda_ipc::kWrong;
  store_release_system(pattern.result, seen != 0 ? compared : cuda_ipc::kNotSeen);
}

}  // namespace tutti::device
