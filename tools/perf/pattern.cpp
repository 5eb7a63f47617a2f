#include "perf/pattern.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cmath>
#include <cstring>
#include <span>
#include <type_traits>

namespace tutti::perf {
namespace {

/// The finaliser of splitmix64 (Steele, Lea, Flood 2014).
std::uint64_t mix(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

/// A number in [low, high] of the place (seed, element, stream).
std::int64_t draw(std::uint64_t seed, std::size_t element, int stream, std::int64_t low,
                  std::int64_t high) {
  const std::uint64_t place = mix(seed + 0x9e3779b97f4a7c15u * (element + 1)) +
                              0xd1342543de82ef95u * static_cast<std::uint64_t>(stream + 2);
  return low + static_cast<std::int64_t>(mix(place) % static_cast<std::uint64_t>(high - low + 1));
}

constexpr int kShared = -1;  // the stream that all ranks draw alike

template <typename T>
constexpr bool kFloat = std::is_floating_point_v<T> || std::is_same_v<T, bfloat16>;

/// In which sums and products of T are exact: double has room for 53 bits and for all exponents.
template <typename T>
using Wide = std::conditional_t<kFloat<T>, double, std::uint64_t>;

/// Magnitude up to which all integers are a T (and twice that is no overflow).
template <typename T>
constexpr std::int64_t exact_limit() {
  if constexpr (std::is_same_v<T, bfloat16>) return 1 << 8;
  if constexpr (std::is_same_v<T, float>) return 1 << 24;
  if constexpr (std::is_same_v<T, double>) return std::int64_t{1} << 53;
  if constexpr (sizeof(T) == 4) return 1 << 30;
  return std::int64_t{1} << 62;
}

template <typename T>
T narrow(Wide<T> value) {
  if constexpr (std::is_same_v<T, bfloat16>) {
    const auto bits = std::bit_cast<std::uint32_t>(static_cast<float>(value));
    assert((bits & 0xffff) == 0);
    return {static_cast<std::uint16_t>(bits >> 16)};
  } else {
    return static_cast<T>(value);
  }
}

/// The recipe of one call.
struct Recipe {
  Op op;
  int ranks;
  std::uint64_t seed;
};

template <typename T>
Wide<T> summand(const Recipe& r, std::size_t i, int rank) {
  const std::int64_t share = exact_limit<T>() / r.ranks;
  const std::int64_t common = draw(r.seed, i, kShared, -(share / 2), share / 2);
  const std::int64_t mine = draw(r.seed, i, rank, 0, share / 4);
  const std::int64_t next = draw(r.seed, i, (rank + 1) % r.ranks, 0, share / 4);
  return static_cast<Wide<T>>(common + mine - next);
}

template <typename T>
Wide<T> factor(const Recipe& r, std::size_t i, int rank) {
  if constexpr (kFloat<T>) {
    const int exponent_max = 120 / r.ranks;  // of f32 and bf16; normal numbers all the way
    const std::int64_t x = draw(r.seed, i, rank, -exponent_max, exponent_max);
    const bool negative = draw(r.seed, i, rank + r.ranks, 0, 1) == 1;
    return std::ldexp(negative ? -1.0 : 1.0, static_cast<int>(x));
  } else {
    return 2 * static_cast<std::uint64_t>(draw(r.seed, i, rank, 0, exact_limit<T>())) + 1;
  }
}

template <typename T>
Wide<T> value(const Recipe& r, std::size_t i, int rank) {
  switch (r.op) {
    case Op::sum:
    case Op::avg: return summand<T>(r, i, rank);
    case Op::prod: return factor<T>(r, i, rank);
    case Op::min:
    case Op::max:
      return static_cast<Wide<T>>(
          draw(r.seed, i, rank, -exact_limit<T>() / 2, exact_limit<T>() / 2));
    default: break;
  }
  assert(false);
  return {};
}

/// Integers are kept unsigned, where wrapping is defined, and compared signed.
template <typename T>
auto order(Wide<T> x) {
  if constexpr (kFloat<T>)
    return x;
  else
    return static_cast<std::int64_t>(x);
}

template <typename T>
Wide<T> reduced(const Recipe& r, std::size_t i) {
  if (r.op == Op::avg)  // the sum is ranks * common
    return static_cast<Wide<T>>(draw(r.seed, i, kShared, -(exact_limit<T>() / r.ranks / 2),
                                     exact_limit<T>() / r.ranks / 2));
  Wide<T> result = value<T>(r, i, 0);
  for (int rank = 1; rank < r.ranks; ++rank) {
    const Wide<T> x = value<T>(r, i, rank);
    if (r.op == Op::sum) result += x;
    if (r.op == Op::prod) result *= x;
    if (r.op == Op::min && order<T>(x) < order<T>(result)) result = x;
    if (r.op == Op::max && order<T>(x) > order<T>(result)) result = x;
  }
  return result;
}

template <typename T, typename Value>
void generate(std::vector<std::byte>& out, std::size_t length, Value value_at) {
  out.resize(length * sizeof(T));
  for (std::size_t i = 0; i < length; ++i) {
    const T element = narrow<T>(value_at(i));
    std::memcpy(out.data() + i * sizeof(T), &element, sizeof(T));
  }
}

/// Calls `body` with a value of the C++ type of `type`.
template <typename Body>
void with_type(DataType type, Body body) {
  switch (type) {
    case DataType::f32: return body(float{});
    case DataType::f64: return body(double{});
    case DataType::bf16: return body(bfloat16{});
    case DataType::int32: return body(std::int32_t{});
    case DataType::int64: return body(std::int64_t{});
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
