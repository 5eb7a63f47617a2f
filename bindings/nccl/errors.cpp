#include "bindings/nccl/errors.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <mutex>

#include "bindings/nccl/process.h"

namespace tutti::nccl {
namespace {

using Text = std::array<char, 2048>;

// C has no exception that carries the text of an error, so it is kept for each thread, as errno is.
Text& last_error() noexcept {
  thread_local Text text{};
  return text;
}

// NCCL keeps one text for the process, and frameworks ask for it in another thread than that of the
// call.
struct Latest {
  Text text{};
};

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
  auto& latest = of_process<Latest>();
  const std::lock_guard lock(latest.mutex);
  latest.value.text = text;
}

const char* remembered() noexcept {
  Text& text = last_error();
  if (text[0] == '\0') {
    auto& latest = of_process<Latest>();
    const std::lock_guard lock(latest.mutex);
    text = latest.value.text;
  }
  return text.data();
}

}  // namespace tutti::nccl
