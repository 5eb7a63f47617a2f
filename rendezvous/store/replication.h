// The messages between the server of a store, called the primary, and the server that stands by for
// it in another process, called the standby.
//
// The standby's connection begins as that of a client, with kStandsBy in its greeting. The standby
// then tells its address and acknowledges what it has applied (FromStandby); the primary sends the
// keys and the answers that it has, and then every change (ChangeHeader, key, value, reply).
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "common/bytes.h"

namespace tutti::rendezvous {

/// The primary goes on without a standby that has not confirmed a change in this time. Replies wait
/// for the standby meanwhile, so one that is frozen delays all of them by so much, once.
inline constexpr std::chrono::milliseconds kApplyLimit{500};

/// A change of what a store holds. The views refer to memory of the caller.
struct Change {
  enum class Kind : std::uint32_t {
    set = 1,    ///< The key has this value. If `client` is not 0, its request `id` did that.
    answer,     ///< The request `id` of `client` has been answered with `reply`.
    leave,      ///< The client has left. Its answers are dropped.
    dismissed,  ///< The standby is to end: the primary goes on without it.
    erase       ///< All keys that begin with this one are deleted.
  };
  Kind kind = Kind::set;
  std::uint64_t client = 0, id = 0, settled = 0;  ///< See Greeting::client and Request.
  std::string_view key = {}, value = {}, reply = {};
};

struct ChangeHeader {
  std::uint64_t number = 0;  ///< Changes are numbered in the order in which they are sent.
  std::uint64_t client = 0, id = 0, settled = 0;
  Change::Kind kind = Change::Kind::set;
  std::uint32_t key_bytes = 0, value_bytes = 0, reply_bytes = 0;
};
static_assert(sizeof(ChangeHeader) == 48);

struct FromStandby {
  std::uint64_t applied = 0;        ///< The number of the last change that was applied.
  std::uint32_t address_bytes = 0;  ///< Not 0 in the first message, which the address follows.
  std::uint32_t zero = 0;
};
static_assert(sizeof(FromStandby) == 16);

inline constexpr std::size_t kMaxAddressBytes = 4 << 10;

std::string encode(const Change& change, std::uint64_t number);

/// A change at the front of received bytes, to which its views refer.
struct ReceivedChange {
  Change change;
  std::uint64_t number = 0;
  std::size_t bytes = 0;
};
/// Returns none if the change is not complete yet. Throws `corrupt` if it cannot be one.
std::optional<ReceivedChange> decode(std::string_view input);

}  // namespace tutti::rendezvous
