// The address of a rank for shared memory, as the store holds it.
#pragma once

#include <sys/types.h>

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "common/random.h"

namespace tutti::shm {

/// A random number, made for one transport of one process. Nobody can guess it, no two are alike,
/// and a process that knows it has read the store.
struct Identity {
  std::uint64_t high = 0;
  std::uint64_t low = 0;

  auto operator<=>(const Identity&) const = default;
};
static_assert(sizeof(Identity) == 16, "greetings carry it byte by byte");

/// The place of a rank as far as shared memory is concerned. Ranks at the same place can share
/// memory.
struct Place {
  std::string machine;  ///< The kernel's boot id.
  /// The inode of the network namespace, to which abstract sockets belong.
  std::uint64_t network = 0;
  uid_t user = 0;

  bool operator==(const Place&) const = default;

  std::string to_string() const;
  static std::optional<Place> parse(std::string_view text);
};

struct Address {
  Identity identity;  ///< Zero if there is no such rank.
  Place place;
  pid_t process = 0;  ///< The process id in the process's own namespace.

  bool operator==(const Address&) const = default;

  std::string to_string() const;
  static std::optional<Address> parse(std::string_view text);

  /// Returns the name of the rank's listening socket. It is in the abstract namespace, so there is
  /// no file, and the name ends with the process.
  std::string socket_name() const;
};

Address own_address(Random& random);

Place own_place();

/// Returns why `there` cannot be reached from `here`, or an empty string where it can.
std::string why_unreachable(const Place& here, const Place& there);

}  // namespace tutti::shm
