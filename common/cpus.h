// Sets of logical processors (cpus), and their text form in the kernel's notation: "0-3,8".
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tutti {

/// The kernel's numbers of the cpus, in ascending order, each once.
using Cpus = std::vector<int>;

/// Numbers of cpus are less than this.
inline constexpr int kMaxCpus = 65'536;

std::string to_text(const Cpus& cpus);

/// Parses a list of numbers below kMaxCpus and ranges of them. Returns none for anything else; an
/// empty text is an empty set.
std::optional<Cpus> parse_cpus(std::string_view text);

/// Parses a non-empty set for each rank of a machine. Ranks are separated by commas, the numbers
/// and ranges of one rank by `+`: "0,1" or "0-3+8-11,4-7+12-15". Returns none for anything else.
std::optional<std::vector<Cpus>> parse_cpus_of_ranks(std::string_view text);

bool contains(const Cpus& all, const Cpus& some);
Cpus unite(const Cpus& a, const Cpus& b);
Cpus intersect(const Cpus& a, const Cpus& b);

/// Returns the cpus on which the calling thread may run.
Cpus affinity();

/// Binds the calling thread, and the threads that it starts from then on, to `cpus`. Returns false,
/// with errno set, if the kernel refuses.
[[nodiscard]] bool bind_thread(const Cpus& cpus) noexcept;

}  // namespace tutti
