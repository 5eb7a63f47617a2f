// f32 and f64.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compute/float.cpp"
#include "compute/targets.h"
// The order matters: this one includes the present file once for each instruction set.
#include <hwy/foreach_target.h>

#include "compute/reductions-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tutti {
namespace HWY_NAMESPACE {

template <class T>
OpKernels float_kernels() {
  using SumOf = Direct<T, Sum>;
  return {kernel<SumOf>, kernel<Direct<T, Prod>>, kernel<Direct<T, FloatMin>>,
          kernel<Direct<T, FloatMax>>, average<SumOf, Direct<T, FloatAvg<T>>>};
}
OpKernels f32_kernels() { return float_kernels<float>(); }
OpKernels f64_kernels() { return float_kernels<double>(); }

}  // namespace HWY_NAMESPACE
}  // namespace tutti
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tutti {

HWY_EXPORT(f32_kernels);
HWY_EXPORT(f64_kernels);
OpKernels f32_kernels() { return HWY_DYNAMIC_DISPATCH(f32_kernels)(); }
OpKernels f64_kernels() { return HWY_DYNAMIC_DISPATCH(f64_kernels)(); }

}  // namespace tutti
#endif
