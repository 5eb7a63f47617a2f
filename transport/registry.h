// The list of transports, by name and in order of preference.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "transport/channel.h"
#include "transport/context.h"

namespace tutti {

struct TransportEntry {
  std::string_view name;
  bool across_machines;  ///< Reaches ranks of other machines.
  /// Why it cannot serve this communicator on this machine, and what would help; empty: it can.
  std::string (*why_not)(const TransportContext& context);
  std::unique_ptr<Transport> (*make)(const TransportContext& context);
};

/// All of them, the preferred first.
std::vector<TransportEntry> transports();

/// The transports that `names` lists (comma-separated, the preferred first; "auto": all). Throws
/// `usage` for an unknown name; the message lists the known ones.
std::vector<TransportEntry> parse_transports(std::string_view names);

/// Makes the first of `names` that can run; throws `unavailable` with each one's reason when none
/// can.
std::unique_ptr<Transport> make_transport(std::string_view names, const TransportContext& context);

/// The first of `names` that reaches other machines; empty: none does.
std::string_view across_machines(std::string_view names);

}  // namespace tutti
