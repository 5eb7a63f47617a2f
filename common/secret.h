// What the processes of a job know and nobody else.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include <tutti/config.hpp>

#include "common/random.h"

namespace tutti {

/// Fewer could be guessed from what goes over the network.
inline constexpr std::size_t kLeastSecretBytes = 16;

/// A type of its own, so that no log line, error or table of settings takes it for text.
class Secret {
 public:
  Secret() = default;  ///< None.
  explicit Secret(std::string bytes) : bytes_(std::move(bytes)) {}

  explicit operator bool() const noexcept { return !bytes_.empty(); }
  /// For a key of a cryptographic function; nowhere else.
  std::string_view bytes() const noexcept { return bytes_; }

 private:
  std::string bytes_;
};

/// What errors tell who has none.
inline constexpr std::string_view kHowToMakeSecret =
    "Make one (openssl rand -hex 32 > FILE; chmod 600 FILE) and give all ranks "
    "TUTTI_SECRET_FILE=FILE, or TUTTI_SECRET";
/// Throws `usage`: rank `rank` is to encrypt and has none.
[[noreturn]] void refuse_tls_without_secret(int rank);

/// 256 random bits, as 64 letters and digits.
Secret make_secret(Random& random);

/// TUTTI_SECRET, else what stands in TUTTI_SECRET_FILE (less a newline at its end), else none.
/// Throws `usage` for a secret that is too short, and for a file that cannot be read or that others
/// can read.
Secret configured_secret(const Config& config);

}  // namespace tutti
