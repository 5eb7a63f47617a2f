// The machine and the CPUs on which a rank runs.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "common/cpus.h"

namespace tutti {

/// The kernel's boot ID, which changes with each start of the machine; empty if it is not known.
const std::string& boot_id();

/// Identifies this machine and network namespace as "<boot ID>/<namespace>", or by the host name if
/// there is no /proc. The network namespace is part of it because abstract Unix socket names are
/// not visible outside of it.
std::string host_identity();

/// The part of a host_identity() that identifies the machine. Containers may share a machine.
std::string_view machine_of(std::string_view host);

/// Where a rank runs.
struct Location {
  std::string host;  ///< host_identity().
  Cpus cpus;         ///< The CPUs on which the process may run.
  int place = 0;     ///< As PlanRequest::places.

  bool operator==(const Location&) const = default;
};
std::string to_text(const Location& location);
/// Parses what to_text() wrote; returns none for any other text.
std::optional<Location> parse_location(std::string_view text);

}  // namespace tutti
