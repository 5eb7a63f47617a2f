// TCP sockets over IPv4 and IPv6: name resolution, listening and connecting, with deadlines.
#pragma once

#include <sys/socket.h>

#include <chrono>
#include <string>
#include <vector>

#include "common/address.h"
#include "common/fd.h"
#include "common/patience.h"

namespace tutti::net {

/// A socket address in the form that connect(2) takes.
struct TcpPlace {
  sockaddr_storage address{};
  socklen_t bytes = 0;

  SocketAddress socket_address() const;  ///< Numeric; the host is empty if there is no address.
  std::string text() const { return to_text(socket_address()); }  ///< "10.0.0.1:29500".
};

/// Returns the address of the other end; it has no bytes where that is not known.
TcpPlace peer_place(int socket) noexcept;

/// Returns a listening, non-blocking socket. It is bound to the host of `where` if that is a
/// numeric address of this machine, or localhost; otherwise to all addresses of this machine,
/// because a host name does not tell at which interface the packets of others arrive. Port 0 means
/// any free port. Throws `unavailable` with advice for the user.
Fd listen_tcp(const SocketAddress& where);

/// The port at which `listener` listens; 0 if the kernel does not report it.
int port_of(const Fd& listener);

/// The result of a name look-up.
struct Found {
  std::vector<TcpPlace> places;  ///< Empty if the look-up failed; a later one may succeed.
  std::string why_not;           ///< Why it failed.
};

/// The numeric addresses of this machine at which others may reach it.
std::vector<std::string> own_addresses();

/// Looks up all addresses of a host. It returns in time, even if a name server has not answered,
/// which may take minutes.
Found find_places(const SocketAddress& where, const Patience& patience);

/// The result of an attempt to connect.
struct TcpConnecting {
  Fd socket;            ///< Non-blocking; empty if the attempt failed. The caller may try again.
  std::string why_not;  ///< Why it failed.
};

/// Connects, and blocks as long as `patience` lasts at most.
TcpConnecting connect_tcp(const TcpPlace& place, const Patience& patience);

/// Begins to connect and does not block. Once the socket is writable, why_not_connected() gives the
/// result.
TcpConnecting begin_tcp(const TcpPlace& place);
/// Why the attempt to connect `socket` failed; empty if it is connected.
std::string why_not_connected(int socket);

/// The round-trip time that the kernel has estimated; 0 if it is not known.
std::chrono::microseconds round_trip_time(int socket) noexcept;
/// Whether a round-trip time is below 1 ms, as within a machine or a machine room. Few bytes are
/// then in flight and the sender should not be paced. False for 0, which means unknown.
constexpr bool is_short(std::chrono::microseconds round_trip_time) noexcept {
  return round_trip_time.count() > 0 && round_trip_time < std::chrono::milliseconds(1);
}

/// Sets the options of a connected socket, at either end: small messages are sent at once
/// (TCP_NODELAY), and the loss of the peer's machine is detected within half a minute (keepalive
/// and TCP_USER_TIMEOUT).
void tune(int socket);

/// Sets the options of a connection between ranks: those of tune() without TCP_USER_TIMEOUT, since
/// a peer may compute for minutes and leave received bytes unread. If is_short(`round_trip_time`),
/// the connection does not use BBR, which paces its packets, even if that is the system's default.
void tune_data(int socket, std::chrono::microseconds round_trip_time);

}  // namespace tutti::net
