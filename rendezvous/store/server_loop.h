// The server's epoll loop: it admits ranks and carries their requests and the replies.
#pragma once

#include <sys/epoll.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "common/clock.h"
#include "common/random.h"
#include "net/connection.h"
#include "net/handshake.h"
#include "net/pending_connections.h"
#include "rendezvous/launch/job_address.h"
#include "rendezvous/store/protocol.h"
#include "rendezvous/store/store_server.h"
#include "rendezvous/store/store_service.h"

namespace tutti::rendezvous {

/// The state of a running server. It is used by the server's thread only. Invariants: a seat is
/// taken while a member has its rank, newcomers have none, and each connection is either pending or
/// a member's.
class ServerLoop {
 public:
  /// `stop_fd` becomes readable when the server is to end.
  ServerLoop(const JobAddress& job, std::vector<Listener> listeners, const ServerLimits& limits,
             int stop_fd);

  /// Serves until `stop_fd` is readable and then until all ranks have left, at most
  /// ServerLimits::linger.
  void run();

 private:
  using Handshake = net::Handshake<net::AuthAcceptor>;
  /// A connection that has not sent its greeting yet.
  struct Pending {
    /// Set over TCP. A Unix socket uses `connection` instead, and the kernel identifies its peer.
    std::optional<Handshake> handshake;
    net::Connection connection;

    net::Connection& stream() { return handshake ? handshake->connection() : connection; }
    int fd() const { return handshake ? handshake->fd() : connection.fd(); }
    bool has_proved() const { return handshake && handshake->has_proved(); }
  };
  /// A rank that has joined.
  struct Member {
    net::Connection connection;
    int rank = 0;
    std::uint32_t events = EPOLLIN;  // the events for which epoll watches the connection
  };
  /// Whether a rank has joined. Newcomers have no seats.
  struct Seat {
    enum class State { free, taken, left } state = State::free;
    pid_t pid = 0;  // of the process that joined; 0 over TCP
  };

  void watch(int operation, int fd, std::uint32_t events);
  std::optional<TimePoint> next_deadline() const;
  void handle(const epoll_event& event);
  const Listener* listener_of(int fd) const;
  void watch_listeners(std::uint32_t events);
  void pause_accepting();
  void accept_some(const Listener& listener);
  std::optional<Pending> admit(const Listener& listener, Fd socket);
  bool advance(Pending& pending);
  void report_refusal(const net::AuthAcceptor& proof);
  bool greet(Pending& pending);
  static bool is_newcomer(std::uint32_t rank) { return rank >= kFirstNewcomer; }
  /// The descriptor of the member that has taken `rank`.
  int member_of(std::uint32_t rank) const;
  Verdict judge(const Greeting& greeting) const;
  void serve(int fd);
  bool take_requests(Member& member);
  void send(int fd, const Reply& reply, std::string_view bytes);
  void update_events(Member& member);
  void disconnect(int fd);
  void begin_closing();
  bool may_end() const;

  const JobAddress job_;
  const ServerLimits limits_;
  const int stop_fd_;
  const Fd epoll_;
  const std::vector<Listener> listeners_;
  SystemRandom random_;
  const std::shared_ptr<const net::TlsContext> tls_;  // null if no listener uses TLS
  StoreService service_;
  net::PendingConnections<Pending> pending_;
  std::map<int, Member> members_;          // indexed by descriptor
  std::vector<Seat> seats_;                // indexed by rank
  std::optional<TimePoint> accept_again_;  // set while the listeners are paused
  std::optional<TimePoint> close_by_;      // set once the server is to end
};

}  // namespace tutti::rendezvous
