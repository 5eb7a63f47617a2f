// Prefetches cache lines that will be written.
#pragma once

namespace tutti {

/// Prefetches the cache line of `p` in the exclusive state, so that a store to it need not wait
/// until other cores have given it up. `p` may be any address: nothing is read.
inline void fetch_to_write(const void* p) noexcept {
#if defined(__x86_64__)
  // Without -mprfchw, __builtin_prefetch(p, 1) is prefetcht0, which fetches a shared copy of the
  // line. A processor without prefetchw ignores the instruction.
  __asm__ volatile("prefetchw %0" : : "m"(*static_cast<const char*>(p)));
#else
  __builtin_prefetch(p, 1);
#endif
}

}  // namespace tutti
