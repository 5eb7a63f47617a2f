#include "bindings/nccl/errors.h"

#include <algorithm>
#include <array>
#include <cstring>

namespace tutti::nccl {
namespace {

// C has no exception that carries the text of an error, so it is kept for each thread, as errno is.
std::array<char, 2048>& last_error() noexcept {
  thread_local std::array<char, 2048> text{};
  return text;
}

}  // namespace

void require(bool condition, const char* message) {
  if (!condition) throw Failure(ncclInvalidArgument, message);
}

ncclResult_t result_of(ErrorKind kind) noexcept {
  switch (kind) {
    case ErrorKind::usage:
    case ErrorKind::mismatch: return ncclInvalidUsage;
    case ErrorKind::unavailable: return ncclSystemError;
    case ErrorKind::peer_lost:
    case ErrorKind::timeout: return ncclRemoteError;
    case ErrorKind::corrupt:
    case ErrorKind::internal: break;
  }
  return ncclInternalError;
}

void remember(const char* message) noexcept {
  auto& text = last_error();
  const std::size_t length = std::min(std::strlen(message), text.size() - 1);
  std::memmove(text.data(), message, length);
  text[length] = '\0';
}

const char* remembered() noexcept { return last_error().data(); }

}  // namespace tutti::nccl
