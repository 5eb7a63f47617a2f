// bf16, computed in f32.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compute/bfloat16.cpp"
#include "compute/targets.h"
// The order matters: this one includes the present file once for each instruction set.
#include <hwy/foreach_target.h>

#include "compute/reductions-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tutti {
namespace HWY_NAMESPACE {

OpKernels bf16_kernels() {
  using SumOf = Bfloat16<Sum>;
  return {kernel<SumOf>, kernel<Bfloat16<Prod>>, kernel<Bfloat16<FloatMin>>,
          kernel<Bfloat16<FloatMax>>, average<SumOf, Bfloat16<FloatAvg<float>>>};
}

}  // namespace HWY_NAMESPACE
}  // namespace tutti
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tutti {

HWY_EXPORT(bf16_kernels);
OpKernels bf16_kernels() { return HWY_DYNAMIC_DISPATCH(bf16_kernels)(); }

}  // namespace tutti
#endif
