// Kernels of f32 and f64, and of complex64 and complex128, whose sums are the sums of their parts.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compute/float.cpp"
#include "compute/targets.h"
// The order matters: this one includes the present file once for each instruction set.
#include <hwy/foreach_target.h>

#include "compute/reductions-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tutti {
namespace HWY_NAMESPACE {

namespace {

// The maximum is computed as the negated minimum of the negated operands.
template <class T, bool kMax>
void least_or_greatest(const CombineArgs& args) {
  reduce_direct<T>(args, Least<T>{{kMax ? T{-0.0} : T{0.0}}});
}

// A division by one is left out: most steps of an average only add.
template <class T>
void average(const CombineArgs& args) {
  assert(args.divide_by >= 1);
  if (args.divide_by == 1) return sum_kernel<Direct<T, Sum>>(args);
  using Avg = FloatAvg<T>;
  reduce(args, Direct<T, Avg>{Avg{{}, static_cast<T>(args.divide_by)}});
}

template <class T, CombineFunction kOfParts>
void parts(const CombineArgs& args) {
  CombineArgs all = args;
  all.count *= 2;
  kOfParts(all);
}

template <class T>
OpKernels real_kernels() {
  return {sum_kernel<Direct<T, Sum>>, kernel<T, Prod>, least_or_greatest<T, false>,
          least_or_greatest<T, true>, average<T>};
}
template <class T>
OpKernels complex_kernels() {
  return {parts<T, sum_kernel<Direct<T, Sum>>>, complex_product<T>, nullptr, nullptr,
          parts<T, average<T>>};
}

}  // namespace

OpKernels float_kernels(DataType type) {
  switch (type) {
    case DataType::f32: return real_kernels<float>();
    case DataType::f64: return real_kernels<double>();
    case DataType::complex64: return complex_kernels<float>();
    case DataType::complex128: return complex_kernels<double>();
    default: return {};
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace tutti
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tutti {

HWY_EXPORT(float_kernels);
OpKernels float_kernels(DataType type) { return HWY_DYNAMIC_DISPATCH(float_kernels)(type); }

}  // namespace tutti
#endif
