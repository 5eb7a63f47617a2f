#include "rendezvous/store/ticket.h"

#include <arpa/inet.h>

#include <array>
#include <cassert>
#include <cstring>

#include <tutti/store.hpp>

namespace tutti::rendezvous {
namespace {

constexpr char kFormat = 1;
constexpr char kTlsFlag = 1, kFirstFlag = 2;
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

}  // namespace

std::string encode(const Ticket& ticket) {
  assert(ticket.secret.bytes().size() == kSecretBytes);
  const int flags = (ticket.tls ? kTlsFlag : 0) | (ticket.comes_first ? kFirstFlag : 0);
  std::string bytes{kFormat, static_cast<char>(flags)};
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
      (bytes[1] & ~(kTlsFlag | kFirstFlag)) != 0)
    return std::nullopt;
  Ticket ticket;
  ticket.tls = (bytes[1] & kTlsFlag) != 0;
  ticket.comes_first = (bytes[1] & kFirstFlag) != 0;
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
  const bool is_name = ticket.comes_first && ticket.addresses.empty();
  if ((ticket.port == 0) != (ticket.addresses.empty() && !is_name) || ticket.server == 0)
    return std::nullopt;
  return ticket;
}

}  // namespace tutti::rendezvous
