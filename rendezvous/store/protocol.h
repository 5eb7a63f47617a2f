// What goes over a store's socket.
//
// A connection begins with the client's Greeting and the server's Answer; over TCP the handshake of
// authentication.h comes first. Then the client sends
// requests (Request, key, value) and the server replies (Reply, bytes) in any order: a reply names
// its request. Lengths are checked before memory is taken for what they announce.
#pragma once

#include <sys/types.h>

#include <cstdint>

#include "common/bytes.h"

namespace tutti::rendezvous {

inline constexpr std::uint64_t kStoreMagic = 0x65726f7469747475u;
inline constexpr std::uint32_t kStoreVersion = 1;

/// The first two fields stay where they are in every version.
struct Greeting {
  std::uint64_t magic = kStoreMagic;
  std::uint32_t version = kStoreVersion;
  std::uint32_t rank = 0;
  std::uint64_t job = 0;  ///< Hash of the job's name.
  std::uint32_t size = 0;
  std::uint32_t zero = 0;
};
static_assert(sizeof(Greeting) == 32);

enum class Verdict : std::uint32_t {
  welcome = 1,
  other_version,  ///< Another version of this protocol.
  other_job,      ///< Another job's name.
  other_size,     ///< Another number of ranks.
  rank_taken,     ///< `pid` has joined with this rank.
  too_late,  ///< The rank has joined and left, or the store is closing: its successor may come.
};

struct Answer {
  std::uint64_t magic = kStoreMagic;
  std::uint32_t version = kStoreVersion;
  Verdict verdict = Verdict::welcome;
  std::uint32_t size = 0;  ///< The job's.
  std::int32_t pid = 0;    ///< For rank_taken.
};
static_assert(sizeof(Answer) == 24);

enum class Verb : std::uint32_t {
  set = 1,
  get,     ///< Replied to when the key has a value; with the value.
  wait,    ///< Replied to when the key has a value; with nothing.
  add,     ///< The amount and the sum as decimal text.
  forget,  ///< The request `id`, a get or wait, has been given up. No reply.
};

struct Request {
  std::uint64_t id = 0;
  Verb verb = Verb::set;
  std::uint32_t key_bytes = 0;
  std::uint32_t value_bytes = 0;
  std::uint32_t zero = 0;
};
static_assert(sizeof(Request) == 24);

enum class Status : std::uint32_t {
  ok = 1,
  usage,     ///< The bytes are the text of a `usage` error.
  mismatch,  ///< Of a `mismatch`: a rank cannot join, and none is worth waiting for.
};

struct Reply {
  std::uint64_t id = 0;
  Status status = Status::ok;
  std::uint32_t bytes = 0;
};
static_assert(sizeof(Reply) == 16);

}  // namespace tutti::rendezvous
