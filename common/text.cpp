#include "common/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

namespace tutti {

std::string_view trim(std::string_view text) noexcept {
  constexpr std::string_view kBlanks = " \t\r";
  const std::size_t first = text.find_first_not_of(kBlanks);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kBlanks) - first + 1);
}

std::string shown(std::string_view text) {
  constexpr std::size_t kMostBytes = 64;
  std::string out = "'";
  for (const char c : text.substr(0, kMostBytes)) out += c >= ' ' && c <= '~' ? c : '?';
  out += text.size() > kMostBytes ? "...'" : "'";
  return out;
}

std::string escape_controls(std::string_view text) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string out;
  out.reserve(text.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    // The controls U+0080 to U+009F are written as two bytes in UTF-8.
    const bool second = i > 0 && text[i - 1] == '\xc2' && byte >= 0x80 && byte <= 0x9f;
    if ((byte >= ' ' && byte != 0x7f && !second) || byte == '\n' || byte == '\t')
      out += text[i];
    else
      out.append("\\x") += {kDigits[byte >> 4], kDigits[byte & 15]};
  }
  return out;
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (;;) {
    const std::size_t end = text.find(separator);
    parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

std::string join(const std::vector<std::string>& parts, std::string_view separator) {
  std::string out;
  for (const std::string& part : parts) {
    if (&part != &parts.front()) out += separator;
    out += part;
  }
  return out;
}

std::size_t edit_distance(std::string_view a, std::string_view b) {
  // The distances between the first i bytes of a and each prefix of b.
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i + 1;
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, diagonal + 1, row[j] + 1});
    }
  }
  return row.back();
}

std::string show_ranks(const std::vector<int>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < ranks.size();) {
    std::size_t end = i + 1;
    while (end < ranks.size() && ranks[end] == ranks[end - 1] + 1) ++end;
    text += i == 0 ? "" : ", ";
    text += end - i > 2 ? fmt::format("{}-{}", ranks[i], ranks[end - 1]) : std::to_string(ranks[i]);
    i = end - i > 2 ? end : i + 1;
  }
  return text;
}

}  // namespace tutti
