#include "runtime/engine/device/kernels.h"

#ifdef TUTTI_HAS_KERNELS
extern "C" {
// kernels_code.S defines them.
extern const std::byte tutti_kernels_begin[];
extern const std::byte tutti_kernels_end[];
}
#endif

namespace tutti::device {

std::span<const std::byte> kernels() noexcept {
#ifdef TUTTI_HAS_KERNELS
  return {tutti_kernels_begin, tutti_kernels_end};
#else
  return {};
#endif
}

}  // namespace tutti::device
