#include "transport/queue_pair/ports.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "common/text.h"
#include "transport/mesh/address.h"

namespace tutti::qp {
namespace {

namespace fs = std::filesystem;

constexpr int kMostPorts = 16;

// Returns the first line of one of the kernel's files, or an empty string.
std::string line_of(const fs::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// Returns the number at the beginning of "100 Gb/sec (4X EDR)", at least 1.
std::int64_t rate_of(std::string_view line) {
  const auto number = parse_number<std::int64_t>(line.substr(0, line.find_first_of(". ")));
  return std::clamp<std::int64_t>(number.value_or(1), 1, 10'000);
}

}  // namespace

std::vector<Port> active_ports(std::string_view pattern, const std::string& folder) {
  std::vector<Port> ports;
  std::error_code error;
  for (const fs::directory_entry& device : fs::directory_iterator(folder, error)) {
    const std::string name = device.path().filename();
    // It is a channel adapter: other nodes (iWARP) cannot connect queue pairs by hand.
    if (!mesh::allows(pattern, name) || !line_of(device.path() / "node_type").starts_with("1:"))
      continue;
    for (int number = 1; number <= kMostPorts; ++number) {
      const fs::path port = device.path() / "ports" / std::to_string(number);
      if (!line_of(port / "state").starts_with("4:")) continue;  // ACTIVE
      ports.push_back({name, static_cast<std::uint8_t>(number),
                       line_of(port / "link_layer") == "Ethernet",
                       rate_of(line_of(port / "rate"))});
    }
  }
  std::sort(ports.begin(), ports.end(), [](const Port& a, const Port& b) {
    return std::pair(std::string_view(a.device), a.number) <
           std::pair(std::string_view(b.device), b.number);
  });
  return ports;
}

}  // namespace tutti::qp
