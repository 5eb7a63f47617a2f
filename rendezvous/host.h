// Where a rank runs, among the machines of a job.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "common/cpus.h"

namespace tutti {

/// The name that the kernel gave this machine when it last started; empty where it is not known.
const std::string& boot_id();

/// This machine since its last start, as the kernel numbers it, and the network namespace: the
/// names of Unix sockets do not reach beyond it.
std::string host_identity();

/// Of a host_identity(): the machine whose cores it has. Containers may share one.
std::string_view machine_of(std::string_view host);

struct Location {
  std::string host;  ///< host_identity().
  Cpus cpus;         ///< That the process may run on.

  bool operator==(const Location&) const = default;
};
std::string to_text(const Location& location);
/// None for anything that to_text() did not write.
std::optional<Location> parse_location(std::string_view text);

}  // namespace tutti
