// Inputs whose reduction has the same bits in whatever order it is computed, so that a result is
// right or wrong, with no tolerance.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <tutti/types.hpp>

namespace tutti::perf {

/// What all ranks contribute to one call, and what must come out.
///
/// - sum, avg: integers q + h(rank) - h(rank + 1), whose sum over the ranks is ranks * q. The sum
/// of
///   all magnitudes stays within the type's significand (2^8 for bf16), so every partial sum is
///   exact, and so is the division.
/// - prod: plus or minus powers of two within the exponent's range; odd numbers, which wrap, for
///   integers.
/// - min, max and copies: integers of the significand's size.
///
/// The values repeat after kPeriod elements. The more ranks share the significand the fewer values
/// there are: beyond 64 ranks a bf16 is a weak check.
class Pattern {
 public:
  /// A prime beyond every chunk and slot count, so that a misplaced chunk meets other values.
  static constexpr std::size_t kPeriod = 65537;

  /// Of calls of at most `count` elements.
  Pattern(DataType type, Op op, int ranks, std::uint64_t seed, std::size_t count);

  /// Writes elements [first, first + count) of what `rank` contributes.
  void write(std::byte* data, std::size_t first, std::size_t count, int rank) const;

  /// How many of `data` are not elements [first, first + count) of the reduction.
  [[nodiscard]] std::size_t wrong_reduced(const std::byte* data, std::size_t first,
                                          std::size_t count) const;
  /// How many of `data` are not elements [first, first + count) of what `rank` contributes.
  [[nodiscard]] std::size_t wrong_copied(const std::byte* data, std::size_t first,
                                         std::size_t count, int rank) const;

 private:
  using Period = std::vector<std::byte>;

  [[nodiscard]] Period contribution(int rank) const;
  [[nodiscard]] Period reduction() const;
  [[nodiscard]] std::size_t count_wrong(const std::byte* data, std::size_t first, std::size_t count,
                                        const Period& expected) const;

  DataType type_;
  Op op_;
  int ranks_;
  std::uint64_t seed_;
  std::size_t length_;  // elements of a period; fewer for small calls
};

}  // namespace tutti::perf
