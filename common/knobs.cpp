#include "common/knobs.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <optional>

#include "common/address.h"
#include "common/cpus.h"
#include "common/log.h"
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

bool NamesKnob::read(std::string_view text, Config& config) const {
  std::string names;
  for (std::string_view rest = text;;) {
    const std::size_t comma = several ? rest.find(',') : std::string_view::npos;
    const std::string_view name = trim(rest.substr(0, comma));
    if (!is_name(name)) return false;
    names.append(names.empty() ? "" : ",").append(name);
    if (comma == std::string_view::npos) break;
    rest.remove_prefix(comma + 1);
  }
  config.*member = std::move(names);
  return true;
}

std::string NamesKnob::range() const {
  return several ? "auto, or names with commas between" : "auto, or a name";
}

bool PathKnob::read(std::string_view text, Config& config) const {
  config.*member = text;
  return true;
}

bool TimeKnob::read(std::string_view text, Config& config) const {
  const auto count = parse_number<std::int64_t>(text);
  if (!count || *count < least.count() || *count > most.count()) return false;
  config.*member = std::chrono::milliseconds(*count);
  return true;
}

std::string TimeKnob::write(const Config& config) const {
  return fmt::format("{}", (config.*member).count());
}

std::string TimeKnob::range() const {
  return fmt::format("{}..{} milliseconds", least.count(), most.count());
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

bool CountKnob::read(std::string_view text, Config& config) const {
  const auto count = parse_number<int>(text);
  if (!count || *count < least || *count > most) return false;
  config.*member = *count;
  return true;
}

std::string CountKnob::write(const Config& config) const {
  return fmt::format("{}", config.*member);
}

std::string CountKnob::range() const { return fmt::format("{}..{}", least, most); }

bool LevelKnob::read(std::string_view text, Config& config) const {
  for (const LogLevel level : {LogLevel::error, LogLevel::warn, LogLevel::info, LogLevel::debug}) {
    if (to_string(level) != text) continue;
    config.*member = level;
    return true;
  }
  return false;
}

std::string LevelKnob::write(const Config& config) const {
  return std::string(to_string(config.*member));
}

namespace {

std::string_view name_of(Accumulate accumulate) {
  switch (accumulate) {
    case Accumulate::step: return "step";
    case Accumulate::f32: return "f32";
    case Accumulate::reproducible: return "reproducible";
    case Accumulate::as_configured: break;
  }
  return "as_configured";  // which is none here
}

}  // namespace

bool AccumulateKnob::read(std::string_view text, Config& config) const {
  for (const Accumulate value : {Accumulate::step, Accumulate::f32, Accumulate::reproducible})
    if (text == name_of(value)) {
      config.*member = value;
      return true;
    }
  return false;
}

std::string AccumulateKnob::write(const Config& config) const {
  return std::string(name_of(config.*member));
}

bool BindKnob::read(std::string_view text, Config& config) const {
  if (text != "none" && text != "auto" && !parse_cpus_of_ranks(text)) return false;
  config.*member = text;
  return true;
}

bool StoreKnob::read(std::string_view text, Config& config) const {
  constexpr std::string_view kTcp = "tcp://";
  const bool tcp =
      text.starts_with(kTcp) && parse_socket_address(text.substr(kTcp.size())).has_value();
  const bool known = text == "auto" || tcp || (text.starts_with("file:///") && text.size() > 8);
  if (!known) return false;
  config.*member = text;
  return true;
}

bool InterfacesKnob::read(std::string_view text, Config& config) const {
  std::string_view rest = text.substr(text.starts_with('^') ? 1 : 0);
  for (bool more = true; more;) {
    const std::size_t comma = rest.find(',');
    const std::string_view name = rest.substr(0, comma);
    const auto is_letter = [](char c) { return c > ' ' && c < 127 && c != '/' && c != '^'; };
    if (name.empty() || !std::all_of(name.begin(), name.end(), is_letter)) return false;
    more = comma != std::string_view::npos;
    if (more) rest.remove_prefix(comma + 1);
  }
  config.*member = text;
  return true;
}

bool SecretKnob::read(std::string_view text, Config& config) const {
  if (!text.empty() && text.size() < kLeastSecretBytes) return false;
  config.*member = text;
  return true;
}

std::string SecretKnob::write(const Config& config) const {
  constexpr std::string_view kHidden = "(set, not shown)";
  static_assert(kHidden.size() >= kLeastSecretBytes);
  return std::string((config.*member).empty() ? "" : kHidden);
}

std::string SecretKnob::range() const { return fmt::format("{} bytes or more", kLeastSecretBytes); }

bool SwitchKnob::read(std::string_view text, Config& config) const {
  const bool on = text == "yes" || text == "1";
  if (!on && text != "no" && text != "0") return false;
  config.*member = on;
  return true;
}

}  // namespace tutti
