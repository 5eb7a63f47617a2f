#include "topology/pci_bus.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <system_error>

#include "common/text.h"
#include "topology/first_line.h"

namespace tutti {
namespace {

constexpr int kMostLanesOfLink = 64;

/// Returns the number at the beginning of the text, such as "16.0 GT/s PCIe", or 0.
double number_before_unit(const std::string& text) {
  double number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

/// Returns the lesser of two texts that begin with numbers, or the one that does.
std::string lesser(const std::string& a, const std::string& b) {
  const double one = number_before_unit(a), other = number_before_unit(b);
  if (one <= 0 || other <= 0) return one > 0 ? a : b;
  return one <= other ? a : b;
}

}  // namespace

std::optional<std::uint64_t> pci_number(std::string_view text) {
  // The domain has four digits or more, a bus and a device two, and a function one.
  constexpr std::size_t kLeastDomain = 4, kMostDomain = 8, kBehindDomain = 8;
  if (text.size() < kLeastDomain + kBehindDomain || text.size() > kMostDomain + kBehindDomain)
    return std::nullopt;
  const std::size_t domain = text.size() - kBehindDomain;
  if (text[domain] != ':' || text[domain + 3] != ':' || text[domain + 6] != '.')
    return std::nullopt;
  std::uint64_t number = 0;
  for (const auto& [begin, digits, bits] : std::array<std::array<std::size_t, 3>, 4>{
           {{0, domain, 32}, {domain + 1, 2, 8}, {domain + 4, 2, 5}, {domain + 7, 1, 3}}}) {
    unsigned value = 0;
    const char* const end = text.data() + begin + digits;
    const auto read = std::from_chars(text.data() + begin, end, value, 16);
    if (read.ec != std::errc() || read.ptr != end || (bits < 32 && value >> bits != 0))
      return std::nullopt;
    number = number << bits | value;
  }
  return number;
}

std::vector<std::string> PciBus::way_to(const std::filesystem::path& device) const {
  std::error_code unresolved;
  const std::filesystem::path folder =
      std::filesystem::canonical(device, unresolved)
          .lexically_relative(std::filesystem::canonical(sys_, unresolved));
  std::vector<std::string> way;
  for (const std::filesystem::path& part : folder) {
    const std::string name = part.string();
    // A controller may be the root of a bus of its own, in a domain of its own.
    const bool is_root = name.starts_with("pci") && name.find(':') != std::string::npos;
    if (is_root) way.clear();
    if (is_root || (!way.empty() && pci_number(name))) way.push_back(name);
  }
  return way;
}

std::vector<std::pair<std::string, std::string>> PciBus::attributes(
    const std::vector<std::string>& way) const {
  std::vector<std::pair<std::string, std::string>> found{{"busid", way.back()}};
  const std::filesystem::path device = folder() / way.back();
  const auto add = [&](const char* name, std::string value) {
    if (!value.empty()) found.emplace_back(name, std::move(value));
  };
  for (const char* const name :
       {"class", "vendor", "device", "subsystem_vendor", "subsystem_device"})
    add(name, first_line(device / name));
  // The first place of a way is the root of the bus, which has no link.
  const bool has_port = way.size() > 2;
  const std::filesystem::path port = has_port ? folder() / way[way.size() - 2] : device;
  for (const auto& [name, file] : std::array<std::pair<const char*, const char*>, 2>{
           {{"link_speed", "max_link_speed"}, {"link_width", "max_link_width"}}}) {
    const std::string value = lesser(first_line(device / file), first_line(port / file));
    // The system says 255 lanes, or an unknown speed, of a device without such a link.
    const bool is_width = std::string_view(name) == "link_width";
    const auto lanes = parse_number<int>(value);
    const bool sane = !is_width || (lanes && *lanes <= kMostLanesOfLink);
    if (sane && number_before_unit(value) > 0) add(name, value);
  }
  return found;
}

}  // namespace tutti
