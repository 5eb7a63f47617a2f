#include "bindings/c/guarded.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <cstring>

namespace tutti::c {
namespace {

// The buffer has a fixed length, so that keeping a message can neither fail nor leave anything to
// free.
constexpr std::size_t kLongestMessage = 2047;
thread_local char last_error[kLongestMessage + 1];

}  // namespace

void remember(const char* message) noexcept {
  assert(message != nullptr);
  const std::size_t bytes = std::min(std::strlen(message), kLongestMessage);
  std::memmove(last_error, message, bytes);
  last_error[bytes] = '\0';
}

const char* remembered() noexcept { return last_error; }

std::string text_of(tuttiResult_t result) {
  const int code = static_cast<int>(result);
  return code >= tuttiSuccess && code <= tuttiErrorInternal
             ? fmt::format("{} ({})", code, tuttiGetErrorString(result))
             : fmt::format("{}, which is no tuttiResult_t", code);
}

}  // namespace tutti::c
