#include "net/authentication.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <cassert>
#include <cstddef>
#include <optional>
#include <type_traits>

#include <tutti/error.hpp>

#include "common/bytes.h"

namespace tutti::net {
namespace {

// The labels make sure that an HMAC made for one role or message is not valid for another.
constexpr std::string_view kInitiatorLabel = "tutti initiator 1\n";
constexpr std::string_view kAcceptorLabel = "tutti acceptor 1\n";
constexpr std::string_view kTlsLabel = "tutti tls 1\n";
static_assert(std::is_same_v<TlsKey, Proof>);

Nonce make_nonce(Random& random) {
  Nonce nonce;
  for (std::uint64_t& word : nonce) word = random.next();
  return nonce;
}

Proof prove(const Secret& secret, std::string_view label, const AuthHello& hello,
            const AuthChallenge& challenge, std::string_view more = {}) {
  std::string transcript(label);
  transcript.append(bytes_of(hello)).append(bytes_of(challenge)).append(more);
  return keyed_hash(secret, transcript);
}

// Compares in constant time, so that the time does not reveal where the proofs differ.
bool same(const Proof& a, const Proof& b) noexcept {
  return CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

template <typename Message>
std::optional<Message> take(std::string_view& input) {
  const auto message = fixed_part<Message>(input);
  if (message) input.remove_prefix(sizeof *message);
  return message;
}

std::string_view verdict_bytes(const AuthResult& result) {
  return bytes_of(result).substr(0, offsetof(AuthResult, proof));
}

}  // namespace

Proof keyed_hash(const Secret& secret, std::string_view text) {
  Proof proof{};
  unsigned bytes = 0;
  const std::string_view key = secret.bytes();
  // HMAC() needs a valid pointer even if the key is empty.
  const auto* made =
      HMAC(EVP_sha256(), key.empty() ? "" : key.data(), static_cast<int>(key.size()),
           reinterpret_cast<const unsigned char*>(text.data()), text.size(), proof.data(), &bytes);
  if (made == nullptr || bytes != proof.size())
    throw Error(ErrorKind::unavailable,
                "OpenSSL has no HMAC-SHA-256: connections to other ranks "
                "cannot be authenticated");
  return proof;
}

std::string_view describe(AuthFailure failure) noexcept {
  switch (failure) {
    case AuthFailure::none: return "has let this rank in";
    case AuthFailure::not_tutti: return "does not speak as tutti does; choose another port";
    case AuthFailure::other_version:
      return "speaks another version of the protocol; run the same build of tutti on all ranks";
    case AuthFailure::no_secret_here:
      return "has a secret and this rank has none; give all ranks the same TUTTI_SECRET_FILE or "
             "TUTTI_SECRET";
    case AuthFailure::no_secret_there:
      return "has no secret and this rank has one; give all ranks the same "
             "TUTTI_SECRET_FILE or TUTTI_SECRET, or none of them";
    case AuthFailure::wrong_secret:
      return "has another secret than this rank, or none, so it is another job's or one of the two "
             "was started without TUTTI_SECRET_FILE and TUTTI_SECRET, or with the wrong one";
    case AuthFailure::other_job:
      return "has this rank's secret and belongs to a job of another name; give each job a port of "
             "its own";
    case AuthFailure::other_place:
      return "is another rank than this one looks for; start the job again";
    case AuthFailure::no_tls_here:
      return "encrypts its connections and this rank does not; set TUTTI_TLS=yes on all ranks, or "
             "on none of them";
    case AuthFailure::no_tls_there:
      return "does not encrypt its connections and this rank does; set TUTTI_TLS=yes on all ranks, "
             "or on none of them";
    case AuthFailure::no_tls_key:
      return "is to be encrypted to, and this rank has no secret to take keys from; give all ranks "
             "the same TUTTI_SECRET_FILE or TUTTI_SECRET";
  }
  return "";
}

AuthInitiator::AuthInitiator(const Secret& secret, const Claim& claim, Random& random)
    : secret_(secret) {
  hello_.has_secret = secret ? 1 : 0;
  hello_.purpose = claim.purpose;
  hello_.initiator = claim.initiator;
  hello_.acceptor = claim.acceptor;
  hello_.tls = claim.tls ? 1 : 0;
  hello_.job = claim.job;
  hello_.nonce = make_nonce(random);
}

AuthInitiator::State AuthInitiator::advance(std::string_view& input, std::string& output) {
  if (state_ == State::begin) {
    if (hello_.tls == 1 && !secret_) return state_ = fail(AuthFailure::no_tls_key);
    output.append(bytes_of(hello_));
    state_ = State::challenge;
  }
  if (state_ == State::challenge)
    if (const auto challenge = take<AuthChallenge>(input)) state_ = answer(*challenge, output);
  if (state_ == State::result)
    if (const auto result = take<AuthResult>(input)) state_ = judge(*result);
  assert((state_ == State::failed) == (failure_ != AuthFailure::none));
  return state_;
}

std::size_t AuthInitiator::awaited_bytes() const noexcept {
  switch (state_) {
    case State::challenge: return sizeof(AuthChallenge);
    case State::result: return sizeof(AuthResult);
    default: return 0;
  }
}

AuthInitiator::State AuthInitiator::fail(AuthFailure failure) noexcept {
  assert(failure != AuthFailure::none && failure_ == AuthFailure::none);
  failure_ = failure;
  return State::failed;
}

AuthInitiator::State AuthInitiator::answer(const AuthChallenge& challenge, std::string& output) {
  assert(state_ == State::challenge && failure_ == AuthFailure::none);
  if (challenge.magic != kAuthMagic) return fail(AuthFailure::not_tutti);
  if (challenge.version != kAuthVersion) return fail(AuthFailure::other_version);
  if (secret_ && challenge.has_secret == 0) return fail(AuthFailure::no_secret_there);
  if (!secret_ && challenge.has_secret != 0) return fail(AuthFailure::no_secret_here);
  challenge_ = challenge;
  output.append(bytes_of(AuthProof{prove(secret_, kInitiatorLabel, hello_, challenge_)}));
  return State::result;
}

AuthInitiator::State AuthInitiator::judge(const AuthResult& result) {
  assert(state_ == State::result && failure_ == AuthFailure::none);
  const Proof proof = prove(secret_, kAcceptorLabel, hello_, challenge_, verdict_bytes(result));
  if (!same(proof, result.proof)) return fail(AuthFailure::wrong_secret);
  switch (result.verdict) {
    case AuthVerdict::welcome: return State::done;
    case AuthVerdict::other_job: return fail(AuthFailure::other_job);
    case AuthVerdict::other_place: return fail(AuthFailure::other_place);
    case AuthVerdict::other_tls:
      return fail(hello_.tls == 0 ? AuthFailure::no_tls_here : AuthFailure::no_tls_there);
    case AuthVerdict::wrong_secret: break;
  }
  return fail(AuthFailure::not_tutti);
}

TlsKey AuthInitiator::tls_key() const {
  assert(state_ == State::done && hello_.tls == 1);
  return prove(secret_, kTlsLabel, hello_, challenge_);
}

AuthAcceptor::AuthAcceptor(const Secret& secret, const Claim& expected, Random& random)
    : secret_(secret), expected_(expected) {
  challenge_.has_secret = secret ? 1 : 0;
  challenge_.nonce = make_nonce(random);
}

AuthAcceptor::State AuthAcceptor::advance(std::string_view& input, std::string& output) {
  if (state_ == State::hello)
    if (const auto hello = take<AuthHello>(input)) state_ = challenge(*hello, output);
  if (state_ == State::proof)
    if (const auto proof = take<AuthProof>(input)) state_ = judge(*proof, output);
  assert(failure_ == AuthFailure::none || state_ == State::failed);
  return state_;
}

std::size_t AuthAcceptor::awaited_bytes() const noexcept {
  switch (state_) {
    case State::hello: return sizeof(AuthHello);
    case State::proof: return sizeof(AuthProof);
    default: return 0;
  }
}

AuthAcceptor::State AuthAcceptor::challenge(const AuthHello& hello, std::string& output) {
  assert(state_ == State::hello);
  if (hello.magic != kAuthMagic) return State::failed;  // the other end would not understand us
  if (expected_.tls && !secret_) return State::failed;
  output.append(bytes_of(challenge_));  // it also tells an initiator of another version ours
  if (hello.version != kAuthVersion || hello.tls > 1) return State::failed;
  hello_ = hello;
  refuses_secret_ = (hello.has_secret != 0) != (challenge_.has_secret != 0);
  return State::proof;
}

AuthAcceptor::State AuthAcceptor::judge(const AuthProof& proof, std::string& output) {
  assert(state_ == State::proof && failure_ == AuthFailure::none);
  AuthResult result;
  if (!same(proof.proof, prove(secret_, kInitiatorLabel, hello_, challenge_))) {
    result.verdict = AuthVerdict::wrong_secret;
    refuses_secret_ = true;
    output.append(bytes_of(result));
    return State::failed;
  }
  if (hello_.job != expected_.job) {
    result.verdict = AuthVerdict::other_job;
  } else if (hello_.purpose != expected_.purpose || hello_.acceptor != expected_.acceptor) {
    result.verdict = AuthVerdict::other_place;
  } else if ((hello_.tls == 1) != expected_.tls) {
    result.verdict = AuthVerdict::other_tls;
    failure_ = expected_.tls ? AuthFailure::no_tls_there : AuthFailure::no_tls_here;
  }
  result.proof = prove(secret_, kAcceptorLabel, hello_, challenge_, verdict_bytes(result));
  output.append(bytes_of(result));
  return result.verdict == AuthVerdict::welcome ? State::done : State::failed;
}

TlsKey AuthAcceptor::tls_key() const {
  assert(state_ == State::done && hello_.tls == 1);
  return prove(secret_, kTlsLabel, hello_, challenge_);
}

}  // namespace tutti::net
