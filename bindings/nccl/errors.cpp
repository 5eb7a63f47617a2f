#include "bindings/nccl/errors.h"

#include <algorithm>
#include <array>
#include <mutex>
#include <string_view>

#include "bindings/nccl/process.h"
#include "bindings/nccl/settings.h"

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

constexpr std::string_view kLettersOfNames = "ABCDEFGHIJKLMNOPQRSTUVWXYZ_";
constexpr std::string_view kSetBy = " (set by ";  // It stands between tutti's name and NCCL's.

/// Writes to a text, and leaves out what there is no room for.
class Cut {
 public:
  explicit Cut(Text& text) : text_(text) {}
  void append(std::string_view part) noexcept {
    const std::size_t length = std::min(part.size(), text_.size() - 1 - used_);
    std::copy_n(part.data(), length, text_.data() + used_);
    used_ += length;
  }

 private:
  Text& text_;
  std::size_t used_ = 0;
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
  Text text{};
  Cut cut(text);
  for (std::string_view rest(message); !rest.empty();) {
    const std::size_t at = std::min(rest.find("TUTTI_"), rest.size());
    cut.append(rest.substr(0, at));
    rest.remove_prefix(at);
    const std::size_t end = std::min(rest.find_first_not_of(kLettersOfNames), rest.size());
    const std::string_view setting = rest.substr(0, end);
    cut.append(setting);
    rest.remove_prefix(end);
    const char* const name = rest.starts_with(kSetBy) ? nullptr : standing_for(setting);
    if (name == nullptr) continue;
    cut.append(kSetBy);
    cut.append(name);
    cut.append(")");
  }
  last_error() = text;
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
