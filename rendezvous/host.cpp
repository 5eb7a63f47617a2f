#include "rendezvous/host.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <fstream>
#include <vector>

#include "common/text.h"

namespace tutti {

std::string_view machine_of(std::string_view host) { return host.substr(0, host.find('/')); }

// The ID is read once, since each start-up asks for it several times.
const std::string& boot_id() {
  static const std::string id = [] {
    std::string read;
    std::ifstream("/proc/sys/kernel/random/boot_id") >> read;
    return read;
  }();
  return id;
}

std::string host_identity() {
  const std::string& boot = boot_id();
  struct stat network {};
  if (!boot.empty() && stat("/proc/self/ns/net", &network) == 0)
    return fmt::format("{}/{}", boot, network.st_ino);
  std::array<char, 256> name{};  // there is no /proc
  gethostname(name.data(), name.size() - 1);
  return name.data();
}

std::string to_text(const Location& location) {
  return fmt::format("{} {} {}", location.host, to_text(location.cpus), location.place);
}

std::optional<Location> parse_location(std::string_view text) {
  const std::vector<std::string_view> words = split(text, ' ');
  if (words.size() != 3) return std::nullopt;
  auto cpus = parse_cpus(words[1]);
  const auto place = parse_number<int>(words[2]);
  if (!cpus || !place || *place < 0) return std::nullopt;
  return Location{std::string(words[0]), *std::move(cpus), *place};
}

}  // namespace tutti
