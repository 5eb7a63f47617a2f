// The handshake by which the ranks of a communicator connect: every rank connects to the lower
// ranks and accepts connections of the higher ones.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/fd.h"
#include "net/local_socket.h"
#include "net/pending_connections.h"
#include "transport/context.h"
#include "transport/shm/address.h"
#include "transport/shm/packet.h"

namespace tutti::shm {

/// The descriptors and memory that a rank holds of a peer after the handshake.
struct Link {
  /// The connection. It stays open, carries the descriptors of rings, and ends with the peer.
  Fd socket;
  Fd process;  ///< A pidfd, or none where the kernel or a namespace hides the process.
  pid_t pid = 0;
  Fd status_page;           ///< The memory of the peer's status page, for reading.
  Fd bell;                  ///< The peer's doorbell, or none where it never sleeps.
  bool membarrier = false;  ///< Doorbell::membarrier() of the peer.
};

/// Returns a socket that listens at `address`, for Join. Throws `unavailable`.
Fd listen_at(const Address& address);

/// Performs the handshake with all peers, once and by one thread. Only a caller that knows both
/// identities is a rank; other callers, and those that send nothing, are dropped without an answer.
/// A caller's greeting is read before the caller is dropped in favour of later ones. A call that
/// ends without an answer is repeated until the other end no longer listens.
class Join {
 public:
  /// `addresses` is indexed by rank and includes this rank's own. Ranks without an identity are
  /// left out.
  Join(const TransportContext& context, std::span<const Address> addresses, const Fd& listener,
       int status_page);

  /// Returns the links by rank; this rank's own is empty. Throws `timeout` naming the ranks that
  /// never came, `peer_lost` where one of them has ended, and `unavailable` where this machine does
  /// not permit it.
  std::vector<Link> run(TimePoint deadline);

 private:
  struct Greeting;
  struct Peer {
    enum class State {
      absent,
      called,   // A lower rank with a connection, to which no greeting could be sent yet.
      greeted,  // A lower rank that has not answered yet.
      heard,    // A higher rank that has greeted and could not be answered yet.
      joined,
    } state = State::absent;
    Fd call;             // Open while the peer is called or greeted.
    Link link;           // Filled once the peer is heard or joined.
    int unanswered = 0;  // The number of calls that it closed without an answer.
  };

  [[maybe_unused]] bool is_sound() const;
  void speak(TimePoint now);
  void back_off(TimePoint now);
  net::LocalConnecting connect_to(int rank) const;
  [[noreturn]] void refuse_files() const;
  bool call(int rank);
  bool greet_called(int rank);
  bool answer(int rank);
  void hang_up(Peer& peer);
  void look_for_missing();
  TimePoint next_event() const;
  void wait_and_hear(TimePoint until);
  bool hear_guest(Fd& socket);
  void hear_answer(int rank);
  std::optional<int> rank_of(const Greeting& greeting) const;
  Sent greet(const Fd& socket, int rank) const;
  void link(int rank, Fd socket, Descriptors descriptors, const Greeting& greeting);
  void be_joined(Peer& peer);
  std::string missing_ranks() const;
  std::string named(int rank) const;
  [[noreturn]] void gone(int rank) const;

  const TransportContext& context_;
  const std::span<const Address> addresses_;
  const Fd& listener_;
  const int status_page_;
  std::vector<Peer> peers_;
  int missing_;
  int calls_ = 0;  // The number of peers that are called or greeted.
  int most_calls_;
  TimePoint speak_again_{};  // Nothing is sent before this time.
  std::chrono::milliseconds pause_;
  CheckTimes look_times_;
  int missing_then_;    // How many were missing at the last look.
  int next_looked_at_;  // The rank at which the next look begins.

  struct Guest {  // A caller that has not sent its greeting, which is what authenticates it.
    Fd socket;
    int fd() const noexcept { return socket.get(); }
    static bool has_proved() noexcept { return false; }
  };
  net::PendingConnections<Guest> pending_;
};

}  // namespace tutti::shm
