// tutti: the one exception type. Its kinds say what the caller can do.
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>

#include <tutti/export.hpp>

namespace tutti {

/// The kind of an error says what the caller can do about it. Append only: values are part of the
/// ABI.
enum class ErrorKind {
  usage = 1,  ///< The call itself is wrong: correct it. Nothing has happened, and the communicator
              ///< can still be used.
  unavailable = 2,  ///< This machine or build cannot do it: pick another transport, device or size.
  mismatch = 3,     ///< Ranks called different things, or are set up differently.
  peer_lost = 4,    ///< A peer's process has ended or its connection broke: shrink or restart.
  timeout = 5,      ///< The deadline passed: raise the limit or find the straggler.
  corrupt = 6,      ///< Data arrived damaged: do not trust the result.
  internal = 7,     ///< A bug of tutti: please report it.
};

/// Returns the kind's name as written above, for example "peer_lost".
static_assert(static_cast<int>(ErrorKind::internal) == 7, "status pages and the C ABI carry it");

TUTTI_API std::string_view to_string(ErrorKind kind) noexcept;

/// Every error that tutti throws. The message names the rank, the peer, the operation and its
/// number if there is one, what was expected, what was found, and what to do.
class TUTTI_API Error : public std::runtime_error {
 public:
  /// Control characters in `message` are escaped, since parts of it may come from other processes.
  Error(ErrorKind kind, const std::string& message);

  ErrorKind kind() const noexcept { return kind_; }

 private:
  ErrorKind kind_;
};

}  // namespace tutti
