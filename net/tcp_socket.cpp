#include "net/tcp_socket.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>

#include <array>
#include <cassert>
#include <cerrno>
#include <cstring>
#include <memory>

#include <tutti/error.hpp>

#include "common/text.h"
#include "common/thread.h"
#include "net/connection.h"
#include "net/this_machine.h"

namespace tutti::net {
namespace {

constexpr int kKeepIdleS = 10, kKeepIntervalS = 5, kKeepCount = 4;

const sockaddr* generic(const sockaddr_storage& address) noexcept {
  return reinterpret_cast<const sockaddr*>(&address);
}

void set_option(int socket, int level, int option, int value) {
  assert(socket >= 0);
  static_cast<void>(setsockopt(socket, level, option, &value, sizeof value));
}

Fd plain_socket(int family) {
  return Fd(socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

std::string congestion_control(int socket) {
  std::array<char, 64> name{};
  socklen_t bytes = name.size() - 1;
  if (getsockopt(socket, IPPROTO_TCP, TCP_CONGESTION, name.data(), &bytes) != 0) return {};
  return name.data();
}

bool set_congestion_control(int socket, std::string_view name) {
  return setsockopt(socket, IPPROTO_TCP, TCP_CONGESTION, name.data(),
                    static_cast<socklen_t>(name.size())) == 0;
}

// BBR paces packets with timers at the rate that it has measured. At short round-trip times, where
// ranks send in bursts and wait for each other, that rate is too low and the packets are sent too
// late (docs/performance.md). It has to be replaced before the socket connects, since a socket that
// has begun to pace keeps doing so.
bool is_bbr(std::string_view name) { return name.starts_with("bbr"); }

Fd new_socket(int family) {
  Fd made = plain_socket(family);
  if (made && is_bbr(congestion_control(made.get())) &&
      !set_congestion_control(made.get(), "cubic"))
    static_cast<void>(set_congestion_control(made.get(), "reno"));
  return made;
}

// Restores BBR if it is the system's default: at long round-trip times with packet loss it is by
// far the fastest.
void take_system_congestion_control(int socket) {
  const Fd fresh = plain_socket(AF_INET);
  const std::string name = fresh ? congestion_control(fresh.get()) : std::string();
  if (is_bbr(name)) static_cast<void>(set_congestion_control(socket, name));
}

Found look_up(const SocketAddress& where, int flags) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags | AI_NUMERICSERV;
  addrinfo* first = nullptr;
  const int error =
      getaddrinfo(where.host.c_str(), std::to_string(where.port).c_str(), &hints, &first);
  Found found;
  if (error != 0) {
    found.why_not = fmt::format("the name {} is not known: {}", shown(where.host),
                                error == EAI_SYSTEM ? std::strerror(errno) : gai_strerror(error));
    return found;
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> list(first, freeaddrinfo);
  for (const addrinfo* at = list.get(); at != nullptr; at = at->ai_next) {
    TcpPlace place;
    place.bytes =
        static_cast<socklen_t>(std::min<std::size_t>(at->ai_addrlen, sizeof place.address));
    std::memcpy(&place.address, at->ai_addr, place.bytes);
    found.places.push_back(place);
  }
  return found;
}

// The addresses to try, in order of preference. [::] comes first because it accepts IPv4 as well.
std::vector<TcpPlace> places_to_listen(const SocketAddress& where) {
  const bool localhost = strcasecmp(where.host.c_str(), "localhost") == 0;
  const SocketAddress numeric{localhost ? "127.0.0.1" : where.host, where.port};
  Found found = look_up(numeric, AI_NUMERICHOST);
  if (!found.places.empty() && is_this_machine(numeric.host)) return found.places;
  std::vector<TcpPlace> any = look_up({"::", where.port}, AI_NUMERICHOST).places;
  const std::vector<TcpPlace> any_v4 = look_up({"0.0.0.0", where.port}, AI_NUMERICHOST).places;
  any.insert(any.end(), any_v4.begin(), any_v4.end());
  return any;
}

// Whether a socket is connected to itself. That happens when a socket connects to a free port of
// this machine and the kernel assigns the same port to its own end.
bool is_connected_to_itself(int socket) {
  TcpPlace own;
  own.bytes = sizeof own.address;
  const TcpPlace other = peer_place(socket);
  return getsockname(socket, reinterpret_cast<sockaddr*>(&own.address), &own.bytes) == 0 &&
         own.bytes == other.bytes && std::memcmp(&own.address, &other.address, own.bytes) == 0;
}

// The predicate of an error message whose subject is the address.
std::string why_refused(int error) {
  switch (error) {
    case ECONNREFUSED: return "refuses the connection: nobody listens there";
    case ETIMEDOUT: return "does not answer: is the machine up, does a firewall drop packets?";
    default: return fmt::format("cannot be reached: {}", std::strerror(error));
  }
}

// A port is given where rank 0 serves the others, and is 0 where any rank is to be reached.
std::string why_not_listening(const SocketAddress& where, int error) {
  if (error == EADDRINUSE)
    return "the port is in use, by another job or another program; choose another port";
  if (error == EMFILE) return "too many open files; raise the limit (ulimit -n)";
  const std::string why = std::strerror(error);
  return where.port == 0 ? why
                         : why + "; see whether MASTER_ADDR names the machine on which rank 0 runs";
}

}  // namespace

SocketAddress TcpPlace::socket_address() const {
  assert(bytes <= sizeof address);
  std::array<char, NI_MAXHOST> host{};
  std::array<char, NI_MAXSERV> port{};
  if (getnameinfo(generic(address), bytes, host.data(), host.size(), port.data(), port.size(),
                  NI_NUMERICHOST | NI_NUMERICSERV) != 0)
    return {};
  return {host.data(), parse_number<int>(port.data()).value_or(0)};
}

TcpPlace peer_place(int socket) noexcept {
  TcpPlace place;
  place.bytes = sizeof place.address;
  if (getpeername(socket, reinterpret_cast<sockaddr*>(&place.address), &place.bytes) != 0)
    return {};
  return place;
}

Fd listen_tcp(const SocketAddress& where) {
  assert(0 <= where.port && where.port <= 65'535);
  int error = 0;
  for (const TcpPlace& place : places_to_listen(where)) {
    Fd socket = new_socket(place.address.ss_family);
    if (!socket) {
      error = errno;
      continue;
    }
    set_option(socket.get(), SOL_SOCKET, SO_REUSEADDR, 1);  // despite a previous job's TIME_WAIT
    if (place.address.ss_family == AF_INET6) set_option(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, 0);
    if (bind(socket.get(), generic(place.address), place.bytes) == 0 &&
        listen(socket.get(), SOMAXCONN) == 0)
      return socket;
    error = errno;
    if (error == EADDRINUSE) break;
  }
  throw Error(ErrorKind::unavailable,
              fmt::format("{} cannot listen at {}: {}", where.port == 0 ? "this rank" : "rank 0",
                          to_text(where), why_not_listening(where, error)));
}

int port_of(const Fd& listener) {
  assert(listener);
  TcpPlace place;
  place.bytes = sizeof place.address;
  if (getsockname(listener.get(), reinterpret_cast<sockaddr*>(&place.address), &place.bytes) != 0)
    return 0;
  return place.socket_address().port;
}

std::vector<std::string> own_addresses() {
  std::vector<std::string> texts;
  ifaddrs* first = nullptr;
  if (getifaddrs(&first) != 0) return texts;
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> list(first, freeifaddrs);
  for (const ifaddrs* at = list.get(); at != nullptr; at = at->ifa_next) {
    const bool usable = (at->ifa_flags & IFF_UP) != 0 && (at->ifa_flags & IFF_LOOPBACK) == 0;
    if (!usable || at->ifa_addr == nullptr) continue;
    TcpPlace place;
    if (at->ifa_addr->sa_family == AF_INET) place.bytes = sizeof(sockaddr_in);
    if (at->ifa_addr->sa_family == AF_INET6) place.bytes = sizeof(sockaddr_in6);
    std::memcpy(&place.address, at->ifa_addr, place.bytes);
    const std::string host = place.socket_address().host;
    // A link-local address is valid on its own link only.
    if (!host.empty() && host.find('%') == std::string::npos) texts.push_back(host);
  }
  return texts;
}

Found find_places(const SocketAddress& where, const Patience& patience) {
  if (Found numeric = look_up(where, AI_NUMERICHOST); !numeric.places.empty()) return numeric;
  const auto found = call_within(patience, [where] { return look_up(where, AI_ADDRCONFIG); });
  if (found) return *found;
  return {{}, fmt::format("no name server has said where {} is", shown(where.host))};
}

TcpConnecting begin_tcp(const TcpPlace& place) {
  assert(0 < place.bytes && place.bytes <= sizeof place.address);
  Fd socket = new_socket(place.address.ss_family);
  if (!socket) return {{}, why_refused(errno)};
  if (connect(socket.get(), generic(place.address), place.bytes) != 0 && errno != EINPROGRESS &&
      errno != EINTR)
    return {{}, why_refused(errno)};
  return {std::move(socket), {}};
}

std::string why_not_connected(int socket) {
  assert(socket >= 0);
  int error = 0;
  socklen_t bytes = sizeof error;
  if (getsockopt(socket, SOL_SOCKET, SO_ERROR, &error, &bytes) != 0) error = errno;
  if (error == 0 && is_connected_to_itself(socket)) error = ECONNREFUSED;
  return error == 0 ? std::string() : why_refused(error);
}

TcpConnecting connect_tcp(const TcpPlace& place, const Patience& patience) {
  TcpConnecting connecting = begin_tcp(place);
  std::string why = connecting.why_not;
  if (connecting.socket) {
    const int fd = connecting.socket.get();
    why = await_events(fd, POLLOUT, patience) ? why_not_connected(fd) : why_refused(ETIMEDOUT);
  }
  if (!why.empty()) return {{}, fmt::format("{} {}", place.text(), why)};
  tune(connecting.socket.get());
  return connecting;
}

void tune(int socket) {
  tune_data(socket, {});
  set_option(socket, IPPROTO_TCP, TCP_USER_TIMEOUT,
             (kKeepIdleS + kKeepIntervalS * kKeepCount) * 1000);
}

std::chrono::microseconds round_trip_time(int socket) noexcept {
  assert(socket >= 0);
  tcp_info info{};
  socklen_t bytes = sizeof info;
  if (getsockopt(socket, IPPROTO_TCP, TCP_INFO, &info, &bytes) != 0) return {};
  return std::chrono::microseconds(info.tcpi_rtt);
}

void tune_data(int socket, std::chrono::microseconds round_trip_time) {
  if (!is_short(round_trip_time)) take_system_congestion_control(socket);
  set_option(socket, IPPROTO_TCP, TCP_NODELAY, 1);
  set_option(socket, SOL_SOCKET, SO_KEEPALIVE, 1);
  set_option(socket, IPPROTO_TCP, TCP_KEEPIDLE, kKeepIdleS);
  set_option(socket, IPPROTO_TCP, TCP_KEEPINTVL, kKeepIntervalS);
  set_option(socket, IPPROTO_TCP, TCP_KEEPCNT, kKeepCount);
}

}  // namespace tutti::net
