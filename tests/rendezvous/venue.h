// A job's store behind one kind of door: for tests that must hold at each.
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

enum class DoorKind { unix_socket, tcp4, tcp6, tls };

inline std::string name_of(DoorKind kind) {
  switch (kind) {
    case DoorKind::unix_socket: return "Unix";
    case DoorKind::tcp4: return "Tcp4";
    case DoorKind::tcp6: return "Tcp6";
    case DoorKind::tls: break;
  }
  return "Tls";
}

/// The door is open, and whoever comes waits there, from the beginning; serve() once.
class Venue {
 public:
  Venue(DoorKind kind, int size) : kind_(kind), job_(job_of(size)) {
    if (kind == DoorKind::unix_socket) {
      doors_.push_back({rendezvous::listen_at(job_.socket_name()), std::nullopt});
    } else {
      doors_.push_back({rendezvous::listen_tcp({host(), 0}), secret(), kind == DoorKind::tls});
      place_ = {host(), rendezvous::port_of(doors_.front().listener)};
    }
  }

  const JobAddress& job() const { return job_; }
  DoorKind kind() const { return kind_; }
  const SocketAddress& place() const { return place_; }
  static Secret secret() { return Secret("what only this test knows"); }

  std::unique_ptr<StoreServer> serve(const ServerLimits& limits = {}) {
    return std::make_unique<StoreServer>(job_, std::move(doors_), limits);
  }

  /// This process's copy of the door, where another one serves.
  void close() { doors_.clear(); }

  std::unique_ptr<rendezvous::Route> route(int rank, const Secret& with = secret()) const {
    return kind_ == DoorKind::unix_socket ? rendezvous::local_route(job_, rank)
                                          : rendezvous::tcp_route(job_, rank, {place_}, with,
                                                                  *random_, kind_ == DoorKind::tls);
  }
  std::shared_ptr<SocketStore> join(int rank, Store::Deadline deadline = in_time()) const {
    return std::make_shared<SocketStore>(join_by(*route(rank), job_, rank, deadline), rank);
  }

  /// A connection that has said nothing.
  Fd connect() const {
    const Store::Deadline deadline = in_time();
    Fd socket;
    while (!socket && std::chrono::steady_clock::now() < deadline)  // none while its queue is full
      socket = kind_ == DoorKind::unix_socket
                   ? rendezvous::connect_to(job_.socket_name()).socket
                   : rendezvous::connect_tcp(
                         rendezvous::find_places(place_, deadline).places.front(), deadline)
                         .socket;
    EXPECT_TRUE(socket);
    return socket;
  }
  Random& random() const { return *random_; }

 private:
  std::string host() const { return kind_ == DoorKind::tcp6 ? "::1" : "127.0.0.1"; }

  const DoorKind kind_;
  const JobAddress job_;
  std::vector<Door> doors_;
  SocketAddress place_;
  std::unique_ptr<SystemRandom> random_ = std::make_unique<SystemRandom>();
};

/// Tests that are run at each kind of door.
class AtAnyDoor : public testing::TestWithParam<DoorKind> {
 protected:
  void SetUp() override {
    try {
      if (GetParam() == DoorKind::tcp6) rendezvous::listen_tcp({"::1", 0});
    } catch (const Error& error) {
      GTEST_SKIP() << "this machine has no IPv6: " << error.what();
    }
  }
};

inline const auto kAllDoors =
    testing::Values(DoorKind::unix_socket, DoorKind::tcp4, DoorKind::tcp6, DoorKind::tls);
inline std::string door_name(const testing::TestParamInfo<DoorKind>& kind) {
  return name_of(kind.param);
}

}  // namespace tutti
