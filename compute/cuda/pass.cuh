// One pass of a block of threads over memory: folds n inputs, a few elements at a time in
// registers, and stores to m outputs.
//
// Inputs may be messages that other processors have written. They are read by ordinary loads, after
// a barrier behind the acquire load that has found them, and never as memory that does not change
// while the kernel runs (ld.global.nc, __ldg).
#pragma once

#include <cstddef>
#include <cstdint>

#include "compute/cuda/elements.cuh"

namespace tutti::device {

/// The operands of a step, for all threads of a block alike (in shared memory, so that they take no
/// registers): out[k][i] = in[0][i] op in[1][i] op ... for every k and every i below a count of
/// elements. Pointers need not be aligned; each output may be exactly one of the inputs. Bit k of a
/// mask stands for operand k, so a step with a mask has at most 64 operands of that kind;
/// compute/combine.h (CombineExtras) says what the masks mean.
struct BlockOperands {
  const std::byte* const* in;
  std::byte* const* out;
  std::uint32_t inputs;   ///< At least 1.
  std::uint32_t outputs;  ///< At least 1.
  std::uint32_t divide_by;
  std::uint64_t premultiplied_inputs;
  std::uint64_t f32_inputs;
  std::uint64_t f32_outputs;
  const std::byte* premultiplier;

  __device__ bool marked() const { return (premultiplied_inputs | f32_inputs | f32_outputs) != 0; }
};

/// The number of this thread in its block, and of threads. They are volatile so that the compiler
/// does not compute what depends on them for all loops of a kernel in advance, which would take
/// more registers than there are.
__device__ inline std::uint32_t own_thread() {
  std::uint32_t number;
  asm volatile("mov.u32 %0, %%tid.x;" : "=r"(number));
  return number;
}
__device__ inline std::uint32_t all_threads() {
  std::uint32_t number;
  asm volatile("mov.u32 %0, %%ntid.x;" : "=r"(number));
  return number;
}

__device__ inline std::uint32_t low_bits(const void* pointer) {
  return static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(pointer));
}

/// Loads an element from any address. Elements of one buffer are aligned alike, so that all threads
/// take the same branch.
template <class T>
__device__ T load_element(const std::byte* from) {
  if (low_bits(from) % sizeof(T) == 0) return *reinterpret_cast<const T*>(from);
  alignas(16) std::byte bytes[sizeof(T)];
#pragma unroll
  for (std::size_t i = 0; i < sizeof(T); ++i) bytes[i] = from[i];
  T value;
  __builtin_memcpy(&value, bytes, sizeof value);
  return value;
}
template <class T>
__device__ void store_element(std::byte* to, T value) {
  if (low_bits(to) % sizeof(T) == 0) {
    *reinterpret_cast<T*>(to) = value;
    return;
  }
  alignas(16) std::byte bytes[sizeof(T)];
  __builtin_memcpy(bytes, &value, sizeof value);
#pragma unroll
  for (std::size_t i = 0; i < sizeof(T); ++i) to[i] = bytes[i];
}

inline constexpr std::uint32_t kVectorBytes = 16;

/// The elements of a pass: `head` of them one by one, then vectors, and the rest one by one.
struct Parts {
  std::uint64_t head;
  std::uint64_t vectors;
};

/// Elements are taken in vectors if all operands have the same offset from a vector's alignment.
template <std::size_t kElementBytes>
__device__ Parts parts_of(const BlockOperands& operands, std::uint64_t count) {
  const std::uint32_t offset = low_bits(operands.in[0]) % kVectorBytes;
  std::uint32_t differ = offset % kElementBytes;
#pragma unroll 1
  for (std::uint32_t k = 1; k < operands.inputs; ++k)
    differ |= (low_bits(operands.in[k]) ^ offset) % kVectorBytes;
#pragma unroll 1
  for (std::uint32_t k = 0; k < operands.outputs; ++k)
    differ |= (low_bits(operands.out[k]) ^ offset) % kVectorBytes;
  const std::uint64_t head = (kVectorBytes - offset) % kVectorBytes / kElementBytes;
  if (differ != 0 || head >= count) return {count, 0};
  return {head, (count - head) / (kVectorBytes / kElementBytes)};
}

/// The elements that a thread takes at once: a vector of 16 bytes, or one element.
template <class Element>
struct Vectors {
  using Unit = uint4;
  static constexpr int kElements = kVectorBytes / sizeof(typename Element::Stored);
  static __device__ Unit load(const std::byte* from) {
    return *reinterpret_cast<const uint4*>(from);
  }
  static __device__ void store(std::byte* to, Unit unit) { *reinterpret_cast<uint4*>(to) = unit; }
};
template <class Element>
struct Singles {
  using Unit = typename Element::Stored;
  static constexpr int kElements = 1;
  static __device__ Unit load(const std::byte* from) { return load_element<Unit>(from); }
  static __device__ void store(std::byte* to, Unit unit) { store_element(to, unit); }
};

/// Units that a thread has under way: their elements in registers are at most 32, and while one
/// input is folded, the next one is on its way.
template <class Element, class Reduction, class Access, int kUnits>
class Folder {
 public:
  using Unit = typename Access::Unit;
  using Stored = typename Element::Stored;
  using Work = typename Element::Work;

  __device__ Folder(const BlockOperands& operands, const Reduction& reduction)
      : operands_(operands), reduction_(reduction) {}

  /// Computes kUnits units, the first at byte `at` and each `stride` bytes behind the one before.
  __device__ void run(std::uint64_t at, std::uint64_t stride) const {
    Batch now, next;
    Work folded[kUnits][Access::kElements];
    load(now, 0, at, stride);
    // Always, and be it in vain: values without a definition would occupy their registers
    // throughout the kernel.
    load(next, operands_.inputs > 1 ? 1 : 0, at, stride);
    each([&](int u, int i) { folded[u][i] = reduction_.prepare(element(now, u, i)); });
#pragma unroll 1
    for (std::uint32_t k = 1; k < operands_.inputs; ++k) {
      now = next;
      if (k + 1 < operands_.inputs) load(next, k + 1, at, stride);
      each([&](int u, int i) {
        folded[u][i] = reduction_.fold(folded[u][i], reduction_.prepare(element(now, u, i)));
      });
    }
    each([&](int u, int i) {
      const Stored stored = Element::narrow(reduction_.result(folded[u][i]));
      __builtin_memcpy(reinterpret_cast<std::byte*>(&now.units[u]) + i * sizeof(Stored), &stored,
                       sizeof(Stored));
    });
#pragma unroll 1
    for (std::uint32_t k = 0; k < operands_.outputs; ++k)
#pragma unroll
      for (int u = 0; u < kUnits; ++u)
        Access::store(operands_.out[k] + at + u * stride, now.units[u]);
  }

 private:
  struct Batch {
    Unit units[kUnits];
  };
  template <class Each>
  static __device__ void each(Each each) {
#pragma unroll
    for (int u = 0; u < kUnits; ++u)
#pragma unroll
      for (int i = 0; i < Access::kElements; ++i) each(u, i);
  }
  __device__ void load(Batch& batch, std::uint32_t k, std::uint64_t at,
                       std::uint64_t stride) const {
    const std::byte* const from = operands_.in[k] + at;
#pragma unroll
    for (int u = 0; u < kUnits; ++u) batch.units[u] = Access::load(from + u * stride);
  }
  static __device__ Work element(const Batch& batch, int u, int i) {
    Stored stored;
    __builtin_memcpy(&stored,
                     reinterpret_cast<const std::byte*>(&batch.units[u]) + i * sizeof(Stored),
                     sizeof(Stored));
    return Element::widen(stored);
  }

  const BlockOperands& operands_;
  const Reduction& reduction_;
};

/// Reduces with all threads of the block. There is no barrier in it.
template <class Element, class Reduction>
__device__ void reduce_pass(const BlockOperands& operands, std::uint64_t count,
                            const Reduction& reduction) {
  constexpr std::uint64_t kBytes = sizeof(typename Element::Stored);
  constexpr int kElements = Vectors<Element>::kElements;
  constexpr int kUnits = kElements >= 16 ? 2 : 4;
  const Parts parts = parts_of<kBytes>(operands, count);
  const std::uint64_t threads = all_threads(), first = parts.head * kBytes;
  std::uint64_t unit = own_thread();
  const Folder<Element, Reduction, Vectors<Element>, kUnits> several(operands, reduction);
#pragma unroll 1
  for (; unit + (kUnits - 1) * threads < parts.vectors; unit += kUnits * threads)
    several.run(first + unit * kVectorBytes, threads * kVectorBytes);
  const Folder<Element, Reduction, Vectors<Element>, 1> one(operands, reduction);
#pragma unroll 1
  for (; unit < parts.vectors; unit += threads) one.run(first + unit * kVectorBytes, 0);
  const Folder<Element, Reduction, Singles<Element>, 1> single(operands, reduction);
  const std::uint64_t between = parts.vectors * kElements;
#pragma unroll 1
  for (std::uint64_t i = own_thread(); i < count - between; i += threads)
    single.run((i < parts.head ? i : i + between) * kBytes, 0);
}

}  // namespace tutti::device
