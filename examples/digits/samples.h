// Decides which rank uses which sample when: pure functions of a seed, the same on every machine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <vector>

namespace digits {

/// Independent random numbers for each purpose, from one seed.
enum class Stream : std::uint32_t { split, weights, order };
std::mt19937_64 random_numbers(std::uint64_t seed, Stream stream, std::uint32_t number = 0);

/// Returns the numbers from 0 to count - 1 in random order.
std::vector<std::size_t> permutation(std::size_t count, std::mt19937_64 random);

struct Split {
  std::vector<std::size_t> training;
  std::vector<std::size_t> held_out;  // a fifth of the samples
};
Split split(std::size_t count, std::uint64_t seed);

/// Returns every `ranks`-th sample, beginning with number `rank`. The shards of all ranks are a
/// partition of the samples.
std::vector<std::size_t> shard(std::span<const std::size_t> samples, int rank, int ranks);

}  // namespace digits
