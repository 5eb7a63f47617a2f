#include "common/address.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <cctype>

#include "common/text.h"

namespace tutti {
namespace {

constexpr std::size_t kMostHostBytes = 255;

// Letters of names and of numeric addresses, which may have a scope ("%eth0").
bool is_host_letter(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 ||
         std::string_view("-._:%").find(c) != std::string_view::npos;
}

}  // namespace

std::optional<SocketAddress> parse_socket_address(std::string_view text) {
  const std::size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) return std::nullopt;
  const auto port = parse_number<int>(text.substr(colon + 1));
  std::string_view host = text.substr(0, colon);
  const bool bracketed = host.size() > 2 && host.front() == '[' && host.back() == ']';
  if (bracketed) host = host.substr(1, host.size() - 2);
  const bool is_v6 = host.find(':') != std::string_view::npos;
  if (!port || *port < 1 || *port > 65'535 || bracketed != is_v6) return std::nullopt;
  if (host.empty() || host.size() > kMostHostBytes) return std::nullopt;
  if (!std::all_of(host.begin(), host.end(), is_host_letter)) return std::nullopt;
  return SocketAddress{std::string(host), *port};
}

std::string to_text(const SocketAddress& address) {
  assert(0 <= address.port && address.port <= 65'535);
  const bool is_v6 = address.host.find(':') != std::string::npos;
  return fmt::format("{}{}{}:{}", is_v6 ? "[" : "", address.host, is_v6 ? "]" : "", address.port);
}

std::vector<SocketAddress> parse_socket_addresses(std::string_view text) {
  std::vector<SocketAddress> addresses;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    if (auto address = parse_socket_address(line)) addresses.push_back(*std::move(address));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
  }
  return addresses;
}

}  // namespace tutti
