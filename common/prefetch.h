// Cache lines that will be written, fetched ahead.
#pragma once

namespace tutti {

/// Fetches the line of `p` as its only owner, so that a store to it need not wait for those that
/// hold it. Any address: nothing is read.
inline void fetch_to_write(const void* p) noexcept {
#if defined(__x86_64__)
  // __builtin_prefetch(p, 1) without -mprfchw is prefetcht0: a copy of the line, shared with
  // others. Where a processor has no prefetchw it does nothing.
  __asm__ volatile("prefetchw %0" : : "m"(*static_cast<const char*>(p)));
#else
  __builtin_prefetch(p, 1);
#endif
}

}  // namespace tutti
