// Copying bytes: what one input comes to, whatever the type and the reduction.
#include <cstring>

#include "compute/pass-inl.h"

#if defined(TUTTI_COMPUTE_COPY_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TUTTI_COMPUTE_COPY_INL_H_
#undef TUTTI_COMPUTE_COPY_INL_H_
#else
#define TUTTI_COMPUTE_COPY_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace tutti {
namespace HWY_NAMESPACE {

struct Copy {
  using Stored = std::uint8_t;

  explicit Copy(const CombineArgs&) {}
  template <class D, int kIn>
  HWY_INLINE auto combine(D d, const Inputs<Stored, kIn>& in, std::size_t i) const {
    return hn::LoadU(d, in[0] + i);
  }
};

// `args.count` is bytes. An output that is the input is left alone: others may be reading it.
inline void copy_bytes(const CombineArgs& args) {
  assert(args.inputs == 1 && args.outputs >= 1 && args.divide_by == 1);
  int aliases = 0;
  for (int k = 0; k < args.outputs; ++k) aliases += args.out[k] == args.in[0];
  if (aliases == 0) return Pass<Copy, 1, 0>::run(args);
  if (aliases == args.outputs) return;
  for (int k = 0; k < args.outputs; ++k) {
    if (args.out[k] == args.in[0]) continue;
    CombineArgs one = args;
    one.out = args.out + k;
    one.outputs = 1;
    one.stream_outputs = k < 64 ? args.stream_outputs >> k & 1 : 0;
    Pass<Copy, 1, 0>::run(one);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace tutti
HWY_AFTER_NAMESPACE();

#endif  // TUTTI_COMPUTE_COPY_INL_H_
