// Inputs whose reduction has the same bits in whatever order it is computed, so that a result is
// right or wrong, with no tolerance.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <tutti/types.hpp>

namespace tutti::perf {

/// What all ranks contribute to one call, and what must come out.
///
/// - Integers: any bits. Sums and products wrap, in any order to the same; factors are odd, or
///   products would soon be 0.
/// - sum, avg of floats: integers whose magnitudes over all ranks come to at most 2^significand
///   bits (8 for f8e5m2, 16 for f8e4m3, 256 for bf16, 2048 for half), so every partial sum is
///   exact; an average is then divided once, and rounds once.
/// - mulsum: the same, half as great: the ranks' scalars are 1 and 2.
/// - prod: plus or minus powers of two, whose exponents over all ranks come to no more than the
///   type has, so every partial product is one, too.
/// - min, max and copies: integers of the significand's size.
///
/// Where there are more ranks than such units, most ranks give 0 (or plus or minus 1, as a factor)
/// to an element, and others do to the next. The values repeat after kPeriod elements.
class Pattern {
 public:
  /// A prime beyond every chunk and slot count, so that a misplaced chunk meets other values.
  static constexpr std::size_t kPeriod = 65537;

  /// Of calls of at most `count` elements.
  Pattern(DataType type, Op op, int ranks, std::uint64_t seed, std::size_t count);

  /// For premul_sum: what the contribution of `rank` is multiplied by; and as an element of `type`.
  [[nodiscard]] static int scalar(int rank) noexcept { return 1 + rank % 2; }
  using Element = std::array<std::byte, 8>;
  [[nodiscard]] static Element scalar_element(DataType type, int rank);

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
