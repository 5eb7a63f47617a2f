// A job's store behind one kind of listener, for tests that run with each kind.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "common/random.h"
#include "net/local_socket.h"
#include "net/tcp_socket.h"
#include "test_job.h"

namespace tutti {

enum class ListenerKind { unix_socket, tcp4, tcp6, tls };

inline std::string name_of(ListenerKind kind) {
  switch (kind) {
    case ListenerKind::unix_socket: return "Unix";
    case ListenerKind::tcp4: return "Tcp4";
    case ListenerKind::tcp6: return "Tcp6";
    case ListenerKind::tls: break;
  }
  return "Tls";
}

/// A job and the listener of its store. The listener is open from the beginning, so that clients
/// that connect before serve() wait. serve() may be called once.
class Venue {
 public:
  Venue(ListenerKind kind, int size) : kind_(kind), job_(job_of(size)) {
    if (kind == ListenerKind::unix_socket) {
      listeners_.push_back(unix_listener(job_));
    } else {
      listeners_.push_back({net::listen_tcp({host(), 0}), secret(), kind == ListenerKind::tls});
      place_ = {host(), net::port_of(listeners_.front().socket)};
    }
  }

  const JobAddress& job() const { return job_; }
  ListenerKind kind() const { return kind_; }
  const SocketAddress& place() const { return place_; }
  static Secret secret() { return Secret("what only this test knows"); }

  std::unique_ptr<StoreServer> serve(const ServerLimits& limits = {}) {
    return std::make_unique<StoreServer>(job_, std::move(listeners_), limits);
  }

  /// Closes this process's copy of the listener, if another process serves.
  void close() { listeners_.clear(); }

  std::unique_ptr<rendezvous::Route> route(int rank, const Secret& with = secret()) const {
    return kind_ == ListenerKind::unix_socket
               ? rendezvous::local_route(job_, rank)
               : rendezvous::tcp_route(job_, rank, {place_}, with, *random_,
                                       kind_ == ListenerKind::tls);
  }
  std::shared_ptr<SocketStore> join(int rank, Store::Deadline deadline = in_time()) const {
    return std::make_shared<SocketStore>(join_by(*route(rank), job_, rank, deadline), rank);
  }

  /// A connection on which nothing has been sent.
  Fd connect() const {
    const Store::Deadline deadline = in_time();
    Fd socket;
    while (!socket && std::chrono::steady_clock::now() < deadline)  // fails while the queue is full
      socket = kind_ == ListenerKind::unix_socket
                   ? net::connect_local(job_.socket_name()).socket
                   : net::connect_tcp(net::find_places(place_, deadline).places.front(), deadline)
                         .socket;
    EXPECT_TRUE(socket);
    return socket;
  }
  Random& random() const { return *random_; }

 private:
  std::string host() const { return kind_ == ListenerKind::tcp6 ? "::1" : "127.0.0.1"; }

  const ListenerKind kind_;
  const JobAddress job_;
  std::vector<Listener> listeners_;
  SocketAddress place_;
  std::unique_ptr<SystemRandom> random_ = std::make_unique<SystemRandom>();
};

/// Tests that run with each kind of listener.
class AtAnyListener : public testing::TestWithParam<ListenerKind> {
 protected:
  void SetUp() override {
    try {
      if (GetParam() == ListenerKind::tcp6) net::listen_tcp({"::1", 0});
    } catch (const Error& error) {
      GTEST_SKIP() << "this machine has no IPv6: " << error.what();
    }
  }
};

inline const auto kAllListeners = testing::Values(ListenerKind::unix_socket, ListenerKind::tcp4,
                                                  ListenerKind::tcp6, ListenerKind::tls);
inline std::string listener_name(const testing::TestParamInfo<ListenerKind>& kind) {
  return name_of(kind.param);
}

}  // namespace tutti
