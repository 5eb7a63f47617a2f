// The handshake by which ranks connect: of each two, the higher rank connects to the lower one.
#pragma once

#include <cassert>
#include <cstdint>
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
#include "transport/mesh/address.h"

namespace tutti::mesh {

/// Says what a connection is for.
enum class Use : std::int32_t {
  data,      ///< The transport sends what it wants over it.
  lifeline,  ///< Ends when the process ends; see lifelines.h.
};

/// The initiator's first bytes after the handshake, which say that it keeps this connection.
struct Opening {
  static constexpr std::uint32_t kMagic = 0x6e65706f;  // "open"
  std::uint32_t magic = kMagic;
  Use use = Use::data;
};
static_assert(sizeof(Opening) == 8 && sizeof(Use) == 4);

/// The most ranks with which there are lifelines. With two connections for each peer, half of the
/// 1024 descriptors that a process often may have are left for other things.
inline constexpr std::size_t kMostWithLifelines = 256;
static_assert(2 * kMostWithLifelines <= 1024 / 2);

/// The connections that have been made, indexed by rank.
struct Connections {
  explicit Connections(std::size_t ranks)
      : data(ranks), lifelines(ranks <= kMostWithLifelines ? ranks : 0) {}

  std::vector<net::Stream> data;
  /// Empty where there are more ranks than kMostWithLifelines.
  std::vector<net::Stream> lifelines;
};

/// Makes the connections to all peers, once and in one thread. PendingConnections limits the number
/// of unauthenticated callers.
class Join {
 public:
  /// `addresses` is indexed by rank; there is no connection to a rank without an address.
  /// `listener` is this rank's.
  Join(const TransportContext& context, const Secret& secret,
       const std::vector<std::optional<Address>>& addresses, const Fd& listener);

  /// Returns the connections. Throws `timeout` naming the ranks that never came and the obstacles
  /// met on the way to them, and `mismatch` where a secret differs.
  Connections run(TimePoint deadline);

 private:
  struct Caller {  // a connection attempt to a lower rank
    Use use = Use::data;
    int rank = 0;
    std::size_t place = 0;  // index of the place that is tried
    int rounds = 0;         // number of passes through all places
    Fd socket;              // open while it is being connected
    std::optional<net::Handshake<net::AuthInitiator>> handshake;  // present once it is connected
    TimePoint give_up{};                                          // when to give this place up
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
  bool advance_greeting(Guest& guest);
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
  void wait(TimePoint until);
  [[noreturn]] void refuse_late();
  const Address& address(int rank) const {
    assert(rank >= 0 && addresses_[static_cast<std::size_t>(rank)].has_value());
    return *addresses_[static_cast<std::size_t>(rank)];
  }

  const TransportContext& context_;
  const Secret& secret_;
  const std::vector<std::optional<Address>>& addresses_;
  const Fd& listener_;
  const std::shared_ptr<const net::TlsContext> tls_;  // null where nothing is encrypted
  std::vector<Caller> callers_;
  Connections joined_;
  net::PendingConnections<Guest> pending_;
};

}  // namespace tutti::mesh
