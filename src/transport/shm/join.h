// How the ranks of a communicator find each other: every rank calls the lower ones and is called by
// the higher ones.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/fd.h"
#include "transport/context.h"
#include "transport/shm/address.h"
#include "transport/shm/packet.h"

namespace tutti::shm {

/// What a rank holds of a peer once they have greeted each other.
struct Link {
  Fd socket;   ///< Stays open: carries rings, and ends with the peer.
  Fd process;  ///< A pidfd; none where the kernel or a namespace hides the process.
  pid_t pid = 0;
  Fd board;                 ///< Memory of the peer's board, for reading.
  Fd bell;                  ///< The peer's doorbell; none: it never sleeps.
  bool membarrier = false;  ///< As Doorbell::membarrier(), the peer's.
};

/// A socket that listens under `address`, for why_not() and Join. Throws `unavailable`.
Fd listen_at(const Address& address);

/// One joining, by one thread. Strangers, garbage and callers that say nothing are dropped without
/// a word to them: only who knows both identities is a rank. Who has said so is heard before it is
/// dropped for those who come after it.
class Join {
 public:
  /// `addresses` by rank, this rank's own included.
  Join(const TransportContext& context, std::span<const Address> addresses, const Fd& listener,
       const Fd& board);

  /// Links by rank, the own one empty. Throws `timeout` naming the ranks that never came,
  /// `peer_lost` when one of them has left, `unavailable` where this machine forbids it.
  std::vector<Link> run(TimePoint deadline);

 private:
  struct Greeting;
  struct Peer {
    bool joined = false;
    Fd call;  // to a lower rank that has not answered yet
    Link link;
  };

  void make_calls();
  void call(int rank);
  void wait_and_hear(TimePoint until);
  void accept_guests();
  void make_room();
  void hear_guest(Fd& guest);
  void hear_answer(int rank);
  std::optional<int> rank_of(const Greeting& greeting) const;
  Sent greet(const Fd& socket, int rank) const;
  void seat(int rank, Fd socket, Descriptors descriptors, const Greeting& greeting);
  std::string missing_ranks() const;
  std::string named(int rank) const;
  [[noreturn]] void gone(int rank) const;

  const TransportContext& context_;
  const std::span<const Address> addresses_;
  const Fd& listener_;
  const Fd& board_;
  std::vector<Peer> peers_;
  std::vector<Fd> guests_;  // accepted, not greeted yet; the oldest first
  int missing_;
};

}  // namespace tutti::shm
