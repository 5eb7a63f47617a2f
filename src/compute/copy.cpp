// combine_copy: bytes.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compute/copy.cpp"
#include "compute/targets.h"
// The order matters: this one includes the present file once for each instruction set.
#include <hwy/foreach_target.h>

#include "compute/copy-inl.h"

#if HWY_ONCE
namespace tutti {

HWY_EXPORT(copy_bytes);
void combine_copy(const CombineArgs& args) { HWY_DYNAMIC_DISPATCH(copy_bytes)(args); }

}  // namespace tutti
#endif
