// Copying, which is what every reduction does with a single input.
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

template <class T>
struct Copy {
  using Stored = T;
  template <class D, int kIn>
  HWY_INLINE auto combine(D d, const Inputs<T, kIn>& in, std::size_t i) const {
    return hn::LoadU(d, in[0] + i);
  }
};

// Some outputs are the input itself. These are left alone, since other threads may be reading them;
// the others are written one after the other.
template <class T>
HWY_NOINLINE void copy_in_place(const CombineArgs& args) {
  for (int k = 0; k < args.outputs; ++k) {
    if (args.out[k] == args.in[0]) continue;
    CombineArgs one = args;
    one.out = args.out + k;
    one.outputs = 1;
    one.stream_outputs = k < 64 ? args.stream_outputs >> k & 1 : 0;
    one.fetch_outputs = k < 64 ? args.fetch_outputs >> k & 1 : 0;
    Pass<Copy<T>, 1, 0>::run(one, {});
  }
}

template <class T>
void copy(const CombineArgs& args) {
  assert(args.inputs == 1 && args.outputs >= 1 && args.divide_by == 1);
  for (int k = 0; k < args.outputs; ++k)
    if (args.out[k] == args.in[0]) return copy_in_place<T>(args);
  if (args.outputs == 1 && args.stream_outputs == 0)
    return Pass<Copy<T>, 1, 1>::run_inline(args, {});
  Pass<Copy<T>, 1, 0>::run(args, {});
}

}  // namespace HWY_NAMESPACE
}  // namespace tutti
HWY_AFTER_NAMESPACE();

#endif  // TUTTI_COMPUTE_COPY_INL_H_
