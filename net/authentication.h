// How the two ends of a connection prove to each other that they belong to one job: both know its
// secret, and neither sends it. For the store's connections and for those between ranks.
//
//   initiator                                    acceptor
//   AuthHello      who and what for, nonce  ──►
//                                           ◄──  AuthChallenge   nonce
//   AuthProof      HMAC as initiator        ──►
//                                           ◄──  AuthResult      verdict, HMAC as acceptor
//
// Each HMAC (SHA-256, RFC 2104; challenge and response as in ISO/IEC 9798-4, mutual) covers the
// role of its sender and all that was said before: job, ranks, purpose, both nonces. So a proof
// serves once, in one direction, for one connection. The initiator goes first: who merely finds an
// open port is given nothing that was made with the secret. Where both ends mean to encrypt what
// follows, TLS comes next, with a key that is made of the secret and of all that was said here.
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

/// What both ends must mean by a connection.
struct Claim {
  enum class Purpose : std::uint32_t { store = 1, data = 2 };

  Purpose purpose = Purpose::store;
  std::uint32_t initiator = 0, acceptor = 0;  ///< Ranks.
  std::uint64_t job = 0;                      ///< Hash of the job's name.
  bool tls = false;                           ///< What follows is encrypted.

  bool operator==(const Claim&) const = default;
};

using Nonce = std::array<std::uint64_t, 4>;
using Proof = std::array<unsigned char, 32>;

inline constexpr std::uint64_t kAuthMagic = 0x6874756169747475u;
inline constexpr std::uint32_t kAuthVersion = 1;

/// Magic and version stay where they are in every version.
struct AuthHello {
  std::uint64_t magic = kAuthMagic;
  std::uint32_t version = kAuthVersion;
  std::uint32_t has_secret = 0;  ///< 0: the network is trusted, and the HMAC's key is empty.
  Claim::Purpose purpose = Claim::Purpose::store;
  std::uint32_t initiator = 0, acceptor = 0;
  std::uint32_t tls = 0;  ///< 1: what follows is encrypted.
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
  wrong_secret,  ///< The proof is not one that this secret makes. Said without a proof.
  other_job,     ///< Another job's name.
  other_place,   ///< Not that rank, or not for that purpose.
  other_tls,     ///< One of the two encrypts and the other does not.
};

struct AuthResult {
  AuthVerdict verdict = AuthVerdict::welcome;
  std::uint32_t zero = 0;
  Proof proof{};
};
static_assert(sizeof(AuthResult) == 40);

/// Why a handshake has failed, for the error that says what to do.
enum class AuthFailure {
  none,
  not_tutti,        ///< The other end speaks something else.
  other_version,    ///< Of this protocol.
  no_secret_here,   ///< The other end has a secret; this one trusts the network.
  no_secret_there,  ///< The other way round: nothing is told to an end that could be anybody.
  wrong_secret,     ///< Both have one, and they differ.
  other_job,
  other_place,
  no_tls_here,   ///< The other end encrypts what follows; this one does not.
  no_tls_there,  ///< The other way round.
  no_tls_key,    ///< What follows is to be encrypted, with keys from a secret that is not there.
};

/// "has another secret than this rank": what follows the name of the other end. With what to do.
std::string_view describe(AuthFailure failure) noexcept;

/// Both ends are state machines: advance() takes of `input` what belongs to the handshake (no byte
/// more; none while a message is not complete) and appends to `output` what is to be sent. Not
/// thread-safe.
class AuthInitiator {
 public:
  enum class State { begin, challenge, result, done, failed };

  /// `secret` may be empty where the network is trusted. Where `claim` says that TLS follows, an
  /// empty secret fails before anything is sent, since anybody could derive the keys from it.
  AuthInitiator(const Secret& secret, const Claim& claim, Random& random);

  /// Call it first with no input. done: the other end knows the secret, and has let us in.
  State advance(std::string_view& input, std::string& output);
  State state() const noexcept { return state_; }
  AuthFailure failure() const noexcept { return failure_; }
  /// What the next message has: so many bytes belong to the handshake.
  std::size_t awaited_bytes() const noexcept;
  /// Once done, where the claim says so.
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

class AuthAcceptor {
 public:
  enum class State { hello, proof, done, failed };

  /// Lets in whoever knows `secret` and claims `expected`, whichever rank the initiator is. Where
  /// `expected` says that TLS follows and `secret` is empty, nobody is let in.
  AuthAcceptor(const Secret& secret, const Claim& expected, Random& random);

  /// failed: send `output`, then close.
  State advance(std::string_view& input, std::string& output);
  State state() const noexcept { return state_; }
  /// Once failed: what keeps an initiator out that has proved itself; else none.
  AuthFailure failure() const noexcept { return failure_; }

  /// What the next message has: so many bytes belong to the handshake.
  std::size_t awaited_bytes() const noexcept;

  /// Who the initiator says that it is; true once it has proved itself.
  std::uint32_t initiator() const noexcept { return hello_.initiator; }
  /// Once done, where the claim says so.
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
};

}  // namespace tutti::net
