// Small pure functions on text that people and other processes have written.
#pragma once

#include <charconv>
#include <concepts>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tutti {

/// `text` without blanks (space, tab, carriage return) at both ends.
std::string_view trim(std::string_view text) noexcept;

/// `text` in quotes for an error message: cut after 64 bytes, unprintable bytes as '?'.
std::string shown(std::string_view text);

/// All `parts`, with `separator` between them.
std::string join(const std::vector<std::string>& parts, std::string_view separator);

/// Insertions, deletions and replacements that turn one into the other (Levenshtein).
std::size_t edit_distance(std::string_view a, std::string_view b);

/// The decimal number that is the whole of `text`; none for anything else, and where it does not
/// fit.
template <std::integral T>
std::optional<T> parse_number(std::string_view text) noexcept {
  T value{};
  const char* end = text.data() + text.size();
  const auto result = std::from_chars(text.data(), end, value);
  if (text.empty() || result.ec != std::errc{} || result.ptr != end) return std::nullopt;
  return value;
}

}  // namespace tutti
