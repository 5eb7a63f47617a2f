#include "rendezvous/store/ticket.h"

#include <arpa/inet.h>
#include <fmt/format.h>

#include <cassert>
#include <cstring>

#include <tutti/error.hpp>
#include <tutti/store.hpp>

#include "common/address.h"
#include "common/log.h"
#include "net/tcp_socket.h"
#include "rendezvous/store/join.h"
#include "rendezvous/store/protocol.h"
#include "rendezvous/store/socket_store.h"
#include "rendezvous/store/way.h"

namespace tutti {
namespace rendezvous {
namespace {

constexpr char kFormat = 1;
constexpr char kTlsFlag = 1;
constexpr std::size_t kSecretBytes = 16;
static_assert(kSecretBytes >= kLeastSecretBytes);
constexpr std::size_t kFixedBytes = 2 + sizeof(std::uint64_t) + kSecretBytes + 2;
static_assert(kFixedBytes + 5 * (1 + sizeof(in6_addr)) <= kMaxTicketBytes, "five of IPv6 fit");

// Returns the 4 or 16 bytes of a numeric address; none for a name and for an address with a zone.
std::string packed(const std::string& address) {
  std::array<char, sizeof(in6_addr)> bytes;
  if (inet_pton(AF_INET, address.c_str(), bytes.data()) == 1)
    return {bytes.data(), sizeof(in_addr)};
  if (inet_pton(AF_INET6, address.c_str(), bytes.data()) == 1)
    return {bytes.data(), sizeof(in6_addr)};
  return {};
}

std::string unpacked(std::string_view bytes) {
  std::array<char, INET6_ADDRSTRLEN> text;
  const int family = bytes.size() == sizeof(in_addr) ? AF_INET : AF_INET6;
  inet_ntop(family, bytes.data(), text.data(), text.size());
  return text.data();
}

template <typename T>
T taken(std::string_view& bytes) {
  T value;
  assert(bytes.size() >= sizeof value);
  std::memcpy(&value, bytes.data(), sizeof value);
  bytes.remove_prefix(sizeof value);
  return value;
}

// All processes that use a ticket are newcomers to the server, which has no ranks.
Way way_of(const Ticket& ticket, Random& random) {
  Way way{JobAddress{0, 1, {}}, kFirstNewcomer, random.next() | 1, true, ticket.port != 0};
  way.rank += static_cast<int>(random.next() % kFirstNewcomer);
  way.secret = ticket.secret;
  way.tls = ticket.tls;
  return way;
}

}  // namespace

std::string encode(const Ticket& ticket) {
  assert(ticket.secret.bytes().size() == kSecretBytes);
  std::string bytes{kFormat, ticket.tls ? kTlsFlag : char{0}};
  const auto port = static_cast<std::uint16_t>(ticket.port);
  bytes.append(reinterpret_cast<const char*>(&ticket.server), sizeof ticket.server)
      .append(ticket.secret.bytes())
      .append(reinterpret_cast<const char*>(&port), sizeof port);
  for (const std::string& address : ticket.addresses) {
    const std::string its = packed(address);
    if (its.empty() || bytes.size() + 1 + its.size() > kMaxTicketBytes) continue;
    bytes.append(1, static_cast<char>(its.size())).append(its);
  }
  return bytes;
}

std::optional<Ticket> decode_ticket(std::string_view bytes) {
  if (bytes.size() < kFixedBytes || bytes.size() > kMaxTicketBytes || bytes[0] != kFormat ||
      (bytes[1] & ~kTlsFlag) != 0)
    return std::nullopt;
  Ticket ticket;
  ticket.tls = (bytes[1] & kTlsFlag) != 0;
  bytes.remove_prefix(2);
  ticket.server = taken<std::uint64_t>(bytes);
  ticket.secret = Secret(std::string(bytes.substr(0, kSecretBytes)));
  bytes.remove_prefix(kSecretBytes);
  ticket.port = taken<std::uint16_t>(bytes);
  while (!bytes.empty()) {
    const auto length = static_cast<std::size_t>(static_cast<unsigned char>(bytes[0]));
    if ((length != sizeof(in_addr) && length != sizeof(in6_addr)) || bytes.size() < 1 + length)
      return std::nullopt;
    ticket.addresses.push_back(unpacked(bytes.substr(1, length)));
    bytes.remove_prefix(1 + length);
  }
  if ((ticket.port == 0) != ticket.addresses.empty() || ticket.server == 0) return std::nullopt;
  return ticket;
}

}  // namespace rendezvous

std::string serve_store(const Config& config) {
  SystemRandom random;
  rendezvous::Ticket ticket;
  ticket.tls = config.tls;
  std::string secret;
  while (secret.size() < kLeastSecretBytes) {
    const std::uint64_t bits = random.next();
    secret.append(reinterpret_cast<const char*>(&bits), sizeof bits);
  }
  ticket.secret = Secret(secret);
  rendezvous::Way way = rendezvous::way_of(ticket, random);
  if (config.interfaces == "lo") way.master = SocketAddress{"127.0.0.1", 0};
  // A machine without a network serves its own processes.
  way.tcp = way.master || !net::own_addresses().empty();
  rendezvous::OpenedPlace place = rendezvous::open_place(way, random);
  ticket.server = std::stoull(place.address);
  for (SocketAddress& where : parse_socket_addresses(place.address)) {
    ticket.port = where.port;
    ticket.addresses.push_back(std::move(where.host));
  }
  serve_until_left(way.job, std::move(place.listeners), std::move(place.address));
  return encode(ticket);
}

std::shared_ptr<Store> connect_store(std::string_view ticket, Store::Deadline deadline,
                                     const Config& config) {
  const auto its = rendezvous::decode_ticket(ticket);
  if (!its)
    throw Error(
        ErrorKind::usage,
        fmt::format("{} bytes are no ticket to a store of this version of tutti", ticket.size()));
  if (its->tls != config.tls)
    throw Error(
        ErrorKind::mismatch,
        fmt::format("the store of this ticket is served with TUTTI_TLS={}, and this process "
                    "has TUTTI_TLS={}; set the same in all processes",
                    its->tls ? "yes" : "no", config.tls ? "yes" : "no"));
  SystemRandom random;
  rendezvous::Way way = rendezvous::way_of(*its, random);
  std::string address = fmt::format("{}\n", its->server);
  for (const std::string& host : its->addresses)
    address.append(to_text({host, its->port})).append("\n");
  const auto route = rendezvous::route_to(way, address, random);
  assert(route != nullptr);
  Log log(config.log_level, config.log_sink);
  rendezvous::Joined joined = rendezvous::join_store(*route, way.job, way.rank, deadline, log,
                                                     way.applying(rendezvous::kMayStandBy));
  const int rank = way.rank;
  return std::make_shared<SocketStore>(std::move(joined), rank, nullptr, nullptr, std::move(way));
}

}  // namespace tutti
