// Makes errors: a kind with its name, and a message whose control characters are escaped.
#include <tutti/error.hpp>

#include "common/text.h"

namespace tutti {

Error::Error(ErrorKind kind, const std::string& message)
    : std::runtime_error(escape_controls(message)), kind_(kind) {}

std::string_view to_string(ErrorKind kind) noexcept {
  switch (kind) {
    case ErrorKind::usage: return "usage";
    case ErrorKind::unavailable: return "unavailable";
    case ErrorKind::mismatch: return "mismatch";
    case ErrorKind::peer_lost: return "peer_lost";
    case ErrorKind::timeout: return "timeout";
    case ErrorKind::corrupt: return "corrupt";
    case ErrorKind::internal: return "internal";
  }
  return "unknown";
}

}  // namespace tutti
