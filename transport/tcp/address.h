// Where a rank's data connections come in, as text for the store.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/address.h"
#include "common/secret.h"

namespace tutti::tcp {

struct Address {
  std::uint64_t identity = 0;  ///< Random: tells this process from whoever has its port next.
  std::string host;            ///< host_identity().
  /// Made by a rank that was given none: for jobs whose store is closed to strangers. May be none.
  Secret secret;
  std::vector<SocketAddress> places;  ///< In order of preference; loopback last.

  std::string to_string() const;
  /// None for anything that to_string() did not write.
  static std::optional<Address> parse(std::string_view text);
};

/// Leaves of `peer`'s places those that a rank on machine `host` can mean by them, the best first:
/// loopback is the own machine's.
void reach_from(std::string_view host, Address& peer);

/// More are not offered: an address is at most 4 KiB.
inline constexpr std::size_t kMostPlaces = 32;

/// This machine's numeric addresses on the interfaces that `pattern` allows (TUTTI_INTERFACES), in
/// order of preference: bridges of containers behind the rest, loopback last and, by "auto", also
/// there where others exist (for ranks of one machine).
std::vector<std::string> own_hosts(std::string_view pattern);

/// Whether `pattern` ("auto", "eth0,ib", "^docker,lo") allows the interface.
bool allows(std::string_view pattern, std::string_view interface);

}  // namespace tutti::tcp
