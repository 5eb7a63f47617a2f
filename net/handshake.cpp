#include "net/handshake.h"

#include <cassert>
#include <string_view>
#include <type_traits>

namespace tutti::net {

template <typename Proof>
typename Handshake<Proof>::State Handshake<Proof>::advance() {
  if (state_ == State::proving) state_ = prove();
  if (state_ == State::encrypting) state_ = encrypt();
  assert((state_ == State::failed) == !why_.empty());
  return state_;
}

// Processes one message of the proof if it has arrived. There cannot be a second one, since each
// message answers the last one of the other end.
template <typename Proof>
typename Handshake<Proof>::State Handshake<Proof>::prove() {
  assert(state_ == State::proving && !has_proved());
  const std::size_t awaited = proof_.awaited_bytes();
  const bool open = connection_.receive(awaited);
  std::string_view input = connection_.received();
  assert(input.size() <= awaited);
  if (input.size() < awaited) return open ? State::proving : fail("closed the connection");
  std::string output;
  const auto next = proof_.advance(input, output);
  assert(input.empty() && "the proof takes a message that is whole");
  connection_.consume(awaited);
  connection_.queue(output);
  const bool written = connection_.flush();  // a refusal is sent before the connection is closed
  if (next == Proof::State::failed)
    return fail(proof_.failure() == AuthFailure::none ? "has not proved that it belongs to this job"
                                                      : std::string(describe(proof_.failure())));
  if (!written) return fail("closed the connection");
  if (next != Proof::State::done) return State::proving;
  if (tls_ == nullptr) return State::done;
  constexpr bool kCalls = std::is_same_v<Proof, AuthInitiator>;
  connection_.stream().encrypt(tls_, kCalls ? Tls::Role::client : Tls::Role::server,
                               proof_.tls_key());
  return State::encrypting;
}

template <typename Proof>
typename Handshake<Proof>::State Handshake<Proof>::encrypt() {
  assert(has_proved() && connection_.stream().tls() != nullptr);
  Tls& tls = *connection_.stream().tls();
  switch (tls.shake_hands()) {
    case Tls::Handshake::done: return State::done;
    case Tls::Handshake::failed: return fail(tls.why());
    case Tls::Handshake::going_on: break;
  }
  return State::encrypting;
}

template <typename Proof>
typename Handshake<Proof>::State Handshake<Proof>::fail(std::string why) {
  assert(why_.empty() && !why.empty());
  why_ = std::move(why);
  return State::failed;
}

template class Handshake<AuthInitiator>;
template class Handshake<AuthAcceptor>;

}  // namespace tutti::net
