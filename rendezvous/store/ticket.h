// A ticket tells a process how to reach a store that another one serves (tutti/store.hpp).
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/secret.h"

namespace tutti::rendezvous {

/// Holds the contents of a ticket. Its bytes are: a format number, flags, the socket's number (8
/// bytes), the secret (16), the port (2), and addresses, each of which is preceded by its length (4
/// or 16).
struct Ticket {
  std::uint64_t server = 0;  ///< The number of the Unix socket, JobAddress::server.
  Secret secret;             ///< Of 16 bytes.
  bool tls = false;
  int port = 0;
  /// Numeric. The first is tried first. Empty if the server listens at its Unix socket alone, where
  /// the port of a ticket that comes first is but a part of the name that users gave it.
  std::vector<std::string> addresses = {};
  bool comes_first = false;  ///< It may exist before the server, see ticket_at().
};

/// Leaves out the last addresses if they do not fit into kMaxTicketBytes, and those that are valid
/// on one link alone.
std::string encode(const Ticket& ticket);

/// Returns none for bytes that encode() does not write.
std::optional<Ticket> decode_ticket(std::string_view bytes);

}  // namespace tutti::rendezvous
