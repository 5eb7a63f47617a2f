// The list of all transports, and what is known of one before it is made.
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
  /// Why the transport does not reach from one place to the other; empty if it does.
  std::string why_not;
  LinkCapabilities can;
};

/// Describes one transport: what ranks have to know of it before they make it.
struct TransportEntry {
  std::string_view name;  ///< The name that users know; no decision depends on it.
  /// Returns, in one line of text, this rank's place as far as the transport is concerned; ranks at
  /// one place return the same text. Returns none where the transport cannot be used here at all.
  /// This call is cheap.
  std::optional<std::string> (*place)(const TransportContext& context);
  /// Compares the places of two ranks, whose order does not matter.
  Reach (*reach)(std::string_view place, std::string_view other);
  /// Makes the transport. Throws `unavailable` where this machine does not let the rank use it.
  std::unique_ptr<Transport> (*make)(const TransportContext& context);
};

/// Returns all transports.
std::vector<TransportEntry> transports();

/// Returns the transports that `names` lists, separated by commas, in its order; "auto" stands for
/// all. Throws `usage` for an unknown name; the message lists the known ones.
std::vector<TransportEntry> parse_transports(std::string_view names,
                                             std::vector<TransportEntry> known = transports());

}  // namespace tutti
