#include "transport/mesh/address.h"

#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <cerrno>
#include <cstring>
#include <memory>

#include <tutti/error.hpp>

#include "common/text.h"
#include "net/this_machine.h"

namespace tutti::mesh {
namespace {

constexpr std::string_view kTitle = "tutti tcp 1";
constexpr std::string_view kNothing = "-";
static_assert(kMostPlaces * (INET6_ADDRSTRLEN + 8) < 4096, "a transport's longest address");

std::string_view take_line(std::string_view& text) {
  const std::string_view line = text.substr(0, text.find('\n'));
  text.remove_prefix(std::min(text.size(), line.size() + 1));
  return line;
}

// Returns the numeric address, or an empty string where it is no IP address or is valid only on its
// own link.
std::string host_of(const sockaddr* address) {
  if (address == nullptr) return {};
  const socklen_t bytes = address->sa_family == AF_INET    ? sizeof(sockaddr_in)
                          : address->sa_family == AF_INET6 ? sizeof(sockaddr_in6)
                                                           : 0;
  std::array<char, NI_MAXHOST> host{};
  if (bytes == 0 ||
      getnameinfo(address, bytes, host.data(), host.size(), nullptr, 0, NI_NUMERICHOST) != 0)
    return {};
  const std::string text = host.data();
  return text.find('%') == std::string::npos ? text : std::string();
}

// Whether the interface is a bridge for containers or virtual machines of this machine, through
// which other machines rarely connect.
bool is_bridge(std::string_view interface) {
  constexpr std::array<std::string_view, 4> kBridges{"docker", "virbr", "br-", "cni"};
  return std::any_of(kBridges.begin(), kBridges.end(),
                     [&](std::string_view name) { return interface.starts_with(name); });
}

}  // namespace

std::string Address::to_string() const {
  const std::string_view key = secret ? secret.bytes() : kNothing;
  std::string text = fmt::format("{}\n{:016x}\n{}\n{}\n", kTitle, identity, host, key);
  for (const SocketAddress& place : places) text.append(tutti::to_text(place)).append("\n");
  return text;
}

std::optional<Address> Address::parse(std::string_view text) {
  Address address;
  if (take_line(text) != kTitle) return std::nullopt;
  const std::string_view identity = take_line(text);
  if (identity.size() != 16) return std::nullopt;
  for (const char digit : identity) {
    const auto value = std::string_view("0123456789abcdef").find(digit);
    if (value == std::string_view::npos) return std::nullopt;
    address.identity = address.identity << 4 | value;
  }
  address.host = take_line(text);
  const std::string_view secret = take_line(text);
  if (secret.empty() || address.host.empty()) return std::nullopt;
  if (secret != kNothing) address.secret = Secret(std::string(secret));
  while (!text.empty()) {
    auto place = parse_socket_address(take_line(text));
    if (!place || address.places.size() == kMostPlaces) return std::nullopt;
    address.places.push_back(*std::move(place));
  }
  return address;
}

void reach_from(std::string_view host, Address& peer) {
  const auto loopback = std::stable_partition(
      peer.places.begin(), peer.places.end(),
      [](const SocketAddress& place) { return !net::is_loopback(place.host); });
  if (peer.host == host)
    std::rotate(peer.places.begin(), loopback, peer.places.end());
  else
    peer.places.erase(loopback, peer.places.end());
}

bool allows(std::string_view pattern, std::string_view interface) {
  if (pattern == "auto") return true;
  const bool excludes = pattern.starts_with('^');
  if (excludes) pattern.remove_prefix(1);
  for (const std::string_view prefix : split(pattern, ','))
    if (!prefix.empty() && interface.starts_with(prefix)) return !excludes;
  return excludes;
}

std::vector<std::string> own_hosts(std::string_view pattern) {
  ifaddrs* first = nullptr;
  if (getifaddrs(&first) != 0)
    throw Error(ErrorKind::unavailable,
                fmt::format("the network interfaces of this machine cannot be listed: {}; raise "
                            "the limit of open files (ulimit -n) if that is it",
                            std::strerror(errno)));
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> list(first, freeifaddrs);
  std::vector<std::pair<int, std::string>> found;  // each with its order of preference
  for (const ifaddrs* at = list.get(); at != nullptr; at = at->ifa_next) {
    if ((at->ifa_flags & IFF_UP) == 0 || !allows(pattern, at->ifa_name)) continue;
    std::string host = host_of(at->ifa_addr);
    if (host.empty()) continue;
    const int order = (at->ifa_flags & IFF_LOOPBACK) != 0 ? 2 : is_bridge(at->ifa_name) ? 1 : 0;
    found.emplace_back(order, std::move(host));
  }
  std::stable_sort(found.begin(), found.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  if (found.size() > kMostPlaces) found.resize(kMostPlaces);
  std::vector<std::string> hosts;
  for (auto& [order, host] : found) hosts.push_back(std::move(host));
  assert(hosts.size() <= kMostPlaces);
  return hosts;
}

}  // namespace tutti::mesh
