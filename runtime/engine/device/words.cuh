// Words by which blocks, kernels and the host meet. Each function is one instruction of the memory
// model of PTX, with the scope of those who meet: `gpu` for blocks of one launch, `sys` for
// processors and other GPUs.
#pragma once

#include <cstdint>

namespace tutti::device {

__device__ inline std::uint64_t load_acquire_system(const std::uint64_t* from) {
  std::uint64_t value;
  asm volatile("ld.acquire.sys.u64 %0, [%1];" : "=l"(value) : "l"(from) : "memory");
  return value;
}
__device__ inline std::uint64_t load_relaxed_system(const std::uint64_t* from) {
  std::uint64_t value;
  asm volatile("ld.relaxed.sys.u64 %0, [%1];" : "=l"(value) : "l"(from) : "memory");
  return value;
}
__device__ inline void store_release_system(std::uint64_t* to, std::uint64_t value) {
  asm volatile("st.release.sys.u64 [%0], %1;" ::"l"(to), "l"(value) : "memory");
}
__device__ inline void store_release_system(std::int32_t* to, std::int32_t value) {
  asm volatile("st.release.sys.s32 [%0], %1;" ::"l"(to), "r"(value) : "memory");
}
__device__ inline std::uint64_t load_acquire_gpu(const std::uint64_t* from) {
  std::uint64_t value;
  asm volatile("ld.acquire.gpu.u64 %0, [%1];" : "=l"(value) : "l"(from) : "memory");
  return value;
}
__device__ inline void store_release_gpu(std::uint64_t* to, std::uint64_t value) {
  asm volatile("st.release.gpu.u64 [%0], %1;" ::"l"(to), "l"(value) : "memory");
}
/// Adds 1 and returns what is there then.
__device__ inline std::uint32_t count_up_gpu(std::uint32_t* counter) {
  std::uint32_t before;
  asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], 1;"
               : "=r"(before)
               : "l"(__cvta_generic_to_global(counter))
               : "memory");
  return before + 1;
}
__device__ inline void count_up_gpu(std::uint64_t* counter) {
  asm volatile("red.release.gpu.global.add.u64 [%0], 1;" ::"l"(__cvta_generic_to_global(counter))
               : "memory");
}
/// Returns whether the caller is the first who claims the word.
__device__ inline bool claim_gpu(std::uint32_t* word) {
  std::uint32_t before;
  asm volatile("atom.relaxed.gpu.global.exch.b32 %0, [%1], 1;"
               : "=r"(before)
               : "l"(__cvta_generic_to_global(word))
               : "memory");
  return before == 0;
}
/// Lowers a word of the block's shared memory to `value` if it is greater.
__device__ inline void lower_shared(std::uint32_t* word, std::uint32_t value) {
  asm volatile("red.relaxed.cta.shared.min.u32 [%0], %1;" ::"l"(__cvta_generic_to_shared(word)),
               "r"(value)
               : "memory");
}
/// Orders the stores before it before the loads behind it, for all who do the same.
__device__ inline void fence_system() { asm volatile("fence.sc.sys;" ::: "memory"); }

}  // namespace tutti::device
