// How the ranks of a new communicator connect: each publishes what transports it offers, and every
// pair of ranks uses the best one that both have (transport/routes.h).
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <tutti/store.hpp>

#include "transport/own_page.h"
#include "transport/routes.h"

namespace tutti {

/// What a rank brings to the connecting of a communicator that has newcomers: connections to the
/// other ranks, the peers, that it has already.
struct KeptConnections {
  std::shared_ptr<OwnPage> page;         ///< What `transport` shows, and what others are to show.
  std::unique_ptr<Transport> transport;  ///< Connected to these peers; null where there are none.
  /// Whether each rank is one of these peers, of which this rank is none; empty where there are
  /// none.
  std::vector<bool> peers;
};

/// One rank's part in connecting a communicator, used once. Where all ranks turn out to use the
/// transport that each made ahead, their first exchange is the only one.
class Connecting {
 public:
  /// Makes the transport that this rank would use for a peer like itself, unless connections over
  /// it may fail. `context` is what the rank expects to be agreed. Throws `unavailable` on a rank
  /// that has peers elsewhere and can make none.
  Connecting(RouteCandidates candidates, const TransportContext& context);

  /// Two texts for the exchange in which ranks introduce themselves. No other start has this
  /// address, whether it is one or a random number.
  const std::string& offers() const noexcept { return offers_; }
  const std::string& address() const noexcept { return address_; }

  struct Outcome {
    std::unique_ptr<Transport> transport;
    RouteTable::Summary links;
  };
  /// Connects this rank to all others. `offers` and `addresses` have the two texts of each rank;
  /// `agreed` is this rank's context now that all have introduced themselves, and `as_expected`
  /// says that it is on every rank what that rank expected. Further exchanges go by `store`, under
  /// keys that begin with `prefix`. Both contexts say of the peers of `kept` that they are reached
  /// elsewhere, and have its page. Throws what transports, exchange() and RouteTable throw.
  Outcome connect(const Texts& offers, const Texts& addresses, const TransportContext& agreed,
                  bool as_expected, Store& store, std::string_view prefix, TimePoint deadline,
                  KeptConnections kept);

 private:
  RouteCandidates candidates_;
  std::string offers_, address_;
  std::unique_ptr<Transport> transport_;  // the one made ahead; null if none was
};

}  // namespace tutti
