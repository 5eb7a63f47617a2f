// Compares the instruction sets that compute/supported_targets.cpp finds with those that Highway's
// own library finds.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <fstream>
#include <string>

#include "compute/targets.h"

#include <hwy/highway.h>

namespace tutti {
namespace {

// The sets for which kernels are compiled.
constexpr std::int64_t kCompiled = HWY_TARGETS;

TEST(SupportedTargets, AreThoseThatTheLibraryOfHighwayFinds) {
  void* const library = dlopen("libhwy.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) GTEST_SKIP() << "libhwy.so.1 is not installed: " << dlerror();
  const auto theirs =
      reinterpret_cast<std::int64_t (*)()>(dlsym(library, "_ZN3hwy16SupportedTargetsEv"));
  ASSERT_NE(theirs, nullptr);
  const std::int64_t compiled = kCompiled & ~HWY_STATIC_TARGET;
  EXPECT_EQ(hwy::SupportedTargets() & compiled, theirs() & compiled);
  dlclose(library);
}

TEST(SupportedTargets, AreOneAtLeastWhateverIsDisabled) {
  hwy::DisableTargets(-1);
  EXPECT_EQ(hwy::SupportedTargets(), HWY_STATIC_TARGET);
  hwy::DisableTargets(0);
  EXPECT_NE(hwy::SupportedTargets(), 0);
}

#if defined(__x86_64__)
TEST(SupportedTargets, NeedNoLibraryOfHighway) {
  std::ifstream maps("/proc/self/maps");
  const std::string all{std::istreambuf_iterator<char>(maps), {}};
  EXPECT_NE(all.find("libstdc++"), std::string::npos);
  EXPECT_EQ(all.find("libhwy.so"), std::string::npos);
}
#endif

}  // namespace
}  // namespace tutti
