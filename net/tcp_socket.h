// TCP sockets over IPv4 and IPv6: finding, listening, connecting, within a deadline.
#pragma once

#include <sys/socket.h>

#include <chrono>
#include <string>
#include <vector>

#include "common/address.h"
#include "common/clock.h"
#include "common/fd.h"

namespace tutti::net {

/// A place as connect(2) takes it.
struct TcpPlace {
  sockaddr_storage address{};
  socklen_t bytes = 0;

  SocketAddress socket_address() const;  ///< Numeric; an empty host where there is none.
  std::string text() const { return to_text(socket_address()); }  ///< "10.0.0.1:29500".
};

/// A listening, non-blocking socket. At the address that `where` names, where that is a numeric one
/// of this machine, or localhost; else at all of this machine's, because how others call it says
/// little about where their packets come in. Port 0: one that is free. Throws `unavailable`, saying
/// what to do.
Fd listen_tcp(const SocketAddress& where);

/// The port at which `listener` listens.
int port_of(const Fd& listener);

struct Found {
  std::vector<TcpPlace> places;  ///< None: `why_not`. It may be known later.
  std::string why_not;
};

/// This machine's numeric addresses by which others may reach it.
std::vector<std::string> own_addresses();

/// All addresses of a host. A name server may take minutes: it is not waited for beyond `deadline`.
Found find_places(const SocketAddress& where, TimePoint deadline);

struct TcpConnecting {
  Fd socket;  ///< Non-blocking; none: `why_not`. Try again.
  std::string why_not;
};

TcpConnecting connect_tcp(const TcpPlace& place, TimePoint deadline);

/// The same without waiting: once the socket is writable, why_not_connected() says how it went.
TcpConnecting begin_tcp(const TcpPlace& place);
/// Empty: it is connected.
std::string why_not_connected(int socket);

/// What a packet and its answer take, as the kernel has seen it in the handshake.
std::chrono::microseconds round_trip_time(int socket) noexcept;
/// Within a room, or a machine: what is on its way is little, and nothing should hold it back. 0:
/// not known.
constexpr bool is_short(std::chrono::microseconds round_trip_time) noexcept {
  return round_trip_time.count() > 0 && round_trip_time < std::chrono::milliseconds(1);
}

/// What a connected socket of either end is set to: small messages leave at once, and a machine
/// that has vanished is noticed within half a minute.
void tune(int socket);

/// As tune(), of a connection between ranks: its peer may compute for minutes and leave what has
/// come unread, so that no answer to what is on its way is no news. Over a short line it does not
/// pace what it sends, whatever the system does (BBR).
void tune_data(int socket, std::chrono::microseconds round_trip_time);

}  // namespace tutti::net
