// The job's secret, which its processes share and nobody else knows. Authentication and encryption
// are based on it.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include <tutti/config.hpp>

#include "common/random.h"

struct stat;

namespace tutti {

/// The least length of a secret in bytes. A shorter one could be guessed from the data that goes
/// over the network.
inline constexpr std::size_t kLeastSecretBytes = 16;

/// A secret, or none. It has a type of its own, so that no log line, error or table of settings can
/// treat it as text.
class Secret {
 public:
  Secret() = default;  ///< No secret.
  explicit Secret(std::string bytes) : bytes_(std::move(bytes)) {}

  explicit operator bool() const noexcept { return !bytes_.empty(); }
  /// Returns the secret for use as the key of a cryptographic function, and for nothing else.
  std::string_view bytes() const noexcept { return bytes_; }

 private:
  std::string bytes_;
};

/// The hint in the errors of a rank that has no secret.
inline constexpr std::string_view kHowToMakeSecret =
    "Make one (openssl rand -hex 32 > FILE; chmod 600 FILE) and give all ranks "
    "TUTTI_SECRET_FILE=FILE, or TUTTI_SECRET";
/// Throws `usage`, saying that rank `rank` is to encrypt and has no secret.
[[noreturn]] void refuse_tls_without_secret(int rank);

/// Returns 256 random bits as 64 hexadecimal digits.
Secret make_secret(Random& random);

/// Returns why a file with this status is no place for a secret, and what to do about it, or an
/// empty text if it is one: a file of this process's user that nobody else may access, or a file of
/// root's that nobody but root and perhaps one group may read, as Kubernetes mounts secrets.
std::string why_not_private(const struct stat& info);

/// Returns TUTTI_SECRET, or else the contents of TUTTI_SECRET_FILE (without a newline at the end),
/// or else no secret. Throws `usage` if the secret is too short, or if the file cannot be read or
/// is no place for a secret.
Secret configured_secret(const Config& config);

}  // namespace tutti
