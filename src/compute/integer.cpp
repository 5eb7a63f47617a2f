// int32 and int64. Sums and products wrap, so they are computed without a sign.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compute/integer.cpp"
#include "compute/targets.h"
// The order matters: this one includes the present file once for each instruction set.
#include <hwy/foreach_target.h>

#include "compute/reductions-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tutti {
namespace HWY_NAMESPACE {

template <class T, class Divisor>
OpKernels integer_kernels() {
  using Unsigned = std::make_unsigned_t<T>;
  using SumOf = Direct<Unsigned, Sum>;
  return {kernel<SumOf>, kernel<Direct<Unsigned, Prod>>, kernel<Direct<T, IntegerMin>>,
          kernel<Direct<T, IntegerMax>>, average<SumOf, Direct<Unsigned, IntegerAvg<Divisor>>>};
}
OpKernels int32_kernels() { return integer_kernels<std::int32_t, Int32Divisor>(); }
OpKernels int64_kernels() { return integer_kernels<std::int64_t, Int64Divisor>(); }

}  // namespace HWY_NAMESPACE
}  // namespace tutti
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tutti {

HWY_EXPORT(int32_kernels);
HWY_EXPORT(int64_kernels);
OpKernels int32_kernels() { return HWY_DYNAMIC_DISPATCH(int32_kernels)(); }
OpKernels int64_kernels() { return HWY_DYNAMIC_DISPATCH(int64_kernels)(); }

}  // namespace tutti
#endif
