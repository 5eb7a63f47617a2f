// The address at which a rank accepts data connections, as text for the store.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/address.h"
#include "common/secret.h"

namespace tutti::mesh {

struct Address {
  /// A random number that distinguishes this process from a later one with the same port.
  std::uint64_t identity = 0;
  std::string host;  ///< The machine's host_identity().
  /// A secret that a rank without one has made, for jobs whose store only members of the job can
  /// read. May be empty.
  Secret secret;
  std::vector<SocketAddress> places;  ///< The addresses, in order of preference; loopback is last.

  std::string to_string() const;
  /// Returns none for any text that to_string() did not write.
  static std::optional<Address> parse(std::string_view text);
};

/// Keeps only those of `peer`'s places that a rank on machine `host` can reach, the best first:
/// loopback addresses come first for a peer on the same machine, and are removed for any other.
void reach_from(std::string_view host, Address& peer);

/// The most places that a rank offers, since an address is at most 4 KiB.
inline constexpr std::size_t kMostPlaces = 32;

/// Returns this machine's numeric addresses on the interfaces that `pattern` (TUTTI_INTERFACES)
/// allows, in order of preference. Bridges of containers come after the rest, and loopback is last.
/// With "auto", loopback is included even where other interfaces exist, for ranks of one machine.
/// Throws `unavailable` if the kernel does not list them.
std::vector<std::string> own_hosts(std::string_view pattern);

/// Whether `pattern` ("auto", "eth0,ib", "^docker,lo") allows the interface.
bool allows(std::string_view pattern, std::string_view interface);

}  // namespace tutti::mesh
