// Sets of logical processors, and their text in the kernel's notation: "0-3,8".
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tutti {

/// The kernel's numbers, ascending, each once.
using Cpus = std::vector<int>;

inline constexpr int kMaxCpus = 65'536;

std::string to_text(const Cpus& cpus);

/// None for what is no list of numbers below kMaxCpus and ranges of them; empty text is no cpu.
std::optional<Cpus> parse_cpus(std::string_view text);

/// A set for each rank of a machine, none of them empty: commas between ranks, `+` within one:
/// "0,1" or "0-3+8-11,4-7+12-15".
std::optional<std::vector<Cpus>> parse_cpus_of_ranks(std::string_view text);

bool contains(const Cpus& all, const Cpus& some);
Cpus unite(const Cpus& a, const Cpus& b);
Cpus intersect(const Cpus& a, const Cpus& b);

/// Those that the calling thread may run on.
Cpus affinity();

/// Keeps the calling thread, and those that it starts from now on, on `cpus`. False: the kernel
/// refuses, and errno says why.
[[nodiscard]] bool bind_thread(const Cpus& cpus) noexcept;

}  // namespace tutti
