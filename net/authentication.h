// Mutual authentication of the two ends of a connection: each proves that it knows the job's secret
// without sending it. The store's connections and the connections between ranks both use it.
//
//   initiator                                    acceptor
//   AuthHello      ranks, purpose, nonce    ──►
//                                           ◄──  AuthChallenge   nonce
//   AuthProof      HMAC as initiator        ──►
//                                           ◄──  AuthResult      verdict, HMAC as acceptor
//
// Each HMAC (SHA-256, RFC 2104; challenge and response as in ISO/IEC 9798-4, mutual) covers the
// role of its sender and all previous messages: job, ranks, purpose, both nonces. A proof is
// therefore valid once, in one direction, for one connection. The initiator proves itself first, so
// that a process that merely finds an open port receives nothing computed from the secret. If both
// ends are to encrypt the connection, TLS comes next, with a key derived from the secret and from
// the messages of this handshake.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "common/random.h"
#include "common/secret.h"
#include "net/tls.h"

namespace tutti::net {

/// The properties of a connection on which both ends must agree.
struct Claim {
  enum class Purpose : std::uint32_t { store = 1, data = 2 };

  Purpose purpose = Purpose::store;
  std::uint32_t initiator = 0, acceptor = 0;  ///< Ranks.
  std::uint64_t job = 0;                      ///< Hash of the job's name.
  bool tls = false;                           ///< The connection is encrypted after this handshake.

  bool operator==(const Claim&) const = default;
};

using Nonce = std::array<std::uint64_t, 4>;
using Proof = std::array<unsigned char, 32>;

/// Returns the HMAC (SHA-256) of `text` with the secret, which may be empty, as the key.
Proof keyed_hash(const Secret& secret, std::string_view text);

inline constexpr std::uint64_t kAuthMagic = 0x6874756169747475u;
inline constexpr std::uint32_t kAuthVersion = 1;

/// Every version of the protocol has the magic and the version number at these offsets.
struct AuthHello {
  std::uint64_t magic = kAuthMagic;
  std::uint32_t version = kAuthVersion;
  std::uint32_t has_secret = 0;  ///< 0 if the network is trusted; the HMAC's key is then empty.
  Claim::Purpose purpose = Claim::Purpose::store;
  std::uint32_t initiator = 0, acceptor = 0;
  std::uint32_t tls = 0;  ///< 1 if the connection is encrypted after this handshake, else 0.
  std::uint64_t job = 0;
  Nonce nonce{};
};
static_assert(sizeof(AuthHello) == 72);

struct AuthChallenge {
  std::uint64_t magic = kAuthMagic;
  std::uint32_t version = kAuthVersion;
  std::uint32_t has_secret = 0;
  Nonce nonce{};
};
static_assert(sizeof(AuthChallenge) == 48);

struct AuthProof {
  Proof proof{};
};
static_assert(sizeof(AuthProof) == 32);

enum class AuthVerdict : std::uint32_t {
  welcome = 1,
  wrong_secret,  ///< The proof does not match the secret. This result carries no proof itself.
  other_job,     ///< The job's name differs.
  other_place,   ///< The acceptor is another rank, or serves another purpose.
  other_tls,     ///< One end encrypts and the other does not.
};

struct AuthResult {
  AuthVerdict verdict = AuthVerdict::welcome;
  std::uint32_t zero = 0;
  Proof proof{};
};
static_assert(sizeof(AuthResult) == 40);

/// Why a handshake has failed; describe() turns it into an error message.
enum class AuthFailure {
  none,
  not_tutti,        ///< The other end does not speak this protocol.
  other_version,    ///< The other end speaks another version of this protocol.
  no_secret_here,   ///< The other end has a secret; this one has none.
  no_secret_there,  ///< This end has a secret; the other one has none.
  /// Both ends have a secret, and the secrets differ. One of them may be drawn for the connection,
  /// by a rank that was given none.
  wrong_secret,
  other_job,
  other_place,
  no_tls_here,   ///< The other end encrypts the connection; this one does not.
  no_tls_there,  ///< This end encrypts the connection; the other one does not.
  no_tls_key,    ///< The connection is to be encrypted, but there is no secret to derive keys from.
};

/// The predicate of an error message whose subject is the name of the other end, for example "has
/// another secret than this rank". It also says how to correct the failure.
std::string_view describe(AuthFailure failure) noexcept;

/// The initiator's state machine. In both state machines, advance() removes from the front of
/// `input` the messages of the handshake that are complete, and no byte beyond them, and appends to
/// `output` the bytes to send. Not thread-safe.
class AuthInitiator {
 public:
  enum class State { begin, challenge, result, done, failed };

  /// `secret` may be empty if the network is trusted. If `claim` says that TLS follows, the
  /// handshake fails with an empty secret before anything is sent, since anybody could derive the
  /// keys from it.
  AuthInitiator(const Secret& secret, const Claim& claim, Random& random);

  /// The first call takes no input. `done` means that the other end knows the secret and has
  /// accepted this one.
  State advance(std::string_view& input, std::string& output);
  State state() const noexcept { return state_; }
  AuthFailure failure() const noexcept { return failure_; }
  /// The size of the next message from the other end in bytes; 0 if none is expected.
  std::size_t awaited_bytes() const noexcept;
  /// The key for TLS. It may be called in state `done`, if the claim says that TLS follows.
  TlsKey tls_key() const;

 private:
  State fail(AuthFailure failure) noexcept;
  State answer(const AuthChallenge& challenge, std::string& output);
  State judge(const AuthResult& result);

  const Secret secret_;
  AuthHello hello_;
  AuthChallenge challenge_;
  State state_ = State::begin;
  AuthFailure failure_ = AuthFailure::none;
};

/// The acceptor's state machine. Not thread-safe.
class AuthAcceptor {
 public:
  enum class State { hello, proof, done, failed };

  /// Accepts an initiator that knows `secret` and whose claim equals `expected` in everything but
  /// the initiator's rank, which may be any. If `expected` says that TLS follows and `secret` is
  /// empty, no initiator is accepted.
  AuthAcceptor(const Secret& secret, const Claim& expected, Random& random);

  /// In state `failed`, the caller sends `output` and then closes the connection.
  State advance(std::string_view& input, std::string& output);
  State state() const noexcept { return state_; }
  /// In state `failed`, `no_tls_here` or `no_tls_there` if an initiator that knows the secret was
  /// refused because only one end encrypts; otherwise `none`.
  AuthFailure failure() const noexcept { return failure_; }

  /// The size of the next message from the initiator in bytes; 0 if none is expected.
  std::size_t awaited_bytes() const noexcept;
  /// Returns whether the initiator is refused for its secret, which is another one, or which one of
  /// the two ends does not have.
  bool refuses_secret() const noexcept { return refuses_secret_; }

  /// The rank that the initiator claims to be. It can be relied on once the proof was verified.
  std::uint32_t initiator() const noexcept { return hello_.initiator; }
  /// The key for TLS. It may be called in state `done`, if the claim says that TLS follows.
  TlsKey tls_key() const;

 private:
  State challenge(const AuthHello& hello, std::string& output);
  State judge(const AuthProof& proof, std::string& output);

  const Secret secret_;
  const Claim expected_;
  AuthHello hello_;
  AuthChallenge challenge_;
  State state_ = State::hello;
  AuthFailure failure_ = AuthFailure::none;
  bool refuses_secret_ = false;
};

}  // namespace tutti::net
