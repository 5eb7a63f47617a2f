// Instructions, as nvcc writes them for three generations, against values that the host computes.
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>

#include "tests/cuda/launch.h"
#include "tests/cuda/operations.h"

namespace tutti::stand_in::test {
namespace {

template <typename T>
struct Operands {
  std::vector<T> x, y, z;
};

/// All pairs of some values that matter, and random ones.
template <typename T>
Operands<T> operands(const std::vector<T>& special) {
  Operands<T> all;
  std::mt19937_64 random(7);
  const auto draw = [&] {
    const std::uint64_t bits = random();
    T value{};
    std::memcpy(&value, &bits, sizeof value);
    return value;
  };
  for (const T x : special)
    for (const T y : special) {
      all.x.push_back(x);
      all.y.push_back(y);
      all.z.push_back(special[random() % special.size()]);
    }
  for (int each = 0; each < 2000; ++each) {
    all.x.push_back(draw());
    all.y.push_back(draw());
    all.z.push_back(draw());
  }
  return all;
}

template <typename T>
std::vector<T> run(const char* kernel, Operation operation, const Operands<T>& operands) {
  const Gpu gpu;
  const Array<T> x(operands.x), y(operands.y), z(operands.z), result(operands.x.size());
  gpu.launch(kernel, {2, 64}, operation, result.address(), x.address(), y.address(), z.address(),
             static_cast<unsigned>(operands.x.size()));
  return result.get();
}

template <typename T>
auto bits_of(T value) {
  if constexpr (std::is_same_v<T, float>)
    return std::bit_cast<std::uint32_t>(value);
  else if constexpr (std::is_same_v<T, double>)
    return std::bit_cast<std::uint64_t>(value);
  else
    return +value;
}

template <typename T, typename Function>
void expect(const char* kernel, Operation operation, const Operands<T>& operands,
            Function function) {
  const std::vector<T> results = run(kernel, operation, operands);
  for (std::size_t each = 0; each < results.size(); ++each) {
    T expected = static_cast<T>(function(operands.x[each], operands.y[each], operands.z[each]));
    if constexpr (std::is_same_v<T, float>) {
      if (std::isnan(expected) && operation != Operation::negate &&
          operation != Operation::magnitude)
        expected = std::bit_cast<float>(0x7fffffffU);  // PTX has one result that is not a number.
    } else if constexpr (std::is_same_v<T, double>) {
      if (std::isnan(expected) && std::isnan(results[each])) continue;
    }
    ASSERT_EQ(bits_of(results[each]), bits_of(expected))
        << kernel << " operation " << static_cast<int>(operation) << " of "
        << +bits_of(operands.x[each]) << ", " << +bits_of(operands.y[each]) << ", "
        << +bits_of(operands.z[each]);
  }
}

template <typename T>
int comparisons(T x, T y) {
  return (x < y) | (x <= y) << 1 | (x == y) << 2 | (x != y) << 3 | (x >= y) << 4 | (x > y) << 5 |
         (!(x < y) && !(x >= y)) << 6;
}

/// The lesser, of which -0 is less than +0; a number is preferred.
template <typename T>
T lesser(T x, T y) {
  if (std::isnan(x)) return y;
  if (std::isnan(y)) return x;
  return x < y || (x == y && std::signbit(x)) ? x : y;
}
template <typename T>
T greater(T x, T y) {
  return -lesser(-x, -y);
}

template <typename T>
std::vector<T> special_reals() {
  using Limits = std::numeric_limits<T>;
  std::vector<T> values = {0,
                           1,
                           T(1) / 3,
                           2,
                           T(1e10),
                           T(7e-20),
                           Limits::max(),
                           Limits::min(),
                           Limits::denorm_min(),
                           Limits::min() / 3,
                           1 + Limits::epsilon(),
                           Limits::infinity()};
  for (std::size_t each = values.size(); each > 0; --each) values.push_back(-values[each - 1]);
  values.push_back(Limits::quiet_NaN());
  return values;
}

template <typename T>
void check_reals(const char* kernel) {
  const Operands<T> all = operands(special_reals<T>());
  expect(kernel, Operation::add, all, [](T x, T y, T) { return x + y; });
  expect(kernel, Operation::subtract, all, [](T x, T y, T) { return x - y; });
  expect(kernel, Operation::multiply, all, [](T x, T y, T) { return x * y; });
  expect(kernel, Operation::divide, all, [](T x, T y, T) { return x / y; });
  expect(kernel, Operation::fused, all, [](T x, T y, T z) { return std::fma(x, y, z); });
  expect(kernel, Operation::least, all, [](T x, T y, T) { return lesser(x, y); });
  expect(kernel, Operation::greatest, all, [](T x, T y, T) { return greater(x, y); });
  expect(kernel, Operation::root, all, [](T x, T, T) { return std::sqrt(x); });
  expect(kernel, Operation::reciprocal, all, [](T x, T, T) { return 1 / x; });
  expect(kernel, Operation::negate, all, [](T x, T, T) { return -x; });
  expect(kernel, Operation::magnitude, all, [](T x, T, T) { return std::fabs(x); });
  expect(kernel, Operation::compare, all, [](T x, T y, T) { return T(comparisons(x, y)); });
}

template <typename T>
void check_integers(const char* kernel) {
  using Limits = std::numeric_limits<T>;
  using U = std::make_unsigned_t<T>;
  const Operands<T> all = operands<T>({0, 1, 2, 3, 7, static_cast<T>(-1), static_cast<T>(-5), 100,
                                       Limits::max(), Limits::min(), Limits::max() / 3});
  const auto wrapped = [](auto value) { return static_cast<T>(value); };
  const auto wide = [](T value) { return static_cast<std::uint64_t>(value); };
  const unsigned last = sizeof(T) * 8 - 1;
  expect(kernel, Operation::add, all, [&](T x, T y, T) { return wrapped(wide(x) + wide(y)); });
  expect(kernel, Operation::subtract, all, [&](T x, T y, T) { return wrapped(wide(x) - wide(y)); });
  expect(kernel, Operation::multiply, all, [&](T x, T y, T) { return wrapped(wide(x) * wide(y)); });
  expect(kernel, Operation::divide, all, [&](T x, T y, T) {
    if (y == 0) return T(0);
    return Limits::is_signed && y == static_cast<T>(-1) ? wrapped(0 - wide(x)) : T(x / y);
  });
  expect(kernel, Operation::remainder, all, [](T x, T y, T) {
    return y == 0 || (Limits::is_signed && y == static_cast<T>(-1)) ? T(0) : T(x % y);
  });
  expect(kernel, Operation::fused, all,
         [&](T x, T y, T z) { return wrapped(wide(x) * wide(y) + wide(z)); });
  expect(kernel, Operation::least, all, [](T x, T y, T) { return std::min(x, y); });
  expect(kernel, Operation::greatest, all, [](T x, T y, T) { return std::max(x, y); });
  expect(kernel, Operation::negate, all, [&](T x, T, T) { return wrapped(0 - wide(x)); });
  expect(kernel, Operation::magnitude, all,
         [&](T x, T, T) { return x < 0 ? wrapped(0 - wide(x)) : x; });
  expect(kernel, Operation::compare, all, [](T x, T y, T) { return T(comparisons(x, y)); });
  expect(kernel, Operation::and_, all, [](T x, T y, T) { return T(x & y); });
  expect(kernel, Operation::or_, all, [](T x, T y, T) { return T(x | y); });
  expect(kernel, Operation::exclusive_or, all, [](T x, T y, T) { return T(x ^ y); });
  expect(kernel, Operation::complement, all, [](T x, T, T) { return T(~x); });
  expect(kernel, Operation::shift_left, all,
         [&](T x, T y, T) { return wrapped(wide(x) << (static_cast<U>(y) & last)); });
  expect(kernel, Operation::shift_right, all,
         [&](T x, T y, T) { return T(x >> (static_cast<U>(y) & last)); });
}

TEST(Instructions, ArithmeticOfFloats) { check_reals<float>("apply_f32"); }
TEST(Instructions, ArithmeticOfDoubles) { check_reals<double>("apply_f64"); }
TEST(Instructions, ArithmeticOfIntegersOfAllWidths) {
  check_integers<std::int8_t>("apply_s8");
  check_integers<std::uint8_t>("apply_u8");
  check_integers<std::int16_t>("apply_s16");
  check_integers<std::uint16_t>("apply_u16");
  check_integers<std::int32_t>("apply_s32");
  check_integers<std::uint32_t>("apply_u32");
  check_integers<std::int64_t>("apply_s64");
  check_integers<std::uint64_t>("apply_u64");
}

using Word = std::uint32_t;

Word reversed(Word x) {
  Word result = 0;
  for (int bit = 0; bit < 32; ++bit) result |= (x >> bit & 1) << (31 - bit);
  return result;
}

Word byte_of(Word x, Word y, Word choice) {
  const Word byte = ((choice & 4) != 0 ? y : x) >> 8 * (choice & 3) & 255;
  return (choice & 8) == 0 ? byte : (byte & 128) != 0 ? 255 : 0;
}

Word field(Word x, Word begin, Word length, bool is_signed) {
  if (length == 0) return 0;
  const Word end = std::min(begin + length, Word{64}), above = 64 - end;
  if (!is_signed) return static_cast<Word>(std::uint64_t{x} << above >> (above + begin));
  const std::int64_t extended = static_cast<std::int32_t>(x);
  return static_cast<Word>(
      static_cast<std::int64_t>(static_cast<std::uint64_t>(extended) << above) >> (above + begin));
}

Word inserted(Word from, Word to, Word begin, Word length) {
  if (begin >= 32) return to;
  const std::uint64_t mask = ((std::uint64_t{1} << length) - 1) << begin;
  return static_cast<Word>((to & ~mask) | ((std::uint64_t{from} << begin) & mask));
}

TEST(Instructions, BitsOfWords) {
  const auto all = operands<Word>(
      {0, 1, 31, 32, 33, 0x7fffffff, 0x80000000, 0xffffffff, 0x4321, 0xfedc, 0x1234abcd});
  const char* const kernel = "apply_bits";
  using O = Operation;
  expect(kernel, O::upper_product, all,
         [](Word x, Word y, Word) { return Word(std::uint64_t{x} * y >> 32); });
  expect(kernel, O::count_ones, all, [](Word x, Word, Word) { return std::popcount(x); });
  expect(kernel, O::leading_zeros, all, [](Word x, Word, Word) { return std::countl_zero(x); });
  expect(kernel, O::reverse_bits, all, [](Word x, Word, Word) { return reversed(x); });
  expect(kernel, O::funnel_left, all, [](Word x, Word y, Word z) {
    return Word((std::uint64_t{y} << 32 | x) << ((z & 64) != 0 ? std::min(z, Word{32}) : z & 31) >>
                32);
  });
  expect(kernel, O::funnel_right, all, [](Word x, Word y, Word z) {
    return Word((std::uint64_t{y} << 32 | x) >> ((z & 64) != 0 ? std::min(z, Word{32}) : z & 31));
  });
  expect(kernel, O::permute, all, [](Word x, Word y, Word z) {
    Word result = 0;
    // The function of CUDA takes three bits of each choice.
    for (int place = 0; place < 4; ++place)
      result |= byte_of(x, y, z >> 4 * place & 7) << 8 * place;
    return result;
  });
  expect(kernel, O::select_bits, all, [](Word x, Word y, Word z) { return (x & y) | (~x & z); });
  expect(kernel, O::extract, all,
         [](Word x, Word y, Word z) { return field(x, y % 40, z % 40, (z & 64) != 0); });
  expect(kernel, O::insert, all,
         [](Word x, Word y, Word z) { return inserted(x, y, z % 40, z / 64 % 40); });
  expect(kernel, O::wide_sum, all,
         [](Word x, Word y, Word z) { return Word((std::uint64_t{x} * y + z) >> 20); });
  expect(kernel, O::shift_left, all,
         [](Word x, Word y, Word) { return y % 70 < 32 ? x << y % 70 : 0; });
  expect(kernel, O::shift_right, all, [](Word x, Word y, Word) {
    return static_cast<Word>(static_cast<std::int32_t>(x) >> std::min(y % 70, Word{31}));
  });
}

TEST(Instructions, VectorsOfAllOrders) {
  const Gpu gpu;
  std::vector<Word> x(400), narrow(200);
  for (Word each = 0; each < 400; ++each) x[each] = each * 2654435761U;
  for (Word each = 0; each < 200; ++each) narrow[each] = each * 40503U;
  const Array<Word> from(x), from_narrow(narrow), to(400), to_narrow(200);
  gpu.launch("copy_vectors", {2, 32}, from.address(), to.address(), from_narrow.address(),
             to_narrow.address(), 100U);
  EXPECT_EQ(to.get(), x);
  for (std::size_t each = 0; each < 200; each += 2) std::swap(narrow[each], narrow[each + 1]);
  EXPECT_EQ(to_narrow.get(), narrow);
}

Record sample() { return {{1, 2, 3, 4}, {500, 600, 700}, -8, {11, 22, 33, 44, 1ULL << 63}, 0.125}; }

TEST(Instructions, StructuresAsParameters) {
  const Gpu gpu;
  const Array<std::uint8_t> to(sizeof(Record), 0);
  const Array<std::uint64_t> chosen(1);
  gpu.launch("copy_record", {1, 1}, sample(), to.address(), 4U, chosen.address());
  Record copied{};
  std::memcpy(&copied, to.get().data(), sizeof copied);
  EXPECT_EQ(copied.bytes[2], 3);
  EXPECT_EQ(copied.shorts[1], 600);
  EXPECT_EQ(copied.number, -8);
  EXPECT_EQ(copied.wide[3], 44U);
  EXPECT_EQ(copied.real, 0.125);
  EXPECT_EQ(chosen.get()[0], 1ULL << 63);
}

TEST(Instructions, MemoryOfAThread) {
  const Gpu gpu;
  std::vector<int> values = {9, 8, 7, 61, 5, 4, 33, 2, 1, 0, -1};
  const Array<int> from(values), to(values.size());
  gpu.launch("reverse_locally", {1, 1}, from.address(), to.address(),
             static_cast<unsigned>(values.size()));
  EXPECT_EQ(to.get(), std::vector<int>(values.rbegin(), values.rend()));
}

TEST(Instructions, CallsAndBranchesByIndex) {
  const Gpu gpu;
  for (int by = 0; by < 7; ++by) {
    std::vector<std::uint8_t> bytes(sizeof(Record));
    const Record before = sample();
    std::memcpy(bytes.data(), &before, sizeof before);
    const Array<std::uint8_t> record(bytes);
    const Array<int> results(12, 0);
    gpu.launch("control", {1, 1}, record.address(), by, results.address());
    Record after{};
    std::memcpy(&after, record.get().data(), sizeof after);
    EXPECT_EQ(after.number, before.number + by);
    EXPECT_EQ(after.wide[by % 5], before.wide[by % 5] * 3);
    const std::vector<int> found = results.get();
    int called[3];
    for (int each = 0; each < 3; ++each) {
      const int n = 10 + each, which = (by + each) % 3;
      called[each] = which == 0 ? 2 * n : which == 1 ? n * n : n * (n + 1) / 2;
      EXPECT_EQ(found[static_cast<std::size_t>(each)], called[each]);
    }
    const int table[6] = {3, -1, 4, -1, 5, -9};
    for (int each = 0; each < 9; ++each) {
      const int cases[9] = {called[1] + 1,  called[0] * 5, -called[2],
                            table[by % 6],  called[0] / 3, called[2] << 2,
                            called[1] ^ 85, each,          each};
      EXPECT_EQ(found[static_cast<std::size_t>(3 + each)], cases[each * by % 9]);
    }
  }
}

}  // namespace
}  // namespace tutti::stand_in::test
