#include "perf/pattern.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstring>
#include <type_traits>

namespace tutti::perf {
namespace {

/// The finaliser of splitmix64 (Steele, Lea, Flood 2014).
std::uint64_t mix(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

/// Returns pseudo-random bits for (seed, element, stream).
std::uint64_t draw(std::uint64_t seed, std::size_t element, int stream) {
  return mix(mix(seed + 0x9e3779b97f4a7c15u * (element + 1)) +
             0xd1342543de82ef95u * static_cast<std::uint64_t>(stream + 2));
}

/// Returns a number in [-most, most] for (seed, element, stream).
std::int64_t draw_around_zero(std::uint64_t seed, std::size_t element, int stream,
                              std::int64_t most) {
  assert(most >= 0);
  return static_cast<std::int64_t>(draw(seed, element, stream) %
                                   static_cast<std::uint64_t>(2 * most + 1)) -
         most;
}

constexpr int kShared = -1;  // a stream that is the same on all ranks

/// The numbers that a float holds exactly: integers of significand_bits, and powers of two from
/// 2^exponent_min on.
struct Format {
  int significand_bits = 0;
  int exponent_min = 0;
};
template <typename T>
constexpr Format format_of() {
  if constexpr (std::is_same_v<T, double>) return {53, -1022};
  if constexpr (std::is_same_v<T, float>) return {24, -126};
  if constexpr (std::is_same_v<T, bfloat16>) return {8, -126};
  if constexpr (std::is_same_v<T, float16>) return {11, -14};
  if constexpr (std::is_same_v<T, float8_e4m3>) return {4, -6};
  if constexpr (std::is_same_v<T, float8_e5m2>) return {3, -14};
  return {};
}

template <typename T>
constexpr bool kFloat = format_of<T>().significand_bits > 0;
template <typename T>
constexpr bool kNarrow = kFloat<T> && !std::is_floating_point_v<T>;

/// A type in which sums and products of T are exact: double has room for 53 bits and for all
/// exponents, and integers wrap.
template <typename T>
using Wide = std::conditional_t<kFloat<T>, double, std::uint64_t>;

/// Returns the nearest T, ties to even, of a value that is not beyond the greatest T.
template <typename T>
T narrow(Wide<T> value) {
  if constexpr (!kNarrow<T>) {
    return static_cast<T>(value);
  } else {
    constexpr Format format = format_of<T>();
    constexpr int fraction_bits = format.significand_bits - 1;
    const double size = std::fabs(value);
    const int exponent =
        size > 0 ? std::max(std::ilogb(size), format.exponent_min) : format.exponent_min;
    // `units` counts units in the last place. Rounding up to the next power of two carries into the
    // exponent, and below exponent_min there is no leading one; the addition below does both.
    const auto units =
        static_cast<std::uint64_t>(std::nearbyint(std::ldexp(size, fraction_bits - exponent)));
    const std::uint64_t exponent_bits = static_cast<std::uint64_t>(exponent - format.exponent_min);
    const std::uint64_t sign = std::signbit(value) ? 1 : 0;
    const std::uint64_t bits =
        (sign << (8 * sizeof(T) - 1)) | ((exponent_bits << fraction_bits) + units);
    return {static_cast<decltype(T::bits)>(bits)};
  }
}

/// The parameters from which the values of one call follow.
struct Recipe {
  Op op;
  int ranks;
  std::uint64_t seed;
};

/// Returns a number in [-share, share], such that the numbers of all ranks add up to no more than
/// `most`. If there are more ranks than that, most ranks contribute 0 to an element, and each
/// contributes to some elements.
std::int64_t share_of(const Recipe& r, std::size_t i, int rank, std::int64_t most) {
  assert(0 <= rank && rank < r.ranks && most >= 1);
  const std::int64_t share = std::max<std::int64_t>(1, most / r.ranks);
  const std::int64_t givers = most / share;
  if (givers < r.ranks) {
    const auto ranks = static_cast<std::uint64_t>(r.ranks);
    const auto first = static_cast<int>(draw(r.seed, i, kShared) % ranks);
    if ((rank - first + r.ranks) % r.ranks >= givers) return 0;
  }
  return draw_around_zero(r.seed, i, rank, share);
}

template <typename T>
Wide<T> value(const Recipe& r, std::size_t i, int rank) {
  if constexpr (!kFloat<T>) {
    return draw(r.seed, i, rank) | (r.op == Op::prod ? 1 : 0);  // even products soon become 0
  } else {
    constexpr std::int64_t exact = std::int64_t{1} << format_of<T>().significand_bits;
    switch (r.op) {
      case Op::prod: {
        const std::int64_t exponent = share_of(r, i, rank, -format_of<T>().exponent_min);
        const bool negative = draw(r.seed, i, rank + r.ranks) % 2 == 1;
        return std::ldexp(negative ? -1.0 : 1.0, static_cast<int>(exponent));
      }
      case Op::premul_sum: return static_cast<double>(share_of(r, i, rank, exact / 2));
      case Op::min:
      case Op::max: return static_cast<double>(draw_around_zero(r.seed, i, rank, exact));
      default: return static_cast<double>(share_of(r, i, rank, exact));
    }
  }
}

/// Integers are kept unsigned, since unsigned arithmetic wraps. This returns their value in T.
template <typename T>
auto meaning(Wide<T> x) {
  if constexpr (kFloat<T>)
    return x;
  else
    return static_cast<T>(x);
}

/// Returns the sum over the ranks, divided as for an average.
template <typename T>
Wide<T> divided(Wide<T> sum, int ranks) {
  if constexpr (std::is_same_v<T, double>)
    return sum / ranks;
  else if constexpr (kFloat<T>)  // computed in f32, and rounded again if T is narrower
    return static_cast<float>(sum) / static_cast<float>(ranks);
  else if constexpr (std::is_signed_v<T>)
    return static_cast<std::uint64_t>(std::int64_t{meaning<T>(sum)} / ranks);
  else
    return std::uint64_t{meaning<T>(sum)} / static_cast<std::uint64_t>(ranks);
}

template <typename T>
Wide<T> reduced(const Recipe& r, std::size_t i) {
  const auto scaled = [&](int rank) {
    const Wide<T> x = value<T>(r, i, rank);
    return r.op == Op::premul_sum ? static_cast<Wide<T>>(Pattern::scalar(rank)) * x : x;
  };
  Wide<T> result = scaled(0);
  for (int rank = 1; rank < r.ranks; ++rank) {
    const Wide<T> x = scaled(rank);
    switch (r.op) {
      case Op::sum:
      case Op::avg:
      case Op::premul_sum: result += x; break;
      case Op::prod: result *= x; break;
      case Op::min: result = meaning<T>(x) < meaning<T>(result) ? x : result; break;
      case Op::max: result = meaning<T>(x) > meaning<T>(result) ? x : result; break;
      default: assert(false && "a reduction that options.cpp does not offer");
    }
  }
  return r.op == Op::avg ? divided<T>(result, r.ranks) : result;
}

template <typename T, typename Value>
void generate(std::vector<std::byte>& out, std::size_t length, Value value_at) {
  out.resize(length * sizeof(T));
  for (std::size_t i = 0; i < length; ++i) {
    const T element = narrow<T>(value_at(i));
    std::memcpy(out.data() + i * sizeof(T), &element, sizeof(T));
  }
}

/// Calls `body` with a value of the C++ type that belongs to `type`.
template <typename Body>
void with_type(DataType type, Body body) {
  switch (type) {
    case DataType::int8: return body(std::int8_t{});
    case DataType::uint8: return body(std::uint8_t{});
    case DataType::int32: return body(std::int32_t{});
    case DataType::uint32: return body(std::uint32_t{});
    case DataType::int64: return body(std::int64_t{});
    case DataType::uint64: return body(std::uint64_t{});
    case DataType::f16: return body(float16{});
    case DataType::bf16: return body(bfloat16{});
    case DataType::f32: return body(float{});
    case DataType::f64: return body(double{});
    case DataType::f8e4m3: return body(float8_e4m3{});
    case DataType::f8e5m2: return body(float8_e5m2{});
    default: assert(false && "a type that options.cpp does not offer");
  }
}

}  // namespace

Pattern::Pattern(DataType type, Op op, int ranks, std::uint64_t seed, std::size_t count)
    : type_(type),
      op_(op),
      ranks_(ranks),
      seed_(mix(seed)),
      length_(std::clamp<std::size_t>(count, 1, kPeriod)) {
  assert(ranks >= 1);
}

Pattern::Element Pattern::scalar_element(DataType type, int rank) {
  Element element{};
  with_type(type, [&](auto t) {
    using T = decltype(t);
    const T value = narrow<T>(static_cast<Wide<T>>(scalar(rank)));
    static_assert(sizeof value <= sizeof element);
    std::memcpy(element.data(), &value, sizeof value);
  });
  return element;
}

Pattern::Period Pattern::contribution(int rank) const {
  const Recipe recipe{op_, ranks_, seed_};
  Period period;
  with_type(type_, [&](auto t) {
    using T = decltype(t);
    generate<T>(period, length_, [&](std::size_t i) { return value<T>(recipe, i, rank); });
  });
  return period;
}

Pattern::Period Pattern::reduction() const {
  const Recipe recipe{op_, ranks_, seed_};
  Period period;
  with_type(type_, [&](auto t) {
    using T = decltype(t);
    generate<T>(period, length_, [&](std::size_t i) { return reduced<T>(recipe, i); });
  });
  return period;
}

void Pattern::write(std::byte* data, std::size_t first, std::size_t count, int rank) const {
  const Period period = contribution(rank);
  const std::size_t width = size_of(type_);
  for (std::size_t i = 0; i < count;) {
    const std::size_t begin = (first + i) % length_;
    const std::size_t part = std::min(length_ - begin, count - i);
    std::memcpy(data + i * width, period.data() + begin * width, part * width);
    i += part;
  }
}

std::size_t Pattern::count_wrong(const std::byte* data, std::size_t first, std::size_t count,
                                 const Period& expected) const {
  const std::size_t width = size_of(type_);
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < count;) {
    const std::size_t begin = (first + i) % length_;
    const std::size_t part = std::min(length_ - begin, count - i);
    const std::byte* a = data + i * width;
    const std::byte* b = expected.data() + begin * width;
    if (std::memcmp(a, b, part * width) != 0)
      for (std::size_t j = 0; j < part; ++j)
        wrong += std::memcmp(a + j * width, b + j * width, width) != 0 ? 1 : 0;
    i += part;
  }
  return wrong;
}

std::size_t Pattern::wrong_reduced(const std::byte* data, std::size_t first,
                                   std::size_t count) const {
  return count_wrong(data, first, count, reduction());
}

std::size_t Pattern::wrong_copied(const std::byte* data, std::size_t first, std::size_t count,
                                  int rank) const {
  return count_wrong(data, first, count, contribution(rank));
}

}  // namespace tutti::perf
