// Where a rank can be called, as it stands in the store.
#pragma once

#include <sys/types.h>

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "common/random.h"

namespace tutti::shm {

/// Random, made for one transport of one process: nobody can guess it or meet it twice, and who
/// knows it has read the store.
struct Identity {
  std::uint64_t high = 0;
  std::uint64_t low = 0;

  auto operator<=>(const Identity&) const = default;
};

/// Where a rank is, as far as sharing memory is concerned: ranks of one place can.
struct Place {
  std::string machine;        ///< The kernel's boot id.
  std::uint64_t network = 0;  ///< Inode of the network namespace: abstract sockets live in one.
  uid_t user = 0;

  bool operator==(const Place&) const = default;

  std::string to_string() const;
  static std::optional<Place> parse(std::string_view text);
};

struct Address {
  Identity identity;  ///< Zero: there is no such rank.
  Place place;
  pid_t process = 0;  ///< As its own namespace counts.

  bool operator==(const Address&) const = default;

  std::string to_string() const;
  static std::optional<Address> parse(std::string_view text);

  /// Of its listening socket, in the abstract namespace: no file, gone with the process.
  std::string socket_name() const;
};

Address own_address(Random& random);

Place own_place();

/// Why `there` cannot be reached from `here`; empty: it can.
std::string why_unreachable(const Place& here, const Place& there);

}  // namespace tutti::shm
