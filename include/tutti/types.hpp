// tutti: element types, reductions and collectives.
#pragma once

#include <complex>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <type_traits>

#include <tutti/export.hpp>

namespace tutti {

/// Element types. Append only: values are part of the ABI and of the wire format.
enum class DataType : std::uint8_t {
  int8,
  uint8,
  int16,
  uint16,
  int32,
  uint32,
  int64,
  uint64,
  f16,
  bf16,
  f32,
  f64,
  f8e4m3,
  f8e5m2,
  complex64,
  complex128,
  boolean,
};
inline constexpr int kDataTypes = 17;
static_assert(static_cast<int>(DataType::boolean) + 1 == kDataTypes);

/// Reductions. Append only: values are part of the ABI and of the wire format. docs/numerics.md
/// says how each one rounds, wraps and treats NaN.
enum class Op : std::uint8_t {
  sum,
  prod,
  min,
  max,
  avg,         ///< Sum divided by the number of ranks, once, in the step that completes an element.
  premul_sum,  ///< Sum of each rank's input times that rank's scalar.
  bit_and,
  bit_or,
  bit_xor,
  logical_and,
  logical_or,
};
inline constexpr int kOps = 11;
static_assert(static_cast<int>(Op::logical_or) + 1 == kOps);

/// Collectives. Append only: values are part of the wire format.
enum class Collective : std::uint8_t {
  all_reduce,
  broadcast,
  reduce,
  all_gather,
  reduce_scatter,
  barrier,
  gather,
  scatter,
  all_to_all,
};
inline constexpr int kCollectives = 9;
static_assert(static_cast<int>(Collective::all_to_all) + 1 == kCollectives);

TUTTI_API std::string_view to_string(DataType type) noexcept;
TUTTI_API std::string_view to_string(Op op) noexcept;
TUTTI_API std::string_view to_string(Collective what) noexcept;

/// Returns the size of one element in bytes.
TUTTI_API std::size_t size_of(DataType type) noexcept;

// Storage types of floats that C++20 has no type for, for the typed calls of Communicator.

/// IEEE 754 binary16.
struct float16 {
  std::uint16_t bits;
};
/// The upper half of an f32.
struct bfloat16 {
  std::uint16_t bits;
};
/// OCP E4M3 ("fn"): it has no infinity; NaN is 0x7F and 0xFF, the largest value 448.
struct float8_e4m3 {
  std::uint8_t bits;
};
/// OCP E5M2: infinity is 0x7C, the largest finite value 57344.
struct float8_e5m2 {
  std::uint8_t bits;
};

static_assert(sizeof(float16) == 2 && sizeof(bfloat16) == 2);
static_assert(sizeof(float8_e4m3) == 1 && sizeof(float8_e5m2) == 1);
static_assert(sizeof(bool) == 1, "a DataType::boolean is one byte");
static_assert(sizeof(std::complex<float>) == 8 && sizeof(std::complex<double>) == 16);

/// The input of a typed call: any contiguous range of T, const or not. T is deduced from the
/// output.
template <typename T>
using InputSpan = std::type_identity_t<std::span<const T>>;

/// Returns the DataType of a C++ element type; a type without one does not compile.
template <typename T>
constexpr DataType data_type_of() {
  using U = std::remove_cv_t<T>;
  if constexpr (std::is_same_v<U, bool>)
    return DataType::boolean;
  else if constexpr (std::is_same_v<U, float>)
    return DataType::f32;
  else if constexpr (std::is_same_v<U, double>)
    return DataType::f64;
  else if constexpr (std::is_same_v<U, float16>)
    return DataType::f16;
  else if constexpr (std::is_same_v<U, bfloat16>)
    return DataType::bf16;
  else if constexpr (std::is_same_v<U, float8_e4m3>)
    return DataType::f8e4m3;
  else if constexpr (std::is_same_v<U, float8_e5m2>)
    return DataType::f8e5m2;
  else if constexpr (std::is_same_v<U, std::complex<float>>)
    return DataType::complex64;
  else if constexpr (std::is_same_v<U, std::complex<double>>)
    return DataType::complex128;
  else {
    static_assert(std::is_integral_v<U>, "no tutti::DataType for this element type");
    constexpr bool is_signed = std::is_signed_v<U>;
    if constexpr (sizeof(U) == 1)
      return is_signed ? DataType::int8 : DataType::uint8;
    else if constexpr (sizeof(U) == 2)
      return is_signed ? DataType::int16 : DataType::uint16;
    else if constexpr (sizeof(U) == 4)
      return is_signed ? DataType::int32 : DataType::uint32;
    else
      return is_signed ? DataType::int64 : DataType::uint64;
  }
}

}  // namespace tutti
