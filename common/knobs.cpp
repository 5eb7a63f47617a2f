#include "common/knobs.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>

#include "common/address.h"
#include "common/cpus.h"
#include "common/secret.h"
#include "common/text.h"

namespace tutti {
namespace {

struct Unit {
  char letter;
  int shift;
};
constexpr std::array<Unit, 3> kUnits{{{'G', 30}, {'M', 20}, {'K', 10}}};

std::optional<std::size_t> parse_bytes(std::string_view text) {
  int shift = 0;
  if (!text.empty())
    for (const Unit& unit : kUnits)
      if (text.back() == unit.letter || text.back() == unit.letter - 'A' + 'a') shift = unit.shift;
  if (shift != 0) text.remove_suffix(1);
  const auto number = parse_number<std::size_t>(text);
  if (!number || *number > std::numeric_limits<std::size_t>::max() >> shift) return std::nullopt;
  return *number << shift;
}

bool is_name(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
  });
}

}  // namespace

std::string write_bytes(std::size_t bytes) {
  for (const Unit& unit : kUnits)
    if (bytes != 0 && bytes % (std::size_t{1} << unit.shift) == 0)
      return fmt::format("{}{}", bytes >> unit.shift, unit.letter);
  return fmt::format("{}", bytes);
}

bool TextKnob::read(std::string_view text, Config& config) const {
  auto kept = parse(text);
  if (!kept) return false;
  config.*member = *std::move(kept);
  return true;
}

std::string TextKnob::write(const Config& config) const {
  constexpr std::string_view kHidden = "(set, not shown)";
  static_assert(kHidden.size() >= kLeastSecretBytes);
  const std::string& value = config.*member;
  return secret && !value.empty() ? std::string(kHidden) : value;
}

std::optional<std::string> parse_any(std::string_view text) { return std::string(text); }

std::optional<std::string> parse_device(std::string_view text) {
  if (text != "none" && text != "rank" && parse_number<unsigned short>(text) == std::nullopt)
    return std::nullopt;
  return std::string(text);
}

std::optional<std::string> parse_signal(std::string_view text) {
  const std::string_view name = trim(text);
  const bool known = name == "none" || name == "USR1" || name == "USR2";
  return known ? std::optional<std::string>(name) : std::nullopt;
}

std::optional<std::string> parse_name(std::string_view text) {
  const std::string_view name = trim(text);
  return is_name(name) ? std::optional<std::string>(name) : std::nullopt;
}

std::optional<std::string> parse_names(std::string_view text) {
  std::string names;
  for (const std::string_view part : split(text, ',')) {
    const auto name = parse_name(part);
    if (!name) return std::nullopt;
    names.append(names.empty() ? "" : ",").append(*name);
  }
  return names;
}

std::optional<std::string> parse_binding(std::string_view text) {
  if (text != "none" && text != "auto" && !parse_cpus_of_ranks(text)) return std::nullopt;
  return std::string(text);
}

std::optional<std::string> parse_store(std::string_view text) {
  constexpr std::string_view kTcp = "tcp://", kFile = "file:///";
  const bool tcp =
      text.starts_with(kTcp) && parse_socket_address(text.substr(kTcp.size())).has_value();
  const bool file = text.starts_with(kFile) && text.size() > kFile.size();
  if (text != "auto" && !tcp && !file) return std::nullopt;
  return std::string(text);
}

std::optional<std::string> parse_interfaces(std::string_view text) {
  const auto is_letter = [](char c) { return c > ' ' && c < 127 && c != '/' && c != '^'; };
  for (const std::string_view name : split(text.substr(text.starts_with('^') ? 1 : 0), ','))
    if (name.empty() || !std::all_of(name.begin(), name.end(), is_letter)) return std::nullopt;
  return std::string(text);
}

std::optional<std::string> parse_secret(std::string_view text) {
  if (!text.empty() && text.size() < kLeastSecretBytes) return std::nullopt;
  return std::string(text);
}

bool BytesKnob::read(std::string_view text, Config& config) const {
  const auto bytes = parse_bytes(text);
  if (!bytes) return false;
  if (*bytes != 0 && (*bytes < least || *bytes > most || *bytes % multiple != 0)) return false;
  config.*member = *bytes;
  return true;
}

std::string BytesKnob::write(const Config& config) const { return write_bytes(config.*member); }

std::string BytesKnob::range() const {
  return fmt::format("0 or {}..{}, a multiple of {}", write_bytes(least), write_bytes(most),
                     multiple);
}

}  // namespace tutti
