#include <tutti/error.hpp>

namespace tutti {

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
