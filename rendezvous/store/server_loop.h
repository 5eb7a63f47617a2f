// The server's loop over its sockets: who may join, and bytes to and from those who have.
#pragma once

#include <sys/epoll.h>

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "common/clock.h"
#include "common/random.h"
#include "net/authentication.h"
#include "net/connection.h"
#include "rendezvous/launch/job_address.h"
#include "rendezvous/store/protocol.h"
#include "rendezvous/store/store_server.h"
#include "rendezvous/store/store_service.h"

namespace tutti::rendezvous {

/// Own thread only. Invariants: every stranger is a guest without a rank; a seat is taken while a
/// guest has its rank; guests_ holds at most two guests a rank and ServerLimits::strangers more.
/// A guest that has proved that it knows the secret is no longer a stranger: it is not cut for
/// being slow nor in favour of later guests. There are at most as many of these as ranks.
class ServerLoop {
 public:
  /// `stop_fd` becomes readable when the server is to end.
  ServerLoop(const JobAddress& job, std::vector<Listener> listeners, const ServerLimits& limits,
             int stop_fd);

  /// Returns after the stop, when all ranks have left or have lingered long enough.
  void run();

 private:
  struct Guest {
    Connection connection;
    std::uint32_t events = EPOLLIN;         // what epoll watches it for
    int rank = -1;                          // -1 until it has greeted
    bool proved = false;                    // It knows the secret and has not greeted yet.
    std::optional<AuthAcceptor> handshake;  // none at a listener where the kernel says who comes
    bool tls = false;                       // its listener's
    bool encrypted = false;
    TimePoint greet_by;
    std::list<int>::iterator stranger;  // in strangers_, while rank < 0 and not proved
  };
  struct Seat {
    enum class State { free, taken, left } state = State::free;
    pid_t pid = 0;  // of who took it
  };

  void watch(int operation, int fd, std::uint32_t events);
  std::optional<TimePoint> next_deadline() const;
  void handle(const epoll_event& event);
  const Listener* listener_of(int fd) const;
  void accept_some(const Listener& listener);
  void watch_listeners(std::uint32_t events);
  void pause_accepting();
  void admit(const Listener& listener, Fd socket);
  std::size_t most_strangers() const { return limits_.strangers + seats_.size(); }
  void serve(int fd);
  bool shake_hands(Guest& guest);
  bool authenticate(Guest& guest);
  void believe(Guest& guest);
  void strike_off(Guest& guest);
  void report_refusal(const AuthAcceptor& handshake);
  static bool encrypt(Guest& guest);
  bool greet(Guest& guest);
  Verdict judge(const Greeting& greeting) const;
  bool take_requests(Guest& guest);
  void send(int fd, const Reply& reply, std::string_view bytes);
  void update_events(Guest& guest);
  void cut(int fd);
  void begin_closing();
  bool may_end() const;
  bool invariants() const;

  const JobAddress job_;
  const ServerLimits limits_;
  const int stop_fd_;
  const Fd epoll_;
  const std::vector<Listener> listeners_;
  SystemRandom random_;
  const std::shared_ptr<const TlsContext> tls_;  // null: no listener needs it
  StoreService service_;
  std::map<int, Guest> guests_;            // by descriptor
  std::list<int> strangers_;               // the oldest first
  std::vector<Seat> seats_;                // by rank
  std::size_t taken_ = 0;                  // seats
  std::size_t proved_ = 0;                 // guests, at most one for each seat
  std::optional<TimePoint> accept_again_;  // set while there are no descriptors for new guests
  std::optional<TimePoint> close_by_;      // set once the server is to end
};

}  // namespace tutti::rendezvous
