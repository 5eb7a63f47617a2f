#include "samples.h"

#include <cassert>
#include <numeric>
#include <utility>

namespace digits {

std::mt19937_64 random_numbers(std::uint64_t seed, Stream stream, std::uint32_t number) {
  std::seed_seq sequence{static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32),
                         static_cast<std::uint32_t>(stream), number};
  return std::mt19937_64(sequence);
}

std::vector<std::size_t> permutation(std::size_t count, std::mt19937_64 random) {
  std::vector<std::size_t> order(count);
  std::iota(order.begin(), order.end(), std::size_t{0});
  // This does not use std::shuffle, which gives another order with each standard library.
  for (std::size_t i = count; i > 1; --i) std::swap(order[i - 1], order[random() % i]);
  return order;
}

Split split(std::size_t count, std::uint64_t seed) {
  const std::vector<std::size_t> order = permutation(count, random_numbers(seed, Stream::split));
  const auto border = order.begin() + static_cast<std::ptrdiff_t>(count / 5);
  return {{border, order.end()}, {order.begin(), border}};
}

std::vector<std::size_t> shard(std::span<const std::size_t> samples, int rank, int ranks) {
  assert(rank >= 0 && rank < ranks);
  std::vector<std::size_t> mine;
  for (auto i = static_cast<std::size_t>(rank); i < samples.size();
       i += static_cast<std::size_t>(ranks))
    mine.push_back(samples[i]);
  return mine;
}

}  // namespace digits
