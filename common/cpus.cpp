#include "common/cpus.h"

#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cassert>
#include <iterator>

#include "common/text.h"

namespace tutti {
namespace {

// A mask of kMaxCpus bits in the kernel's layout: a cpu_set_t has room for only 1024.
constexpr int kWordBits = 8 * sizeof(unsigned long);
using Mask = std::array<unsigned long, kMaxCpus / kWordBits>;

cpu_set_t* as_set(Mask& mask) { return reinterpret_cast<cpu_set_t*>(mask.data()); }

std::optional<Cpus> parse_range(std::string_view text) {
  const std::size_t dash = text.find('-');
  const auto first = parse_number<int>(text.substr(0, dash));
  const auto last =
      dash == std::string_view::npos ? first : parse_number<int>(text.substr(dash + 1));
  if (!first || !last || *first < 0 || *last < *first || *last >= kMaxCpus) return std::nullopt;
  Cpus cpus;
  for (int cpu = *first; cpu <= *last; ++cpu) cpus.push_back(cpu);
  return cpus;
}

/// Parses at least one range; ranges are separated by `separator`.
std::optional<Cpus> parse_ranges(std::string_view text, char separator) {
  Cpus cpus;
  for (const std::string_view part : split(text, separator)) {
    const auto range = parse_range(trim(part));
    if (!range) return std::nullopt;
    cpus = unite(cpus, *range);
  }
  return cpus;
}

}  // namespace

std::string to_text(const Cpus& cpus) {
  std::string text;
  for (auto first = cpus.begin(); first != cpus.end();) {
    auto last = first;
    while (std::next(last) != cpus.end() && *std::next(last) == *last + 1) ++last;
    text += fmt::format("{}{}", text.empty() ? "" : ",", *first);
    if (last != first) text += fmt::format("-{}", *last);
    first = std::next(last);
  }
  return text;
}

std::optional<Cpus> parse_cpus(std::string_view text) {
  text = trim(text);
  return text.empty() ? std::optional(Cpus()) : parse_ranges(text, ',');
}

std::optional<std::vector<Cpus>> parse_cpus_of_ranks(std::string_view text) {
  std::vector<Cpus> ranks;
  for (const std::string_view part : split(text, ',')) {
    auto cpus = parse_ranges(part, '+');
    if (!cpus) return std::nullopt;
    ranks.push_back(*std::move(cpus));
  }
  return ranks;
}

bool contains(const Cpus& all, const Cpus& some) {
  assert(std::is_sorted(all.begin(), all.end()) && std::is_sorted(some.begin(), some.end()));
  return std::includes(all.begin(), all.end(), some.begin(), some.end());
}

Cpus unite(const Cpus& a, const Cpus& b) {
  assert(std::is_sorted(a.begin(), a.end()) && std::is_sorted(b.begin(), b.end()));
  Cpus both;
  std::set_union(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(both));
  return both;
}

Cpus intersect(const Cpus& a, const Cpus& b) {
  assert(std::is_sorted(a.begin(), a.end()) && std::is_sorted(b.begin(), b.end()));
  Cpus common;
  std::set_intersection(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(common));
  return common;
}

Cpus affinity() {
  Mask mask{};
  Cpus cpus;
  if (sched_getaffinity(0, sizeof mask, as_set(mask)) == 0)
    for (std::size_t i = 0; i < mask.size(); ++i)
      for (unsigned long word = mask[i]; word != 0; word &= word - 1)
        cpus.push_back(static_cast<int>(i) * kWordBits + std::countr_zero(word));
  if (cpus.empty())  // a sandbox does not permit the system call
    for (int cpu = 0; cpu < std::max(1L, sysconf(_SC_NPROCESSORS_ONLN)); ++cpu) cpus.push_back(cpu);
  assert(!cpus.empty() && std::is_sorted(cpus.begin(), cpus.end()));
  return cpus;
}

bool bind_thread(const Cpus& cpus) noexcept {
  assert(!cpus.empty() && cpus.front() >= 0 && cpus.back() < kMaxCpus);
  Mask mask{};
  for (const int cpu : cpus)
    mask[static_cast<std::size_t>(cpu / kWordBits)] |= 1ul << (cpu % kWordBits);
  return sched_setaffinity(0, sizeof mask, as_set(mask)) == 0;
}

}  // namespace tutti
