// Small pure functions on text that comes from people and from other processes.
#pragma once

#include <charconv>
#include <concepts>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tutti {

/// Returns `text` without the blanks (space, tab, carriage return) at both ends.
std::string_view trim(std::string_view text) noexcept;

/// Returns `text` in quotes for an error message: cut after 64 bytes, with '?' for unprintable
/// bytes.
std::string shown(std::string_view text);

/// Returns `text` with control characters written as \x1b, so that a terminal shows what another
/// process has written and does not obey it. Newlines and tabs stay.
std::string escape_controls(std::string_view text);

/// Returns the parts of `text` between the separators, empty parts included.
std::vector<std::string_view> split(std::string_view text, char separator);

/// Returns all `parts`, with `separator` between them.
std::string join(const std::vector<std::string>& parts, std::string_view separator);

/// Returns "rank 3", or "ranks 0-2, 5, 7", for ranks in ascending order.
std::string show_ranks(const std::vector<int>& ranks);

/// Returns the number of insertions, deletions and replacements that turn one text into the other
/// (the Levenshtein distance).
std::size_t edit_distance(std::string_view a, std::string_view b);

/// Parses `text`, all of which must be one decimal number. Returns none for anything else, and for
/// a number that T cannot represent.
template <std::integral T>
std::optional<T> parse_number(std::string_view text) noexcept {
  T value{};
  const char* end = text.data() + text.size();
  const auto result = std::from_chars(text.data(), end, value);
  if (text.empty() || result.ec != std::errc{} || result.ptr != end) return std::nullopt;
  return value;
}

}  // namespace tutti
