#include "transport/registry.h"

#include <fmt/format.h>

#include <algorithm>

#include <tutti/error.hpp>

#include "common/text.h"
#include "transport/local/local.h"
#include "transport/shm/shm.h"
#include "transport/tcp/tcp.h"

namespace tutti {
namespace {

TransportEntry find(std::string_view name) {
  std::string known = "auto";
  for (const TransportEntry& entry : transports()) {
    if (entry.name == name) return entry;
    known.append(", ").append(entry.name);
  }
  throw Error(ErrorKind::usage,
              fmt::format("TUTTI_TRANSPORTS names the transport '{}', which this build does not "
                          "have; it knows: {}",
                          name, known));
}

}  // namespace

std::vector<TransportEntry> transports() {
  return {
      {"local", false, local::why_not, local::make},
      {"shm", false, shm::why_not, shm::make},
      {"tcp", true, tcp::why_not, tcp::make},
  };
}

std::vector<TransportEntry> parse_transports(std::string_view names) {
  if (names == "auto") return transports();
  std::vector<TransportEntry> chosen;
  for (const std::string_view name : split(names, ',')) chosen.push_back(find(name));
  return chosen;
}

std::unique_ptr<Transport> make_transport(std::string_view names, const TransportContext& context) {
  std::string reasons;
  for (const TransportEntry& entry : parse_transports(names)) {
    const std::string reason = entry.why_not(context);
    if (reason.empty()) return entry.make(context);
    reasons += fmt::format("\n  {}: {}", entry.name, reason);
  }
  throw Error(ErrorKind::unavailable, fmt::format("rank {}: none of the transports '{}' can run:{}",
                                                  context.rank, names, reasons));
}

std::string_view across_machines(std::string_view names) {
  for (const TransportEntry& entry : parse_transports(names))
    if (entry.across_machines) return entry.name;
  return {};
}

}  // namespace tutti
