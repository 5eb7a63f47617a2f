// A transport for tests between ranks of one process, of which several kinds can exist, each with
// its own capabilities. It is short, and tests of routes use it beside other transports.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "transport/registry.h"

namespace tutti::mail {

/// The capabilities of one kind of this transport. Its members are constant while ranks use it.
struct Kind {
  std::string_view name;
  std::int64_t bytes_per_second = 1'000'000'000;
  std::size_t largest_message = 64 << 10;
  /// The transport reaches ranks of the same island; with 2, these are 0 and 1, 2 and 3 and so on.
  /// ...
  int ranks_per_island = 1'000'000;
  bool may_fail = false;
  bool (*connects)(int rank, int peer) = [](int, int) { return true; };
  bool (*is_made)(int rank) = [](int) { return true; };
};

/// Counts the bytes of messages that were handed over as references to registered memory, by all
/// ranks of all kinds.
std::atomic<std::size_t>& registered_bytes();

std::optional<std::string> place(const Kind& kind, const TransportContext& context);
Reach reach(const Kind& kind, std::string_view place, std::string_view other);
std::unique_ptr<Transport> make(const Kind& kind, const TransportContext& context);

template <const Kind& kKind>
TransportEntry entry() {
  return {kKind.name, [](const TransportContext& context) { return place(kKind, context); },
          [](std::string_view a, std::string_view b) { return reach(kKind, a, b); },
          [](const TransportContext& context) { return make(kKind, context); }};
}

inline constexpr Kind kAnywhere{"mail"};

}  // namespace tutti::mail
