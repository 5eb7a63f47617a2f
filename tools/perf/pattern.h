// Makes inputs whose reduction has the same bits in any order of computation, so that a result is
// either right or wrong, without a tolerance.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <tutti/types.hpp>

namespace tutti::perf {

/// The contributions of all ranks to one call, and its expected result.
///
/// - Integers: any bits. Sums and products wrap, and give the same bits in any order; factors are
///   odd, since products would soon be 0 otherwise.
/// - sum and avg of floats: integers whose magnitudes over all ranks add up to at most
///   2^significand bits (8 for f8e5m2, 16 for f8e4m3, 256 for bf16, 2048 for half), so every
///   partial sum is exact; an average is then divided once, and rounds once.
/// - mulsum: the same with half the magnitude, since the ranks' scalars are 1 and 2.
/// - prod: positive and negative powers of two, whose exponents over all ranks add up to no more
///   than the type can represent, so every partial product is a power of two, too.
/// - min, max and copies: integers that fit into the significand.
///
/// If there are more ranks than such units, most ranks contribute 0 (or the factor 1 or -1) to an
/// element, and other ranks do so to the next. The values repeat after kPeriod elements.
class Pattern {
 public:
  /// A prime greater than every chunk and slot count, so that a misplaced chunk meets different
  /// values.
  static constexpr std::size_t kPeriod = 65537;

  /// Makes the contributions for calls of at most `count` elements.
  Pattern(DataType type, Op op, int ranks, std::uint64_t seed, std::size_t count);

  /// The factor of the contribution of `rank` in a premul_sum, as a number and as an element of
  /// `type`.
  [[nodiscard]] static int scalar(int rank) noexcept { return 1 + rank % 2; }
  using Element = std::array<std::byte, 8>;
  [[nodiscard]] static Element scalar_element(DataType type, int rank);

  /// Writes elements [first, first + count) of the contribution of `rank`.
  void write(std::byte* data, std::size_t first, std::size_t count, int rank) const;

  /// Returns how many elements of `data` differ from elements [first, first + count) of the
  /// reduction.
  [[nodiscard]] std::size_t wrong_reduced(const std::byte* data, std::size_t first,
                                          std::size_t count) const;
  /// Returns how many elements of `data` differ from elements [first, first + count) of the
  /// contribution of `rank`.
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
