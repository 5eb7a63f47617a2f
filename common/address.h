// Host and port in the notation that people use.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tutti {

struct SocketAddress {
  std::string host;  ///< A name or a numeric address, without brackets.
  int port = 0;

  bool operator==(const SocketAddress&) const = default;
};

/// Parses addresses such as "node7:29500", "10.0.0.1:29500" or "[fe80::1%eth0]:29500". Returns none
/// for anything else.
std::optional<SocketAddress> parse_socket_address(std::string_view text);

std::string to_text(const SocketAddress& address);

/// Returns the lines of `text` that are addresses, and ignores the others.
std::vector<SocketAddress> parse_socket_addresses(std::string_view text);

}  // namespace tutti
