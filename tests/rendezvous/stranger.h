// A connection to a store's server that need not follow the protocol.
#pragma once

#include <gtest/gtest.h>
#include <poll.h>

#include <string>
#include <string_view>

#include "common/bytes.h"
#include "net/authentication.h"
#include "net/connection.h"
#include "rendezvous/store/protocol.h"
#include "venue.h"

namespace tutti {

class Stranger {
 public:
  explicit Stranger(const Venue& venue) : connection_(venue.connect()) {}

  void say(std::string_view bytes) {
    connection_.queue(bytes);
    static_cast<void>(connection_.flush());
  }

  template <typename T>
  void say_struct(const T& message) {
    say(bytes_of(message));
  }

  static rendezvous::Greeting greeting(const JobAddress& job, int rank) {
    rendezvous::Greeting greeting;
    greeting.rank = static_cast<std::uint32_t>(rank);
    greeting.size = static_cast<std::uint32_t>(job.size);
    greeting.job = job.job_hash();
    return greeting;
  }

  /// The first message of a rank at this kind of listener.
  static std::string first_words(const Venue& venue, int rank) {
    return std::string(venue.kind() == ListenerKind::unix_socket
                           ? bytes_of(greeting(venue.job(), rank))
                           : bytes_of(net::AuthHello{}));
  }

  /// Authenticates with the secret, if the listener requires that.
  Stranger& pass(const Venue& venue, int rank) {
    if (venue.kind() == ListenerKind::unix_socket) return *this;
    net::AuthInitiator initiator(Venue::secret(),
                                 {net::Claim::Purpose::store, static_cast<std::uint32_t>(rank), 0,
                                  venue.job().job_hash(), venue.kind() == ListenerKind::tls},
                                 venue.random());
    for (;;) {
      std::string output;
      std::string_view input = connection_.received();
      const std::size_t before = input.size();
      const auto state = initiator.advance(input, output);
      connection_.consume(before - input.size());
      say(output);
      if (state == net::AuthInitiator::State::done && venue.kind() == ListenerKind::tls)
        return encrypt(initiator.tls_key());
      if (state == net::AuthInitiator::State::done) return *this;
      if (state == net::AuthInitiator::State::failed || !listen()) break;
    }
    ADD_FAILURE() << "the server did not let it pass";
    return *this;
  }

  Stranger& encrypt(const net::TlsKey& key) {
    connection_.stream().encrypt(std::make_shared<const net::TlsContext>(), net::Tls::Role::client,
                                 key);
    net::Tls& tls = *connection_.stream().tls();
    auto how = tls.shake_hands();
    for (; how == net::Tls::Handshake::going_on; how = tls.shake_hands()) {
      pollfd waited{connection_.fd(), POLLIN, 0};
      if (poll(&waited, 1, net::poll_milliseconds(in_time())) <= 0) break;
    }
    EXPECT_EQ(how, net::Tls::Handshake::done) << tls.why();
    return *this;
  }

  /// Receives the next message. The test fails if the server closes the connection or sends none.
  template <typename T>
  T hear() {
    for (;;) {
      if (const auto message = fixed_part<T>(connection_.received())) {
        connection_.consume(sizeof(T));
        return *message;
      }
      if (!listen()) break;
    }
    ADD_FAILURE() << "the server did not answer";
    return {};
  }

  /// Waits until the server has closed the connection. The test fails if it does not.
  void expect_cut() {
    while (listen()) connection_.consume(connection_.received().size());
    EXPECT_TRUE(cut_) << "the server has left the connection open";
  }

 private:
  bool listen() {
    pollfd waited{connection_.fd(), POLLIN, 0};
    if (poll(&waited, 1, net::poll_milliseconds(in_time())) <= 0) return false;
    cut_ = !connection_.receive();
    return !cut_;
  }

  net::Connection connection_;
  bool cut_ = false;
};

}  // namespace tutti
