// Kernels of integers of 8 to 64 bits and of truth values. Sums and products wrap, so they are
// computed on unsigned integers.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compute/integer.cpp"
#include "compute/targets.h"
// The order matters: this one includes the present file once for each instruction set.
#include <hwy/foreach_target.h>

#include "compute/reductions-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tutti {
namespace HWY_NAMESPACE {

namespace {

// Flipping the sign bit makes the unsigned order equal to the signed order; flipping all other bits
// as well reverses it.
template <class T, bool kMax>
void least_or_greatest(const CombineArgs& args) {
  using U = std::make_unsigned_t<T>;
  constexpr U kSign = std::is_signed_v<T> ? static_cast<U>(U{1} << (8 * sizeof(U) - 1)) : U{0};
  constexpr U kFlip = static_cast<U>(kSign ^ (kMax ? ~U{0} : U{0}));
  reduce_direct<U>(args, Least<U>{{kFlip}});
}

// A division by one is left out: most steps of an average only add.
template <class T>
void average(const CombineArgs& args) {
  assert(args.divide_by >= 1);
  if (args.divide_by == 1) return kernel<std::make_unsigned_t<T>, Sum>(args);
  integer_average<T>(args);
}

// Bitwise operations do not depend on the size of the elements, so all types share the kernels of
// bytes.
template <class T, class Reduction>
HWY_INLINE void reduce_bits(const CombineArgs& args, Reduction reduction) {
  CombineArgs bytes = args;
  bytes.count *= sizeof(T);
  reduce_direct<std::uint8_t>(bytes, reduction);
}
template <class T, std::uint8_t kFlip>
void bit_and_or(const CombineArgs& args) {
  reduce_bits<T>(args, BitAnd{{kFlip}});
}
template <class T>
void bit_xor(const CombineArgs& args) {
  reduce_bits<T>(args, BitXor());
}

template <class T, bool kAnd>
void logical(const CombineArgs& args) {
  using U = std::make_unsigned_t<T>;
  reduce_direct<U>(args, LogicalOr<U>{U{kAnd}});
}

// Highway has no multiplication of bytes.
template <class U>
constexpr CombineFunction product() {
  if constexpr (sizeof(U) == 1)
    return byte_product;
  else
    return kernel<U, Prod>;
}

template <class T>
OpKernels kernels_of() {
  using U = std::make_unsigned_t<T>;
  return {kernel<U, Sum>,
          product<U>(),
          least_or_greatest<T, false>,
          least_or_greatest<T, true>,
          average<T>,
          nullptr,
          bit_and_or<T, 0>,
          bit_and_or<T, 0xFF>,
          bit_xor<T>,
          logical<T, true>,
          logical<T, false>};
}

// For truth values, sum, max and bit_or are `or`; prod, min and bit_and are `and`.
OpKernels bool_kernels() {
  constexpr CombineFunction kOr = logical<std::uint8_t, false>;
  constexpr CombineFunction kAnd = logical<std::uint8_t, true>;
  constexpr CombineFunction kXor = kernel<std::uint8_t, LogicalXor<std::uint8_t>>;
  return {kOr, kAnd, kAnd, kOr, nullptr, nullptr, kAnd, kOr, kXor, kAnd, kOr};
}

}  // namespace

OpKernels integer_kernels(DataType type) {
  switch (type) {
    case DataType::int8: return kernels_of<std::int8_t>();
    case DataType::uint8: return kernels_of<std::uint8_t>();
    case DataType::int16: return kernels_of<std::int16_t>();
    case DataType::uint16: return kernels_of<std::uint16_t>();
    case DataType::int32: return kernels_of<std::int32_t>();
    case DataType::uint32: return kernels_of<std::uint32_t>();
    case DataType::int64: return kernels_of<std::int64_t>();
    case DataType::uint64: return kernels_of<std::uint64_t>();
    case DataType::boolean: return bool_kernels();
    default: return {};
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace tutti
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tutti {

HWY_EXPORT(integer_kernels);
OpKernels integer_kernels(DataType type) { return HWY_DYNAMIC_DISPATCH(integer_kernels)(type); }

}  // namespace tutti
#endif
