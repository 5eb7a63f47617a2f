// The messages between a store's client and its server.
//
// A connection begins with the client's Greeting and the server's Answer; over TCP the handshake of
// authentication.h comes first. Then the client sends requests (Request, key, value) and the server
// replies (Reply, bytes) in any order: a reply has the `id` of its request. Lengths are checked
// before memory is allocated for the data that they announce.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/bytes.h"

namespace tutti::rendezvous {

inline constexpr std::uint64_t kStoreMagic = 0x65726f7469747475u;
inline constexpr std::uint32_t kStoreVersion = 5;

/// With the number of a rank behind it, or "newcomer", the key that has a value once it has stood
/// by.
inline constexpr std::string_view kStandbyKey = "tutti/standby/";

/// Begins the key that counts those who shared a prefix and have left. The length of the prefix, a
/// slash and the prefix follow.
inline constexpr std::string_view kLeftKey = "tutti/left/";
/// Under the first key the server counts the connections that it has refused for their secret, and
/// under the second it says where the last of them came from.
inline constexpr std::string_view kRefusedKey = "tutti/refused";
inline constexpr std::string_view kRefusedFromKey = "tutti/refused/from";

/// A Greeting says these things of its sender, as bits of `Greeting::flags`.
enum GreetingFlag : std::uint32_t {
  kMayStandBy = 1,  ///< The process understands Status::appointed and Status::successor.
  kStandsBy = 2,    ///< The connection is that of a standby (replication.h), not of a client.
  kReturns = 4,     ///< The client has lost the server for which this one stood by.
  kIdle = 8,        ///< The process is no rank of the job yet, see Verb::be_rank.
};

/// Limits the bytes that encode_keys() writes for the keys of one `get`.
inline constexpr std::size_t kMaxEncodedKeysBytes = 4 << 10;

/// Writes each key, of kMaxKeyBytes at most, behind its length in two bytes.
std::string encode_keys(const std::vector<std::string>& keys);
/// Returns none for bytes that encode_keys() does not write.
std::optional<std::vector<std::string>> decode_keys(std::string_view bytes);

/// The client's first message. Every version of the protocol has the first two fields at these
/// offsets.
struct Greeting {
  std::uint64_t magic = kStoreMagic;
  std::uint32_t version = kStoreVersion;
  std::uint32_t rank = 0;
  std::uint64_t job = 0;  ///< Hash of the job's name.
  std::uint32_t size = 0;
  std::uint32_t flags = 0;   ///< See GreetingFlag.
  std::uint64_t client = 0;  ///< A random number that identifies the client; 0 if it has none.
};
static_assert(sizeof(Greeting) == 40);

enum class Verdict : std::uint32_t {
  welcome = 1,
  other_version,  ///< Another version of this protocol.
  other_job,      ///< Another job's name.
  other_size,     ///< Another number of ranks.
  rank_taken,     ///< The process `pid` has joined with this rank.
  too_late,  ///< The rank has joined and left, or the store is closing. A new store may follow.
  parted,    ///< The server for which this one stands by, or stood by, has parted with the client.
};

/// The server's first message.
struct Answer {
  std::uint64_t magic = kStoreMagic;
  std::uint32_t version = kStoreVersion;
  Verdict verdict = Verdict::welcome;
  std::uint32_t size = 0;  ///< The job's number of ranks.
  std::int32_t pid = 0;    ///< Set for `rank_taken`.
};
static_assert(sizeof(Answer) == 24);

enum class Verb : std::uint32_t {
  set = 1,
  get,  ///< The reply has the value and is sent once the key has one. The request's value holds the
        ///< keys of texts that end the wait with Status::unless, see encode_keys().
  wait,    ///< The reply is empty and is sent once the key has a value.
  add,     ///< The value is the amount and the reply is the sum, both as decimal text.
  forget,  ///< The client has given up the `get` or `wait` with this `id`. There is no reply.
  set_when_gone,  ///< The key gets the value, if it has none, when the client has left. An empty
                  ///< value takes that back.
  be_rank,  ///< The client, which was idle, is a rank from now on: it may be appointed to stand by,
            ///< and a server that closes waits for its end.
  share,  ///< The keys that begin with the key are deleted once as many clients that have requested
          ///< this have left as the value says, in decimal text. There is no reply.
};

struct Request {
  std::uint64_t id = 0;
  Verb verb = Verb::set;
  std::uint32_t key_bytes = 0;
  std::uint32_t value_bytes = 0;
  std::uint32_t zero = 0;
  std::uint64_t settled = 0;  ///< The client needs no answer to requests below this id any more.
};
static_assert(sizeof(Request) == 32);

enum class Status : std::uint32_t {
  ok = 1,
  usage,     ///< The bytes are the text of a `usage` error.
  mismatch,  ///< The bytes are the text of a `mismatch` error: a rank cannot join.
  lost,    ///< The bytes are the text of a `peer_lost` error: a rank has left before it took part.
  unless,  ///< The bytes are the value of a key that was to end the wait, of a `peer_lost` error.
  no_memory,  ///< The bytes are the text of an `unavailable` error.
  // The following are notices, which have the id 0.
  appointed,  ///< The client's process is to stand by for the server at the address in the bytes.
  successor,  ///< The bytes are the address of the server that stands by; empty if there is none.
};

struct Reply {
  std::uint64_t id = 0;
  Status status = Status::ok;
  std::uint32_t bytes = 0;
};
static_assert(sizeof(Reply) == 16);

}  // namespace tutti::rendezvous
