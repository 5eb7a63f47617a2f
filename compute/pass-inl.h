// One pass over memory: folds n inputs, vector by vector in registers, and stores to m outputs.
#include <cassert>
#include <cstddef>
#include <cstdint>

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include "common/prefetch.h"
#include "compute/combine.h"

#if defined(TUTTI_COMPUTE_PASS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TUTTI_COMPUTE_PASS_INL_H_
#undef TUTTI_COMPUTE_PASS_INL_H_
#else
#define TUTTI_COMPUTE_PASS_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace tutti {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

inline constexpr std::size_t kLineBytes = 64;
// From this size on, the stores are aligned (after up to 15 single elements) and the loop is
// unrolled.
inline constexpr std::size_t kBulkBytes = 1024;
// Distance at which inputs are prefetched. Hardware prefetchers stop at page ends and do not reach
// across cores: all-reduces between two cores of Cascade Lake took 9.2 us without and 8.2 us with
// prefetching at 64 KiB, 207 us and 190 us at 1 MiB.
inline constexpr std::size_t kReadAheadBytes = 512;
// The same for outputs in no cache: 5.3 ms without and 4.6 ms with it at 16 MiB.
inline constexpr std::size_t kWriteAheadBytes = 1024;

// The buffers of a call. If their number is a constant (kCount > 0), they stay in registers.
template <class T, class Void, int kCount>
struct Buffers {
  Buffers(Void* const* pointers, int) {
    for (int k = 0; k < kCount; ++k) pointers_[k] = static_cast<T*>(pointers[k]);
  }
  HWY_INLINE int count() const { return kCount; }
  HWY_INLINE T* operator[](int k) const { return pointers_[k]; }

 private:
  T* pointers_[kCount];
};
template <class T, class Void>
struct Buffers<T, Void, 0> {
  Buffers(Void* const* pointers, int count) : pointers_(pointers), count_(count) {}
  HWY_INLINE int count() const { return count_; }
  HWY_INLINE T* operator[](int k) const { return static_cast<T*>(pointers_[k]); }

 private:
  Void* const* pointers_;
  int count_;
};
template <class T, int kCount>
using Inputs = Buffers<const T, const void, kCount>;
template <class T, int kCount>
using Outputs = Buffers<T, void, kCount>;

inline std::size_t misalignment(const void* pointer) {
  return reinterpret_cast<std::uintptr_t>(pointer) % kLineBytes;
}

// Returns the mask of outputs that can be streamed once the first of them, whose index is stored in
// `first`, is aligned: those asked for that are no inputs and have its offset in a cache line.
inline std::uint64_t streamable(const CombineArgs& args, std::size_t element_bytes, int& first) {
  std::uint64_t streamed = 0;
  for (int k = 0; k < args.outputs && k < 64; ++k) {
    bool can =
        (args.stream_outputs >> k & 1) != 0 && misalignment(args.out[k]) % element_bytes == 0;
    for (int j = 0; j < args.inputs; ++j) can = can && args.out[k] != args.in[j];
    if (!can) continue;
    if (streamed == 0) first = k;
    if (misalignment(args.out[k]) == misalignment(args.out[first]))
      streamed |= std::uint64_t{1} << k;
  }
  return streamed;
}

// `Reduction` (see reductions-inl.h) is small and passed by value; it computes the elements.
template <class Reduction, int kIn, int kOut>
class Pass {
 public:
  using T = typename Reduction::Stored;

  HWY_INLINE Pass(const CombineArgs& args, Reduction reduction)
      : reduction_(reduction), in_(args.in, args.inputs), out_(args.out, args.outputs) {}

  static HWY_INLINE void run(const CombineArgs& args, Reduction reduction) {
    if (args.count >= kBulkBytes / sizeof(T)) return bulk(args, reduction);
    range(args, reduction, 0, args.count);
  }
  // Like run(), with small calls inlined. Below 16 bytes taken branches (2 cycles each) dominate.
  static HWY_INLINE void run_inline(const CombineArgs& args, Reduction reduction) {
    constexpr std::size_t kFew = 16 / sizeof(T);
    if constexpr (kFew <= hn::MaxLanes(hn::ScalableTag<T>()))
      if (args.count < kFew) [[likely]]
        return Pass(args, reduction).template halves<kFew / 2>(0, args.count);
    run(args, reduction);
  }

 private:
  static HWY_NOINLINE void range(const CombineArgs& args, Reduction reduction, std::size_t begin,
                                 std::size_t end) {
    Pass(args, reduction).rest(begin, end);
  }
  // Folds whole vectors, then at most one vector of each smaller width: nothing beyond the end.
  HWY_INLINE void rest(std::size_t i, std::size_t end) const {
    const hn::ScalableTag<T> d;
    for (; end - i >= hn::Lanes(d); i += hn::Lanes(d)) step(d, i);
    halves<hn::MaxLanes(d) / 2>(i, end - i);
  }
  template <std::size_t kWidth>
  HWY_INLINE void halves(std::size_t i, std::size_t left) const {
    if constexpr (kWidth > 0) {
      if (left & kWidth) {
        step(hn::CappedTag<T, kWidth>(), i);
        i += kWidth;
      }
      halves<kWidth / 2>(i, left);
    }
  }
  template <class D>
  HWY_INLINE void step(D d, std::size_t i) const {
    const auto v = reduction_.combine(d, in_, i);
    for (int k = 0; k < out_.count(); ++k) {
      hn::StoreU(v, d, out_[k] + i);
      // Without this, GCC 12 makes scatters of single elements to many outputs, with checks.
      if constexpr (kOut == 0) __asm__ volatile("");
    }
  }

  static HWY_NOINLINE void bulk(const CombineArgs& args, Reduction reduction) {
    const Pass pass(args, reduction);
    int lead = 0;
    std::uint64_t streamed = 0;
    if constexpr (kOut == 0) streamed = streamable(args, sizeof(T), lead);
    const std::size_t off = misalignment(args.out[lead]);
    std::size_t i = off % sizeof(T) == 0 ? (kLineBytes - off) % kLineBytes / sizeof(T) : 0;
    range(args, reduction, 0, i);

    const hn::ScalableTag<T> d;
    const std::size_t lanes = hn::Lanes(d);
    for (; args.count - i >= 4 * lanes; i += 4 * lanes)
      pass.four_steps(d, lanes, i, streamed, args.fetch_outputs);
    if (streamed != 0) hwy::FlushStream();
    range(args, reduction, i, args.count);
  }
  static HWY_INLINE void fetch(const T* from, std::size_t bytes) {
    for (std::size_t line = 0; line < bytes; line += kLineBytes)
      __builtin_prefetch(reinterpret_cast<const char*>(from) + kReadAheadBytes + line);
  }
  static HWY_INLINE void fetch_for_results(T* to, std::size_t bytes) {
    for (std::size_t line = 0; line < bytes; line += kLineBytes)
      fetch_to_write(reinterpret_cast<const char*>(to) + kWriteAheadBytes + line);
  }
  // Writes four vectors to one output before the next, so that whole lines leave the write buffers.
  template <class D>
  HWY_INLINE void four_steps(D d, std::size_t lanes, std::size_t i, std::uint64_t streamed,
                             std::uint64_t fetched) const {
    const std::size_t bytes = 4 * lanes * sizeof(T);
    for (int k = 0; k < in_.count(); ++k) fetch(in_[k] + i, bytes);
    if (fetched != 0)
      for (int k = 0; k < out_.count(); ++k)
        if (k < 64 && (fetched >> k & 1) != 0) fetch_for_results(out_[k] + i, bytes);
    const auto v0 = reduction_.combine(d, in_, i);
    const auto v1 = reduction_.combine(d, in_, i + lanes);
    const auto v2 = reduction_.combine(d, in_, i + 2 * lanes);
    const auto v3 = reduction_.combine(d, in_, i + 3 * lanes);
    for (int k = 0; k < out_.count(); ++k) {
      T* const to = out_[k] + i;
      if (kOut == 0 && k < 64 && (streamed >> k & 1) != 0) {
        hn::Stream(v0, d, to);
        hn::Stream(v1, d, to + lanes);
        hn::Stream(v2, d, to + 2 * lanes);
        hn::Stream(v3, d, to + 3 * lanes);
      } else {
        hn::StoreU(v0, d, to);
        hn::StoreU(v1, d, to + lanes);
        hn::StoreU(v2, d, to + 2 * lanes);
        hn::StoreU(v3, d, to + 3 * lanes);
      }
    }
  }

  Reduction reduction_;
  Inputs<T, kIn> in_;
  Outputs<T, kOut> out_;
};

}  // namespace HWY_NAMESPACE
}  // namespace tutti
HWY_AFTER_NAMESPACE();

#endif  // TUTTI_COMPUTE_PASS_INL_H_
