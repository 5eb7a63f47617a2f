#include <array>
#include <bit>
#include <limits>

#include "fixture.h"

namespace tutti {
namespace {

template <typename T, typename Bits>
T edge(std::uint64_t which) {
  using Limits = std::numeric_limits<T>;
  constexpr Bits kSign = Bits{1} << (8 * sizeof(T) - 1);
  const auto quiet = std::bit_cast<Bits>(Limits::quiet_NaN());
  const std::array<Bits, 9> magnitudes{
      quiet,
      quiet + 12345,                                // a NaN with a payload
      std::bit_cast<Bits>(Limits::infinity()) + 1,  // a signalling NaN
      std::bit_cast<Bits>(Limits::infinity()),
      0,
      1,                                       // the least denormal
      std::bit_cast<Bits>(Limits::min()) - 1,  // the greatest denormal
      std::bit_cast<Bits>(Limits::max()),
      std::bit_cast<Bits>(T{1}),
  };
  const Bits magnitude = magnitudes[which / 2 % magnitudes.size()];
  return std::bit_cast<T>(static_cast<Bits>(which % 2 == 0 ? magnitude : magnitude | kSign));
}

template <typename T>
T integer_edge(std::uint64_t which) {
  using Limits = std::numeric_limits<T>;
  constexpr std::array<T, 6> kEdges{
      0, 1, static_cast<T>(-1), Limits::min(), Limits::max(), static_cast<T>(Limits::min() + 1)};
  return kEdges[which % kEdges.size()];
}

template <typename T, typename Bits>
T any_float(std::mt19937_64& random) {
  const std::uint64_t bits = random();
  if (bits % 3 == 0) return std::bit_cast<T>(static_cast<Bits>(random()));
  if (bits % 3 == 1) return edge<T, Bits>(bits >> 8);
  return static_cast<T>(static_cast<std::int64_t>(bits >> 40) - (1 << 23)) / T{4096};
}

template <typename T>
T any_integer(std::mt19937_64& random) {
  const std::uint64_t bits = random();
  if (bits % 3 == 0) return static_cast<T>(random());
  if (bits % 3 == 1) return integer_edge<T>(bits >> 8);
  return static_cast<T>((bits >> 55) - 256);
}

// Returns random bit patterns and, in half of the cases, small numbers that the type can represent,
// so that sums and products are meaningful.
template <typename T>
T any_narrow(std::mt19937_64& random) {
  const std::uint64_t bits = random();
  if (bits % 2 == 0) return {static_cast<decltype(T::bits)>(bits >> 8)};
  return reference::nearest<T>(static_cast<float>(static_cast<std::int64_t>(bits >> 55) - 256) /
                               16);
}

}  // namespace

template <>
float Values<float>::next() {
  return any_float<float, std::uint32_t>(random_);
}
template <>
double Values<double>::next() {
  return any_float<double, std::uint64_t>(random_);
}
template <>
std::complex<float> Values<std::complex<float>>::next() {
  const auto real = any_float<float, std::uint32_t>(random_);
  return {real, any_float<float, std::uint32_t>(random_)};
}
template <>
std::complex<double> Values<std::complex<double>>::next() {
  const auto real = any_float<double, std::uint64_t>(random_);
  return {real, any_float<double, std::uint64_t>(random_)};
}
template <>
float16 Values<float16>::next() {
  return any_narrow<float16>(random_);
}
template <>
bfloat16 Values<bfloat16>::next() {
  const auto value = any_float<float, std::uint32_t>(random_);
  return {static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(value) >> 16)};
}
template <>
float8_e4m3 Values<float8_e4m3>::next() {
  return any_narrow<float8_e4m3>(random_);
}
template <>
float8_e5m2 Values<float8_e5m2>::next() {
  return any_narrow<float8_e5m2>(random_);
}
template <>
Truth Values<Truth>::next() {
  const std::uint64_t bits = random_();
  return {static_cast<std::uint8_t>(bits % 2 == 0 ? 0 : bits % 4 == 1 ? 1 : bits >> 8)};
}
template <>
std::int8_t Values<std::int8_t>::next() {
  return any_integer<std::int8_t>(random_);
}
template <>
std::uint8_t Values<std::uint8_t>::next() {
  return any_integer<std::uint8_t>(random_);
}
template <>
std::int16_t Values<std::int16_t>::next() {
  return any_integer<std::int16_t>(random_);
}
template <>
std::uint16_t Values<std::uint16_t>::next() {
  return any_integer<std::uint16_t>(random_);
}
template <>
std::int32_t Values<std::int32_t>::next() {
  return any_integer<std::int32_t>(random_);
}
template <>
std::uint32_t Values<std::uint32_t>::next() {
  return any_integer<std::uint32_t>(random_);
}
template <>
std::int64_t Values<std::int64_t>::next() {
  return any_integer<std::int64_t>(random_);
}
template <>
std::uint64_t Values<std::uint64_t>::next() {
  return any_integer<std::uint64_t>(random_);
}

}  // namespace tutti
