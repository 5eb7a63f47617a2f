#include "common/prefetch.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <string_view>

namespace tutti {
namespace {

[[gnu::noinline]] void fetch(const void* line) { fetch_to_write(line); }

#if defined(__x86_64__)
// A compiler that is not told that the processor has prefetchw turns its builtin into another
// instruction, which fetches a shared copy. Apart from this test only the measured times would show
// it.
TEST(Prefetch, IsTheInstructionThatTakesALineFromItsOwners) {
  std::array<char, 64> code{};
  std::memcpy(code.data(), reinterpret_cast<const void*>(&fetch), code.size());
  EXPECT_NE(std::string_view(code.data(), code.size()).find("\x0f\x0d"), std::string_view::npos);
}
#endif

TEST(Prefetch, ReadsNothing) {
  fetch(nullptr);
  const char line = 'x';
  fetch(&line);
  EXPECT_EQ(line, 'x');
}

}  // namespace
}  // namespace tutti
