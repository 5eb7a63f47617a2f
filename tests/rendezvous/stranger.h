// A connection to a store's server that does what it likes.
#pragma once

#include <gtest/gtest.h>
#include <poll.h>

#include <string>
#include <string_view>

#include "rendezvous/connection.h"
#include "rendezvous/local_socket.h"
#include "rendezvous/protocol.h"
#include "test_job.h"

namespace tutti {

class Stranger {
 public:
  explicit Stranger(const JobAddress& job) {
    const Store::Deadline deadline = in_time();
    Fd socket;
    while (!socket && std::chrono::steady_clock::now() < deadline)
      socket = rendezvous::connect_to(job.socket_name()).socket;  // none while its queue is full
    EXPECT_TRUE(socket);
    connection_ = rendezvous::Connection(std::move(socket));
  }

  void say(std::string_view bytes) {
    connection_.queue(bytes);
    static_cast<void>(connection_.flush());
  }

  template <typename T>
  void say_struct(const T& message) {
    say(rendezvous::bytes_of(message));
  }

  static rendezvous::Greeting greeting(const JobAddress& job, int rank) {
    rendezvous::Greeting greeting;
    greeting.rank = static_cast<std::uint32_t>(rank);
    greeting.size = static_cast<std::uint32_t>(job.size);
    greeting.job = job.job_hash();
    return greeting;
  }

  /// The next message; fails the test where the server cuts the connection or says nothing.
  template <typename T>
  T hear() {
    for (;;) {
      if (const auto message = rendezvous::fixed_part<T>(connection_.received())) {
        connection_.consume(sizeof(T));
        return *message;
      }
      if (!listen()) break;
    }
    ADD_FAILURE() << "the server did not answer";
    return {};
  }

  /// Returns once the server has cut the connection; fails the test where it does not.
  void expect_cut() {
    while (listen()) connection_.consume(connection_.received().size());
    EXPECT_TRUE(cut_) << "the server has left the connection open";
  }

 private:
  bool listen() {
    pollfd waited{connection_.fd(), POLLIN, 0};
    if (poll(&waited, 1, rendezvous::poll_milliseconds(in_time())) <= 0) return false;
    cut_ = !connection_.receive();
    return !cut_;
  }

  rendezvous::Connection connection_;
  bool cut_ = false;
};

}  // namespace tutti
