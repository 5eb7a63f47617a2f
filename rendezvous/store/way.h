// How a process reaches the servers of its job's store: the first one, and those that follow it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/address.h"
#include "common/random.h"
#include "common/secret.h"
#include "rendezvous/launch/job_address.h"
#include "rendezvous/store/join.h"
#include "rendezvous/store/route.h"
#include "rendezvous/store/store_server.h"

namespace tutti::rendezvous {

/// What a process needs in order to go to another server, and to be one. A server's address, as it
/// is told to others, is a line with the number of its Unix socket (JobAddress::server, 0 if it has
/// none), and a line for each place at which TCP reaches it.
struct Way {
  JobAddress job;
  int rank = 0;
  std::uint64_t client = 0;  ///< See Greeting::client.
  bool local = true;         ///< The servers listen at Unix sockets.
  bool tcp = false;          ///< They listen for other machines, with `secret` and `tls`.
  /// The next server takes over the place at which newcomers look for the store.
  bool passes_place_on = true;
  Secret secret = {};
  bool tls = false;
  /// Where newcomers look for the store by TCP; none where rank 0 has chosen the place.
  std::optional<SocketAddress> master = {};

  Applying applying(std::uint32_t flags) const { return {flags, client}; }
};

/// A server's own listeners, and its address.
struct OpenedPlace {
  std::vector<Listener> listeners;
  std::string address;
};

/// Opens listeners for a server in this process. Throws `unavailable`.
OpenedPlace open_place(const Way& way, Random& random);
/// Each opens a listener at which newcomers look for the store, or returns one with an empty socket
/// if its name is in use.
std::vector<std::function<Listener()>> public_place(const Way& way);

/// The route to the server at `address`: by its Unix socket where that is on this machine, else by
/// TCP. The route uses `random` as long as it exists. Returns null for what is no address.
std::unique_ptr<Route> route_to(const Way& way, const std::string& address, Random& random);

/// The addresses at which others may reach `listener`, one in each line.
std::string places_of(const Listener& listener);

}  // namespace tutti::rendezvous
