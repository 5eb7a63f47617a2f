// Stands in for libhwy on x86-64: the functions of it by which Highway's headers find out which
// instruction sets the processor has, so that nothing links the library.
//
// Highway 1.0 measures the resolution of the timer while its library is loaded, which takes 4 to 6
// ms of processor time in each process: a quarter of what a rank of 128 needs for its start.
#include "compute/targets.h"

#if defined(__x86_64__)
#include <hwy/base.h>
#include <hwy/targets.h>

#include <atomic>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

namespace hwy {
namespace {

// Both are masks of HWY_TARGETS.
std::atomic<std::int64_t> disabled{0};
std::atomic<std::int64_t> for_test{0};  // 0: those of this processor

// The sets for which Highway compiles kernels are groups. A processor has all of a group where it
// has what is asked here, which includes that the system saves the registers.
std::int64_t targets_of_processor() noexcept {
  std::int64_t targets = HWY_STATIC_TARGET | HWY_SCALAR | HWY_EMU128;
  __builtin_cpu_init();
  if (!__builtin_cpu_supports("ssse3")) return targets;
  targets |= HWY_SSSE3;
  if (!__builtin_cpu_supports("sse4.2") || !__builtin_cpu_supports("aes") ||
      !__builtin_cpu_supports("pclmul"))
    return targets;
  targets |= HWY_SSE4;
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") ||
      !__builtin_cpu_supports("bmi2"))
    return targets;
  targets |= HWY_AVX2;
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw"))
    targets |= HWY_AVX3;
  return targets;
}

}  // namespace

std::int64_t SupportedTargets() {
  const std::int64_t asked = for_test;
  const std::int64_t targets = (asked != 0 ? asked : targets_of_processor()) & ~disabled;
  return targets != 0 ? targets : HWY_STATIC_TARGET;
}

void DisableTargets(std::int64_t targets) {
  disabled = targets;
  GetChosenTarget().DeInit();
}

void SetSupportedTargetsForTest(std::int64_t targets) {
  for_test = targets;
  GetChosenTarget().DeInit();
}

ChosenTarget& GetChosenTarget() {
  static ChosenTarget chosen;
  return chosen;
}

// Assertions of Highway's headers call it, which debug builds have.
void Abort(const char* file, int line, const char* format, ...) {
  std::va_list arguments;
  va_start(arguments, format);
  std::fprintf(stderr, "%s:%d: ", file, line);
  std::vfprintf(stderr, format, arguments);
  std::fputc('\n', stderr);
  va_end(arguments);
  std::abort();
}

}  // namespace hwy
#endif
