// Whether an address belongs to this machine.
#pragma once

#include <string>

namespace tutti::net {

/// Whether `address` is a loopback address, which only processes of this machine can reach.
bool is_loopback(const std::string& address);

/// Whether `address` (a host name or a numeric address) is this machine. It does not ask a name
/// server, which could take minutes.
bool is_this_machine(const std::string& address);

}  // namespace tutti::net
