#include "perf/environment.h"

#include <fmt/format.h>

#include <strings.h>

#include <algorithm>
#include <cassert>
#include <charconv>
#include <climits>
#include <cstdlib>
#include <string_view>
#include <utility>

#include <tutti/error.hpp>

namespace tutti::perf {
namespace {

std::optional<double> number_in_environment(const char* name) {
  const char* text = std::getenv(name);
  if (text == nullptr) return std::nullopt;
  char* end = nullptr;
  const double number = std::strtod(text, &end);
  if (end == text || *end != '\0' || !(number >= 0))
    throw Error(ErrorKind::usage, fmt::format("{}={}: expected a number", name, text));
  return number;
}

std::optional<unsigned> whole_number(std::string_view digits, int base) {
  assert(2 <= base && base <= 16);
  unsigned number = 0;
  const auto [stop, error] =
      std::from_chars(digits.data(), digits.data() + digits.size(), number, base);
  const bool whole = error == std::errc() && stop == digits.data() + digits.size();
  return whole && number <= INT_MAX ? std::optional(number) : std::nullopt;
}

/// Reads a number as C writes it, or a binary one.
std::optional<unsigned> prefixed_number(std::string_view text) {
  const std::string_view prefix = text.substr(0, 2);
  if (prefix == "0x" || prefix == "0X") return whole_number(text.substr(2), 16);
  if (prefix == "0b" || prefix == "0B") return whole_number(text.substr(2), 2);
  return whole_number(text, text.starts_with('0') ? 8 : 10);
}

/// NCCL_TESTS_SPLIT_MASK comes before NCCL_TESTS_SPLIT. It is hexadecimal with or without a prefix.
Split split_in_environment() {
  const char* name = "NCCL_TESTS_SPLIT_MASK";
  std::optional<Split> split;
  const char* text = std::getenv(name);
  if (text != nullptr) {
    std::string_view digits(text);
    if (digits.starts_with("0x") || digits.starts_with("0X")) digits.remove_prefix(2);
    if (const auto mask = whole_number(digits, 16))
      split = {Split::By::bit_and, static_cast<int>(*mask)};
  } else {
    name = "NCCL_TESTS_SPLIT";
    text = std::getenv(name);
    if (text == nullptr) return {};
    split = parse_split(text);
  }
  if (split) return *split;
  throw Error(ErrorKind::usage,
              fmt::format("{}={}: expected {}", name, text,
                          name == std::string_view("NCCL_TESTS_SPLIT")
                              ? "AND, OR, MOD or DIV (or & | % /) and a number, such as MOD 2"
                              : "a hexadecimal number, such as 0x7"));
}

}  // namespace

void read_environment(Options& options) {
  for (const char* name : {"NCCL_TESTS_ALLTOALLV_MATRIX_FILE", "NCCL_TESTS_ALLTOALLV_PRINT_SUMMARY",
                           "NCCL_TESTS_DEVICE"})
    if (std::getenv(name) != nullptr)
      throw Error(ErrorKind::unavailable,
                  fmt::format("{} is set, which tutti-perf does not have: unset it", name));
  options.split = split_in_environment();
  options.min_bus_gb_s = number_in_environment("NCCL_TESTS_MIN_BW");
  options.alltoallv_spread =
      std::min(1.0, number_in_environment("NCCL_TESTS_ALLTOALLV_SPREAD").value_or(1));
}

int Split::color(int rank) const noexcept {
  switch (by) {
    case By::nothing: return 0;
    case By::bit_and: return rank & number;
    case By::bit_or: return rank | number;
    case By::remainder: return rank % number;
    case By::quotient: return rank / number;
  }
  assert(false);
  return 0;
}

std::optional<Split> parse_split(std::string_view text) {
  constexpr std::pair<std::string_view, Split::By> kSplits[] = {
      {"AND", Split::By::bit_and},  {"&", Split::By::bit_and},     {"OR", Split::By::bit_or},
      {"|", Split::By::bit_or},     {"MOD", Split::By::remainder}, {"%", Split::By::remainder},
      {"DIV", Split::By::quotient}, {"/", Split::By::quotient}};
  for (const auto& [name, by] : kSplits) {
    if (::strncasecmp(text.data(), name.data(), std::min(name.size(), text.size())) != 0 ||
        text.size() < name.size())
      continue;
    std::string_view number = text.substr(name.size());
    while (number.starts_with(' ')) number.remove_prefix(1);
    const auto value = prefixed_number(number);
    const bool divides = by == Split::By::remainder || by == Split::By::quotient;
    if (!value || (divides && *value == 0)) return std::nullopt;
    return Split{by, static_cast<int>(*value)};
  }
  return std::nullopt;
}

}  // namespace tutti::perf
