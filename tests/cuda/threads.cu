// Kernels whose threads and blocks meet: barriers, warps, atomic operations, flags.
#include <cstdint>
#include <cuda/atomic>

namespace {

using Word = std::uint32_t;
using Wide = unsigned long long;

__device__ Wide acquire(const Wide* word) {
  Wide value = 0;
  asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(word) : "memory");
  return value;
}
__device__ void release(Wide* word, Wide value) {
  asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(word), "l"(value) : "memory");
}
__device__ void relaxed(Wide* word, Wide value) {
  asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(word), "l"(value) : "memory");
}

/// Adds up `count` words by all threads of a block.
template <bool with_barrier>
__device__ Word sum_of_block(const Word* values, Word count) {
  __shared__ Word sums[1024];
  Word sum = 0;
  for (Word each = threadIdx.x; each < count; each += blockDim.x) sum += values[each];
  sums[threadIdx.x] = sum;
  __syncthreads();
  for (Word half = blockDim.x / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
    if constexpr (with_barrier) __syncthreads();
  }
  return sums[0];
}

/// Hands `words` to the peer and takes as many, once in each round. `flags` holds what has been
/// given and what has been taken.
template <bool ordered>
__device__ void exchange(Wide* own, Wide* peer, Wide* own_flags, Wide* peer_flags, Word words,
                         Word rounds, Wide* sum) {
  Wide found = 0;
  for (Wide round = 1; round <= rounds; ++round) {
    if (threadIdx.x == 0)
      while (acquire(&own_flags[1]) + 1 < round) {
      }
    __syncthreads();
    for (Word each = threadIdx.x; each < words; each += blockDim.x)
      peer[each] = round * 1000 + each;
    __syncthreads();
    if (threadIdx.x == 0) {
      if constexpr (ordered)
        release(&peer_flags[0], round);
      else
        relaxed(&peer_flags[0], round);
      while (acquire(&own_flags[0]) < round) {
      }
    }
    __syncthreads();
    for (Word each = threadIdx.x; each < words; each += blockDim.x) found += own[each];
    __syncthreads();
    if (threadIdx.x == 0) release(&peer_flags[1], round);
  }
  atomicAdd(sum, found);
}

}  // namespace

extern "C" {

__global__ void sum_block(const Word* values, Word count, Word* result) {
  const Word sum = sum_of_block<true>(values, count);
  if (threadIdx.x == 0) *result = sum;
}
/// As above, but a barrier is missing.
__global__ void sum_block_without_barrier(const Word* values, Word count, Word* result) {
  const Word sum = sum_of_block<false>(values, count);
  if (threadIdx.x == 0) *result = sum;
}

/// Block b has its part of both memories at b * words, and its flags at 2 * b.
__global__ void exchange_words(Wide* own, Wide* peer, Wide* own_flags, Wide* peer_flags, Word words,
                               Word rounds, Wide* sum) {
  const Word block = blockIdx.x;
  exchange<true>(own + block * words, peer + block * words, own_flags + 2 * block,
                 peer_flags + 2 * block, words, rounds, sum);
}
/// As above, but the store of the flag does not order what is before it.
__global__ void exchange_words_unordered(Wide* own, Wide* peer, Wide* own_flags, Wide* peer_flags,
                                         Word words, Word rounds, Wide* sum) {
  const Word block = blockIdx.x;
  exchange<false>(own + block * words, peer + block * words, own_flags + 2 * block,
                  peer_flags + 2 * block, words, rounds, sum);
}

/// The blocks of a grid wait until all have come.
__global__ void meet_all_blocks(Wide* count, Word* most) {
  if (threadIdx.x == 0) {
    atomicAdd(count, 1ULL);
    while (acquire(count) < gridDim.x) {
    }
    atomicMax(most, gridDim.x);
  }
}

/// Counts how many blocks run at once.
__global__ void count_residents(Word* now, Word* most, Wide* all) {
  if (threadIdx.x == 0) {
    atomicMax(most, atomicAdd(now, 1U) + 1);
    for (int pause = 0; pause < 50; ++pause) __nanosleep(100);
    atomicSub(now, 1U);
    atomicAdd(all, 1ULL);
  }
}

__global__ void wait_forever(const Wide* word) {
  while (acquire(word) != 1) {
  }
}
/// Half of the threads never come to the barrier.
__global__ void leave_others_at_barrier() {
  if (threadIdx.x % 2 == 0) return;
  __syncthreads();
}
__global__ void touch_misaligned(Word* words) { *reinterpret_cast<Wide*>(words + 1) = 1; }

__global__ void use_warp(const Word* values, Word* results) {
  const Word lane = threadIdx.x % 32, value = values[threadIdx.x], all = ~0U;
  Word* const mine = results + threadIdx.x * 12;
  mine[0] = __shfl_sync(all, value, lane * 3 + 1);
  mine[1] = __shfl_up_sync(all, value, 5);
  mine[2] = __shfl_down_sync(all, value, 3, 8);
  mine[3] = __shfl_xor_sync(all, value, 6);
  mine[4] = __ballot_sync(all, value & 1);
  mine[5] = __any_sync(all, value == 13) + 2 * __all_sync(all, value < 4000);
  mine[6] = __reduce_add_sync(all, value);
  mine[7] = __reduce_max_sync(all, static_cast<int>(value) - 50);
  mine[8] = __match_any_sync(all, value % 4);
  mine[9] = 0;
  if (lane % 2 == 1) mine[9] = __shfl_sync(0xaaaaaaaa, value, lane ^ 2);
  Wide wide = Wide{value} << 33 | lane;
  wide = __shfl_xor_sync(all, wide, 1);
  mine[10] = static_cast<Word>(wide >> 33) + static_cast<Word>(wide);
  __syncwarp();
  mine[11] = __popc(__activemask());
}

/// Two halves of a block use barriers of their own; then all threads vote.
__global__ void use_barriers(Word* results) {
  extern __shared__ Word room[];
  const Word half = threadIdx.x / (blockDim.x / 2);
  room[threadIdx.x] = threadIdx.x * 3;
  asm volatile("bar.sync %0, %1;" ::"r"(half + 1), "r"(blockDim.x / 2) : "memory");
  const Word first = half * (blockDim.x / 2);
  results[threadIdx.x] = room[first + (blockDim.x / 2 - 1 - (threadIdx.x - first))];
  const int ones = __syncthreads_count(threadIdx.x % 3 == 0);
  const int any = __syncthreads_or(threadIdx.x == 1), every = __syncthreads_and(threadIdx.x != 1);
  if (threadIdx.x == 0) results[blockDim.x] = ones * 100 + (any != 0) * 10 + (every != 0);
  if (half == 0)
    asm volatile("bar.arrive 5, %0;" ::"r"(blockDim.x) : "memory");
  else
    asm volatile("bar.sync 5, %0;" ::"r"(blockDim.x) : "memory");
}

__global__ void use_atomics(Word* words, Wide* wides, float* real, double* wide_real, int* number) {
  atomicAdd(&words[0], threadIdx.x + 1);
  atomicOr(&words[1], 1U << threadIdx.x % 32);
  atomicAnd(&words[2], ~(1U << threadIdx.x % 7));
  atomicXor(&words[3], threadIdx.x);
  atomicInc(&words[4], 9);
  atomicDec(&words[5], 4);
  Word expected = words[6];
  while (true) {
    const Word found = atomicCAS(&words[6], expected, expected * 5 + 1);
    if (found == expected) break;
    expected = found;
  }
  atomicMin(number, -static_cast<int>(threadIdx.x));
  atomicMax(&wides[0], Wide{threadIdx.x} << 40);
  cuda::atomic_ref<Wide, cuda::thread_scope_system> wide(wides[1]);
  wide.fetch_add(2, cuda::memory_order_acq_rel);
  cuda::atomic_ref<Wide, cuda::thread_scope_device> other(wides[2]);
  other.fetch_sub(1, cuda::memory_order_release);
  atomicAdd(real, 0.5F);
  atomicAdd_system(wide_real, 0.25);
  if (atomicExch(&wides[3], 1ULL) == 0) words[7] = 42;
  __threadfence_system();
}

__global__ void identify(Word* results) {
  const Word block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
  const Word thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
  results[block * blockDim.x * blockDim.y * blockDim.z + thread] =
      block << 16 | threadIdx.z << 12 | threadIdx.y << 8 | threadIdx.x;
}

__global__ void multiply_all(Wide* values, Wide count, Wide by) {
  for (Wide each = threadIdx.x; each < count; each += blockDim.x) values[each] *= by;
}

}  // extern "C"
