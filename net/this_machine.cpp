#include "net/this_machine.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <strings.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <memory>

namespace tutti::net {
namespace {

struct AnyAddress {
  int family = AF_UNSPEC;
  std::array<unsigned char, sizeof(in6_addr)> bytes{};

  bool operator==(const AnyAddress&) const = default;
};

AnyAddress parse_address(const std::string& text) {
  AnyAddress parsed;
  const std::string bare = text.substr(0, text.find('%'));  // without a zone, as in fe80::1%eth0
  for (const int family : {AF_INET, AF_INET6})
    if (inet_pton(family, bare.c_str(), parsed.bytes.data()) == 1) parsed.family = family;
  return parsed;
}

AnyAddress interface_address(const sockaddr& address) {
  AnyAddress found;
  if (address.sa_family == AF_INET) {
    sockaddr_in v4;
    std::memcpy(&v4, &address, sizeof v4);
    std::memcpy(found.bytes.data(), &v4.sin_addr, sizeof v4.sin_addr);
  } else if (address.sa_family == AF_INET6) {
    sockaddr_in6 v6;
    std::memcpy(&v6, &address, sizeof v6);
    std::memcpy(found.bytes.data(), &v6.sin6_addr, sizeof v6.sin6_addr);
  } else {
    return found;
  }
  found.family = address.sa_family;
  return found;
}

bool is_local_interface(const AnyAddress& wanted) {
  ifaddrs* first = nullptr;
  if (getifaddrs(&first) != 0) return false;
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> list(first, freeifaddrs);
  for (const ifaddrs* at = list.get(); at != nullptr; at = at->ifa_next)
    if (at->ifa_addr != nullptr && interface_address(*at->ifa_addr) == wanted) return true;
  return false;
}

// A short name matches a full one: "node7" is "node7.cluster.org". Two full names must be equal.
bool is_own_name(const std::string& name) {
  std::array<char, 256> buffer{};
  if (gethostname(buffer.data(), buffer.size() - 1) != 0) return false;
  const std::string own(buffer.data());
  if (strcasecmp(name.c_str(), own.c_str()) == 0) return true;
  const std::size_t dot = name.find('.'), own_dot = own.find('.');
  if ((dot == std::string::npos) == (own_dot == std::string::npos)) return false;
  return strcasecmp(name.substr(0, dot).c_str(), own.substr(0, own_dot).c_str()) == 0;
}

}  // namespace

bool is_loopback(const std::string& address) {
  if (strcasecmp(address.c_str(), "localhost") == 0) return true;
  const AnyAddress parsed = parse_address(address);
  return (parsed.family == AF_INET && parsed.bytes[0] == 127) || parsed == parse_address("::1");
}

bool is_this_machine(const std::string& address) {
  if (is_loopback(address)) return true;
  const AnyAddress parsed = parse_address(address);
  return parsed.family == AF_UNSPEC ? is_own_name(address) : is_local_interface(parsed);
}

}  // namespace tutti::net
