// The list of transports.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/capabilities.h"
#include "transport/channel.h"
#include "transport/context.h"

namespace tutti {

/// The link that a transport offers between two places.
struct Reach {
  std::string why_not;  ///< Why it does not reach from one to the other; empty: it does.
  LinkCapabilities can;
};

/// One transport: what ranks have to know of it before they make it.
struct TransportEntry {
  std::string_view name;  ///< Known to users alone: nothing is decided by it.
  /// Says, in one line, where this rank is as far as the transport is concerned; ranks of one place
  /// say the same. None where the transport cannot be used here at all. This call is cheap.
  std::optional<std::string> (*place)(const TransportContext& context);
  /// Compares what two ranks said; the order of the two does not matter.
  Reach (*reach)(std::string_view place, std::string_view other);
  /// Throws `unavailable` where this machine does not let the rank use it.
  std::unique_ptr<Transport> (*make)(const TransportContext& context);
};

/// All of them.
std::vector<TransportEntry> transports();

/// The transports that `names` lists (comma-separated; "auto": all), in its order. Throws `usage`
/// for an unknown name; the message lists the known ones.
std::vector<TransportEntry> parse_transports(std::string_view names,
                                             std::vector<TransportEntry> known = transports());

}  // namespace tutti
