// The server's epoll loop: it admits ranks and carries their requests and the replies.
#pragma once

#include <sys/epoll.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/clock.h"
#include "common/random.h"
#include "net/connection.h"
#include "net/handshake.h"
#include "net/pending_connections.h"
#include "rendezvous/launch/job_address.h"
#include "rendezvous/store/protocol.h"
#include "rendezvous/store/route.h"
#include "rendezvous/store/store_server.h"
#include "rendezvous/store/store_service.h"

namespace tutti::rendezvous {

/// How a server stands to the one before it and the one after it.
struct Standing {
  std::string address;  ///< This server's, see Way. If it is empty, no server stands by for it.
  int rank = 0;         ///< Of this process.
  /// The server for which this one stands by. It serves nobody until it has lost that one.
  std::optional<Joined> primary = {};
  /// Each opens a part of the place at which newcomers look for the store. It returns an empty
  /// socket while that is in use, as it is until the primary's process and its children have ended.
  std::vector<std::function<Listener()>> public_place = {};
};

/// The state of a running server. It is used by the server's thread only. Invariants: a rank is
/// taken while a member has it, newcomers have none, and each connection is either pending or
/// a member's.
class ServerLoop {
 public:
  /// `stop_fd` becomes readable when the server is to end.
  ServerLoop(const JobAddress& job, std::vector<Listener> listeners, const ServerLimits& limits,
             int stop_fd, Standing standing = {});

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
    bool may_stand_by = false, other_machine = false;
    bool here = false;           // in the process of this server
    std::size_t held_bytes = 0;  // of its replies that wait for the standby
    bool broken = false;         // there was no memory to serve it: see keep_house()

    std::size_t unsent_bytes() const noexcept { return connection.queued_bytes() + held_bytes; }
  };
  /// The server that stands by for this one.
  struct StandsBy {
    net::Connection connection;
    int rank = 0;
    std::string address = {};  // empty until it has told it
    std::uint64_t applied = 0;
    std::uint64_t copied = 0;  // the last change of the copy
    // This is set once it has the copy: replies wait for it from then on, and it is in step once it
    // has applied this change, the last of those for which none has waited.
    std::optional<std::uint64_t> in_step_at = {};
    bool in_step = false;  // it has all that this server has told anybody; clients know of it
    std::optional<TimePoint> applies_by = {};  // set while it has not applied everything
    std::uint32_t events = EPOLLIN;
    bool broken = false;  // there was no memory for what it is to be told
  };
  /// A reply that waits until the standby has applied all changes up to a number.
  struct Held {
    std::uint64_t number;
    TimePoint since;
    int fd;
    Reply reply;
    std::string bytes;
  };
  /// Whether a rank has joined. Newcomers have no such state.
  struct Membership {
    enum class State { free, taken, left } state = State::free;
    pid_t pid = 0;  // of the process that joined; 0 over TCP
  };

  void watch(int operation, int fd, std::uint32_t events);
  std::optional<TimePoint> next_deadline() const;
  void handle(const epoll_event& event);
  void keep_house();
  void part_with_broken();
  const Listener* listener_of(int fd) const;
  void watch_listeners(std::uint32_t events);
  void pause_accepting();
  void accept_some(const Listener& listener);
  std::optional<Pending> admit(const Listener& listener, Fd socket);
  bool advance(Pending& pending);
  void report_refusal(const Handshake& refused);
  bool greet(Pending& pending);
  static TimePoint now() { return std::chrono::steady_clock::now(); }
  static bool is_newcomer(std::uint32_t rank) { return rank >= kFirstNewcomer; }
  /// The descriptor of the member that has taken `rank`.
  int member_of(std::uint32_t rank) const;
  Verdict judge(const Greeting& greeting) const;
  Verdict judge_standby(const Greeting& greeting) const;
  Verdict judge_at_successor(const Greeting& greeting) const;
  void admit_member(Pending& pending, const Greeting& greeting);
  void serve(int fd);
  bool take_requests(Member& member);
  void send(int fd, const Reply& reply, std::string_view bytes);
  void deliver(int fd, const Reply& reply, std::string_view bytes);
  void queue(Member& member, const Reply& reply, std::string_view bytes);
  void break_off(Member& member);
  void break_off_standby();
  void release_held();
  bool has_room(const Member& member) const { return member.unsent_bytes() <= limits_.unsent; }
  void update_events(Member& member);
  void disconnect(int fd);
  void begin_closing();
  bool may_end() const;

  // The server for which this one stands by, in server_standby.cpp.
  bool is_primary(int fd) const;
  void serve_primary(int fd);
  void apply_changes();
  void take_over();
  void take_public_place();
  void try_public_place();

  // The server that stands by for this one.
  void watch_for_standby();
  void appoint();
  void attach_standby(net::Connection connection, int rank);
  void change(const Change& change);
  void serve_standby();
  bool hear_standby();
  /// Gives the standby a time by which it has to have applied something more.
  void await_standby();
  void flush_standby();
  void drop_standby();
  void serve_dismissed(int fd);
  void tell_successor(std::string_view address);

  const JobAddress job_;
  const ServerLimits limits_;
  const int stop_fd_;
  const Fd epoll_;
  std::vector<Listener> listeners_;
  SystemRandom random_;
  const std::shared_ptr<const net::TlsContext> tls_;  // null if no listener uses TLS
  StoreService service_;
  net::PendingConnections<Pending> pending_;
  std::map<int, Member> members_;          // indexed by descriptor
  std::vector<Membership> memberships_;    // indexed by rank
  std::optional<TimePoint> accept_again_;  // set while the listeners are paused
  std::optional<TimePoint> mend_at_;       // set once there was no memory: see keep_house()
  std::optional<TimePoint> close_by_;      // set once the server is to end
  Standing standing_;
  bool serving_ = true;     // false while this server stands by
  bool took_over_ = false;  // there was a server before this one
  bool dismissed_ = false;
  bool has_served_ = false;                   // a rank has joined
  std::uint64_t refused_ = 0;                 // the number of connections with another secret
  std::optional<TimePoint> public_place_at_;  // set while a part of the public place is missing
  std::optional<StandsBy> standby_;
  // Indexed by descriptor: connections of standbys that have yet to hear that they are dismissed.
  std::map<int, net::Connection> dismissing_;
  std::uint64_t last_change_ = 0;
  std::deque<Held> held_;
  int last_appointed_ = -1;
  std::optional<TimePoint> appoint_at_;  // set while a rank is to be appointed
};

}  // namespace tutti::rendezvous
