// Kernels of 16- and 8-bit floats: their sums, and the conversions with which blocks.cpp computes
// all other reductions in f32.
#include <cstring>
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compute/narrow.cpp"
#include "compute/targets.h"
// The order matters: this one includes the present file once for each instruction set.
#include <hwy/foreach_target.h>

#include "compute/narrow-sums-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tutti {
namespace HWY_NAMESPACE {

namespace {

using F32 = hn::ScalableTag<float>;
template <class Format>
using StoredTag = hn::Rebind<typename Format::Stored, F32>;

template <class Format>
void widen(const void* from, float* to, std::size_t count) {
  using T = typename Format::Stored;
  const F32 df;
  const StoredTag<Format> d;
  const T* const elements = static_cast<const T*>(from);
  std::size_t i = 0;
  for (; count - i >= hn::Lanes(df); i += hn::Lanes(df))
    hn::StoreU(Format::widen(df, hn::LoadU(d, elements + i)), df, to + i);
  if (i == count) return;
  HWY_ALIGN T last[hn::MaxLanes(df)] = {};
  std::memcpy(last, elements + i, (count - i) * sizeof(T));
  hn::StoreU(Format::widen(df, hn::Load(d, last)), df, to + i);
}

template <class Format>
void narrow(const float* from, void* to, std::size_t count) {
  using T = typename Format::Stored;
  const F32 df;
  const StoredTag<Format> d;
  T* const elements = static_cast<T*>(to);
  std::size_t i = 0;
  for (; count - i >= hn::Lanes(df); i += hn::Lanes(df))
    hn::StoreU(Format::narrow(hn::LoadU(df, from + i)), d, elements + i);
  if (i == count) return;
  HWY_ALIGN float wide[hn::MaxLanes(df)] = {};
  HWY_ALIGN T last[hn::MaxLanes(df)];
  std::memcpy(wide, from + i, (count - i) * sizeof(float));
  hn::Store(Format::narrow(hn::Load(df, wide)), d, last);
  std::memcpy(elements + i, last, (count - i) * sizeof(T));
}

template <class Reduction>
void kernel_of(const CombineArgs& args) {
  assert(args.divide_by == 1);
  if (args.inputs == 1) return copy_elements(args, sizeof(typename Reduction::Stored));
  reduce(args, Reduction());
}

}  // namespace

OpKernels narrow_kernels(DataType type) {
  switch (type) {
    case DataType::f16: return {sum_kernel<Narrow<Float16, Sum>>};
    case DataType::bf16: return {sum_kernel<SumBfloat16>};
    case DataType::f8e4m3: return {kernel_of<Sum8<E4M3>>};
    case DataType::f8e5m2: return {kernel_of<Sum8<E5M2>>};
    default: return {};
  }
}

Conversion conversion_of(DataType type) {
  switch (type) {
    case DataType::f16: return {widen<Float16>, narrow<Float16>};
    case DataType::bf16: return {widen<Bfloat16>, narrow<Bfloat16>};
    case DataType::f8e4m3: return {widen<Float8E4M3>, narrow<Float8E4M3>};
    case DataType::f8e5m2: return {widen<Float8E5M2>, narrow<Float8E5M2>};
    default: return {};
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace tutti
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tutti {

HWY_EXPORT(narrow_kernels);
HWY_EXPORT(conversion_of);
OpKernels narrow_kernels(DataType type) { return HWY_DYNAMIC_DISPATCH(narrow_kernels)(type); }
Conversion conversion_of(DataType type) { return HWY_DYNAMIC_DISPATCH(conversion_of)(type); }

}  // namespace tutti
#endif
