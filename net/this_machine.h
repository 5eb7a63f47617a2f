// Which addresses are this machine's own.
#pragma once

#include <string>

namespace tutti::net {

/// Whether `address` is reached from this machine alone.
bool is_loopback(const std::string& address);

/// Whether `address` (a host name or a numeric address) is this machine. Asks no name server, which
/// could take minutes.
bool is_this_machine(const std::string& address);

}  // namespace tutti::net
