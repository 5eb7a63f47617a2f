// How ranks get their connections: of each two, the higher one calls the lower one.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/fd.h"
#include "net/handshake.h"
#include "net/pending_connections.h"
#include "net/stream.h"
#include "net/tcp_socket.h"
#include "transport/context.h"
#include "transport/tcp/address.h"
#include "transport/tcp/frame.h"

namespace tutti::tcp {

/// With two connections a peer and 1024 descriptors, which is what a process often may have, half
/// are left for other things.
inline constexpr std::size_t kMostWithLifelines = 256;

/// By rank.
struct Connections {
  explicit Connections(std::size_t ranks)
      : data(ranks), lifelines(ranks <= kMostWithLifelines ? ranks : 0) {}

  std::vector<net::Stream> data;
  std::vector<net::Stream> lifelines;  ///< Empty: there are more ranks than kMostWithLifelines.
};

/// One use, in one thread. Strangers at this rank's port are bounded by PendingConnections.
class Join {
 public:
  /// `addresses` by rank; none: there is no connection to that rank. `listener` is this rank's.
  Join(const TransportContext& context, const Secret& secret,
       const std::vector<std::optional<Address>>& addresses, const Fd& listener);

  /// Throws `timeout` naming the ranks that never came and what was met on the way to
  /// them, `mismatch` where a secret is another one.
  Connections run(TimePoint deadline);

 private:
  struct Caller {  // to a lower rank
    Use use = Use::data;
    int rank = 0;
    std::size_t place = 0;                                        // of its address, at which it is
    int rounds = 0;                                               // through all of its places
    Fd socket;                                                    // while it is being connected
    std::optional<net::Handshake<net::AuthInitiator>> handshake;  // once it is connected
    TimePoint give_up{};                                          // this place
    TimePoint next_try{};
    std::string obstacle;
    net::AuthFailure refused = net::AuthFailure::none;
  };
  using Guest = net::Handshake<net::AuthAcceptor>;

  void call(Caller& caller, TimePoint now);
  void connect(Caller& caller, TimePoint now);
  void shake_hands(Caller& caller, TimePoint now);
  void be_joined(Caller& caller, TimePoint now);
  void give_up(Caller& caller, std::string why, TimePoint now);
  void check_refusals(const Caller& caller) const;
  Guest guest_of(Fd socket);
  bool hear(Guest& guest);
  bool complete() const;
  bool is_peer(std::size_t rank) const {
    return addresses_[rank] && static_cast<int>(rank) != context_.rank;
  }
  bool has_lifelines() const { return !joined_.lifelines.empty(); }
  bool is_joined(std::size_t rank) const {
    return joined_.data[rank] && (!has_lifelines() || joined_.lifelines[rank]);
  }
  net::Stream& joined(const Caller& caller) {
    auto& connections = caller.use == Use::data ? joined_.data : joined_.lifelines;
    return connections[static_cast<std::size_t>(caller.rank)];
  }
  void wait(TimePoint deadline);
  [[noreturn]] void refuse_late();
  const Address& address(int rank) const { return *addresses_[static_cast<std::size_t>(rank)]; }

  const TransportContext& context_;
  const Secret& secret_;
  const std::vector<std::optional<Address>>& addresses_;
  const Fd& listener_;
  const std::shared_ptr<const net::TlsContext> tls_;  // null: nothing is encrypted
  std::vector<Caller> callers_;
  Connections joined_;
  net::PendingConnections<Guest> pending_;
};

}  // namespace tutti::tcp
