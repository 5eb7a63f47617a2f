// combine_copy: copies bytes.
#include <cstring>
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compute/copy.cpp"
#include "compute/targets.h"
// The order matters: this one includes the present file once for each instruction set.
#include <hwy/foreach_target.h>

#include "compute/copy-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tutti {
namespace HWY_NAMESPACE {

void copy_bytes(const CombineArgs& args) { copy<std::uint8_t>(args); }

}  // namespace HWY_NAMESPACE
}  // namespace tutti
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tutti {

HWY_EXPORT(copy_bytes);
void combine_copy(const CombineArgs& args) {
  // The C library's memcpy starts faster, and is slower from some kibibytes on: 3.0 us against 1.7
  // us for 64 KiB, for which glibc 2.36 uses `rep movsb`.
  if (args.inputs == 1 && args.outputs == 1 && args.count < 1024) {
    if (args.out[0] != args.in[0] && args.count > 0)
      std::memcpy(args.out[0], args.in[0], args.count);
    return;
  }
  HWY_DYNAMIC_DISPATCH(copy_bytes)(args);
}

}  // namespace tutti
#endif
