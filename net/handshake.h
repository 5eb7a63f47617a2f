// The handshake of a new connection, for both ends: they authenticate each other with the job's
// secret (authentication.h) and then, if the job encrypts, set up TLS.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "common/fd.h"
#include "net/authentication.h"
#include "net/connection.h"
#include "net/tls.h"

namespace tutti::net {

/// A state machine over a connected, non-blocking socket. It reads no byte beyond the handshake, so
/// that the connection can be handed on afterwards. `Proof` is AuthInitiator or AuthAcceptor. It
/// may be used by one thread at a time.
template <typename Proof>
class Handshake {
 public:
  enum class State { proving, encrypting, done, failed };

  /// `tls` is null if the proof's claim says that the connection is not encrypted.
  Handshake(Fd socket, Proof proof, std::shared_ptr<const TlsContext> tls)
      : connection_(std::move(socket)), proof_(std::move(proof)), tls_(std::move(tls)) {}

  int fd() const noexcept { return connection_.fd(); }

  /// Processes the bytes that have arrived and sends the answer. It is to be called whenever the
  /// socket is readable; the initiator also calls it once as soon as the socket is connected.
  State advance();
  State state() const noexcept { return state_; }

  /// Whether the authentication has succeeded, even if TLS has not been set up or fails later.
  bool has_proved() const noexcept { return proof_.state() == Proof::State::done; }
  const Proof& proof() const noexcept { return proof_; }
  /// In state `failed`, the predicate of an error message whose subject is the name of the other
  /// end, for example "closed the connection".
  const std::string& why() const noexcept { return why_; }

  /// The connection, for use or to be moved away once the state is `done`.
  Connection& connection() noexcept { return connection_; }

 private:
  State prove();
  State encrypt();
  State fail(std::string why);

  Connection connection_;
  Proof proof_;
  const std::shared_ptr<const TlsContext> tls_;
  State state_ = State::proving;
  std::string why_;
};

extern template class Handshake<AuthInitiator>;
extern template class Handshake<AuthAcceptor>;

}  // namespace tutti::net
