// What both ends of a new connection go through before anything else is said: the proof that they
// know the job's secret (authentication.h), then TLS where both encrypt.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "common/fd.h"
#include "net/authentication.h"
#include "net/connection.h"
#include "net/tls.h"

namespace tutti::net {

/// A state machine over a connected, non-blocking socket. It takes no byte that belongs to what
/// follows, so that the stream can be handed on. `Proof`: AuthInitiator or AuthAcceptor. One thread
/// at a time.
template <typename Proof>
class Handshake {
 public:
  enum class State { proving, encrypting, done, failed };

  /// `tls`: null where the proof's claim says that nothing is encrypted.
  Handshake(Fd socket, Proof proof, std::shared_ptr<const TlsContext> tls)
      : connection_(std::move(socket)), proof_(std::move(proof)), tls_(std::move(tls)) {}

  int fd() const noexcept { return connection_.fd(); }

  /// Takes what has come and answers. Call it whenever the socket is readable; the initiator's
  /// first, when it is connected.
  State advance();
  State state() const noexcept { return state_; }

  /// Whether the proof has succeeded, whatever becomes of the encryption.
  bool has_proved() const noexcept { return proof_.state() == Proof::State::done; }
  const Proof& proof() const noexcept { return proof_; }
  /// Once failed, what follows the name of the other end: "closed the connection".
  const std::string& why() const noexcept { return why_; }

  /// Once done: what follows goes over it.
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
