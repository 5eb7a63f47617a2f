// Kernels that apply one instruction to every element, so that a test can compare with the host.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <type_traits>

#include "tests/cuda/operations.h"

namespace {

using tutti::stand_in::Operation;
using tutti::stand_in::Record;

__device__ unsigned number() { return threadIdx.x + blockIdx.x * blockDim.x; }
__device__ unsigned threads() { return blockDim.x * gridDim.x; }

template <typename T>
__device__ T comparisons(T x, T y) {
  const int bits = (x < y) | (x <= y) << 1 | (x == y) << 2 | (x != y) << 3 | (x >= y) << 4 |
                   (x > y) << 5 | (!(x < y) && !(x >= y)) << 6;
  return static_cast<T>(bits);
}

template <typename T>
__device__ T of_real(Operation operation, T x, T y, T z) {
  switch (operation) {
    case Operation::add: return x + y;
    case Operation::subtract: return x - y;
    case Operation::multiply: return x * y;
    case Operation::divide: return x / y;
    case Operation::fused: return fma(x, y, z);
    case Operation::least: return fmin(x, y);
    case Operation::greatest: return fmax(x, y);
    case Operation::root: return sqrt(x);
    case Operation::reciprocal: return 1 / x;
    case Operation::negate: return -x;
    case Operation::magnitude: return fabs(x);
    case Operation::compare: return comparisons(x, y);
    default: return 77;
  }
}

template <typename T>
__device__ T of_integer(Operation operation, T x, T y, T z) {
  switch (operation) {
    case Operation::add: return x + y;
    case Operation::subtract: return x - y;
    case Operation::multiply: return x * y;
    case Operation::divide: return y == 0 ? T(0) : T(x / y);
    case Operation::remainder: return y == 0 ? T(0) : T(x % y);
    case Operation::fused: return x * y + z;
    case Operation::least: return x < y ? x : y;
    case Operation::greatest: return x < y ? y : x;
    case Operation::negate: return -x;
    case Operation::magnitude:
      if constexpr (std::is_signed_v<T>) return x < 0 ? -x : x;
      return x;
    case Operation::compare: return comparisons(x, y);
    case Operation::and_: return x & y;
    case Operation::or_: return x | y;
    case Operation::exclusive_or: return x ^ y;
    case Operation::complement: return ~x;
    case Operation::shift_left: return x << (y & T(sizeof(T) * 8 - 1));
    case Operation::shift_right: return x >> (y & T(sizeof(T) * 8 - 1));
    default: return 77;
  }
}

__device__ std::uint32_t of_bits(Operation operation, std::uint32_t x, std::uint32_t y,
                                 std::uint32_t z) {
  std::uint32_t result = 77;
  switch (operation) {
    case Operation::upper_product: return __umulhi(x, y);
    case Operation::count_ones: return __popc(x);
    case Operation::leading_zeros: return __clz(x);
    case Operation::reverse_bits: return __brev(x);
    case Operation::funnel_left:
      return (z & 64) != 0 ? __funnelshift_lc(x, y, z) : __funnelshift_l(x, y, z);
    case Operation::funnel_right:
      return (z & 64) != 0 ? __funnelshift_rc(x, y, z) : __funnelshift_r(x, y, z);
    case Operation::permute: return __byte_perm(x, y, z);
    case Operation::select_bits:
      asm("lop3.b32 %0, %1, %2, %3, 0xca;" : "=r"(result) : "r"(x), "r"(y), "r"(z));
      return result;
    case Operation::extract:
      if ((z & 64) != 0)
        asm("bfe.s32 %0, %1, %2, %3;" : "=r"(result) : "r"(x), "r"(y % 40), "r"(z % 40));
      else
        asm("bfe.u32 %0, %1, %2, %3;" : "=r"(result) : "r"(x), "r"(y % 40), "r"(z % 40));
      return result;
    case Operation::insert:
      asm("bfi.b32 %0, %1, %2, %3, %4;"
          : "=r"(result)
          : "r"(x), "r"(y), "r"(z % 40), "r"(z / 64 % 40));
      return result;
    case Operation::wide_sum: return static_cast<std::uint32_t>((std::uint64_t{x} * y + z) >> 20);
    case Operation::shift_left:
      asm("shl.b32 %0, %1, %2;" : "=r"(result) : "r"(x), "r"(y % 70));
      return result;
    case Operation::shift_right:
      asm("shr.s32 %0, %1, %2;" : "=r"(result) : "r"(x), "r"(y % 70));
      return result;
    default: return result;
  }
}

template <typename T>
__device__ T of_half(Operation operation, T x, T y, T z) {
  switch (operation) {
    case Operation::add: return __hadd_rn(x, y);
    case Operation::subtract: return __hsub_rn(x, y);
    case Operation::multiply: return __hmul_rn(x, y);
    case Operation::fused: return __hfma(x, y, z);
    case Operation::least: return __hmin(x, y);
    case Operation::greatest: return __hmax(x, y);
    case Operation::least_or_nan: return __hmin_nan(x, y);
    case Operation::greatest_or_nan: return __hmax_nan(x, y);
    case Operation::negate: return __hneg(x);
    case Operation::magnitude: return __habs(x);
    case Operation::compare:
      return T(float(__hlt(x, y) | __hle(x, y) << 1 | __heq(x, y) << 2 | __hgt(x, y) << 5));
    default: return T(77.F);
  }
}

template <typename T>
__device__ T of_pair(Operation operation, T x, T y, T z) {
  switch (operation) {
    case Operation::add: return __hadd2_rn(x, y);
    case Operation::subtract: return __hsub2_rn(x, y);
    case Operation::multiply: return __hmul2_rn(x, y);
    case Operation::fused: return __hfma2(x, y, z);
    case Operation::least: return __hmin2(x, y);
    case Operation::greatest: return __hmax2(x, y);
    default: return __hneg2(x);
  }
}

template <typename T, typename Function>
__device__ void apply(Function function, Operation operation, T* result, const T* x, const T* y,
                      const T* z, unsigned count) {
  for (unsigned each = number(); each < count; each += threads())
    result[each] = function(operation, x[each], y[each], z[each]);
}

}  // namespace

extern "C" {

__global__ void apply_f32(Operation o, float* r, const float* x, const float* y, const float* z,
                          unsigned count) {
  apply(of_real<float>, o, r, x, y, z, count);
}
__global__ void apply_f64(Operation o, double* r, const double* x, const double* y, const double* z,
                          unsigned count) {
  apply(of_real<double>, o, r, x, y, z, count);
}
__global__ void apply_s8(Operation o, std::int8_t* r, const std::int8_t* x, const std::int8_t* y,
                         const std::int8_t* z, unsigned count) {
  apply(of_integer<std::int8_t>, o, r, x, y, z, count);
}
__global__ void apply_u8(Operation o, std::uint8_t* r, const std::uint8_t* x, const std::uint8_t* y,
                         const std::uint8_t* z, unsigned count) {
  apply(of_integer<std::uint8_t>, o, r, x, y, z, count);
}
__global__ void apply_s16(Operation o, std::int16_t* r, const std::int16_t* x,
                          const std::int16_t* y, const std::int16_t* z, unsigned count) {
  apply(of_integer<std::int16_t>, o, r, x, y, z, count);
}
__global__ void apply_u16(Operation o, std::uint16_t* r, const std::uint16_t* x,
                          const std::uint16_t* y, const std::uint16_t* z, unsigned count) {
  apply(of_integer<std::uint16_t>, o, r, x, y, z, count);
}
__global__ void apply_s32(Operation o, std::int32_t* r, const std::int32_t* x,
                          const std::int32_t* y, const std::int32_t* z, unsigned count) {
  apply(of_integer<std::int32_t>, o, r, x, y, z, count);
}
__global__ void apply_u32(Operation o, std::uint32_t* r, const std::uint32_t* x,
                          const std::uint32_t* y, const std::uint32_t* z, unsigned count) {
  apply(of_integer<std::uint32_t>, o, r, x, y, z, count);
}
__global__ void apply_s64(Operation o, std::int64_t* r, const std::int64_t* x,
                          const std::int64_t* y, const std::int64_t* z, unsigned count) {
  apply(of_integer<std::int64_t>, o, r, x, y, z, count);
}
__global__ void apply_u64(Operation o, std::uint64_t* r, const std::uint64_t* x,
                          const std::uint64_t* y, const std::uint64_t* z, unsigned count) {
  apply(of_integer<std::uint64_t>, o, r, x, y, z, count);
}
__global__ void apply_bits(Operation o, std::uint32_t* r, const std::uint32_t* x,
                           const std::uint32_t* y, const std::uint32_t* z, unsigned count) {
  apply(of_bits, o, r, x, y, z, count);
}
__global__ void apply_f16(Operation o, __half* r, const __half* x, const __half* y, const __half* z,
                          unsigned count) {
  apply(of_half<__half>, o, r, x, y, z, count);
}
__global__ void apply_bf16(Operation o, __nv_bfloat16* r, const __nv_bfloat16* x,
                           const __nv_bfloat16* y, const __nv_bfloat16* z, unsigned count) {
  apply(of_half<__nv_bfloat16>, o, r, x, y, z, count);
}
__global__ void apply_f16x2(Operation o, __half2* r, const __half2* x, const __half2* y,
                            const __half2* z, unsigned count) {
  apply(of_pair<__half2>, o, r, x, y, z, count);
}
__global__ void apply_bf16x2(Operation o, __nv_bfloat162* r, const __nv_bfloat162* x,
                             const __nv_bfloat162* y, const __nv_bfloat162* z, unsigned count) {
  apply(of_pair<__nv_bfloat162>, o, r, x, y, z, count);
}

// Conversions: from f32, and back from 16 and 8 bits.
__global__ void from_f32(const float* x, unsigned count, __half* half, __nv_bfloat16* brain,
                         __nv_fp8_e4m3* e4m3, __nv_fp8_e5m2* e5m2, std::int32_t* s32,
                         std::uint32_t* u32, std::int64_t* s64, std::uint64_t* u64, std::int8_t* s8,
                         float* nearest) {
  for (unsigned each = number(); each < count; each += threads()) {
    half[each] = __float2half_rn(x[each]);
    brain[each] = __float2bfloat16_rn(x[each]);
    e4m3[each] = __nv_fp8_e4m3(x[each]);
    e5m2[each] = __nv_fp8_e5m2(x[each]);
    s32[each] = __float2int_rz(x[each]);
    u32[each] = __float2uint_rn(x[each]);
    s64[each] = __float2ll_rd(x[each]);
    u64[each] = __float2ull_ru(x[each]);
    s8[each] = static_cast<std::int8_t>(__float2int_rn(fminf(fmaxf(x[each], -128.F), 127.F)));
    nearest[each] = rintf(x[each]);
  }
}
__global__ void to_f32(const std::uint16_t* x, unsigned count, float* half, float* brain,
                       float* e4m3, float* e5m2, std::int32_t* whole) {
  for (unsigned each = number(); each < count; each += threads()) {
    half[each] = __half2float(__ushort_as_half(x[each]));
    brain[each] = __bfloat162float(__ushort_as_bfloat16(x[each]));
    __nv_fp8_e4m3 narrow;
    narrow.__x = static_cast<__nv_fp8_storage_t>(x[each]);
    e4m3[each] = static_cast<float>(narrow);
    __nv_fp8_e5m2 other;
    other.__x = static_cast<__nv_fp8_storage_t>(x[each]);
    e5m2[each] = static_cast<float>(other);
    whole[each] = __half2int_rz(__ushort_as_half(x[each]));
  }
}
__global__ void from_integers(const std::int64_t* x, unsigned count, float* f32, double* f64,
                              __half* half, __nv_bfloat16* brain, float* of_unsigned,
                              std::int8_t* s8, std::uint16_t* u16, std::int64_t* extended,
                              float* toward_zero) {
  for (unsigned each = number(); each < count; each += threads()) {
    f32[each] = static_cast<float>(x[each]);
    f64[each] = static_cast<double>(x[each]);
    half[each] = __ll2half_rn(x[each]);
    brain[each] = __ll2bfloat16_rn(x[each]);
    of_unsigned[each] = static_cast<float>(static_cast<std::uint64_t>(x[each]));
    s8[each] = static_cast<std::int8_t>(x[each]);
    u16[each] = static_cast<std::uint16_t>(x[each]);
    extended[each] = static_cast<std::int64_t>(static_cast<std::int8_t>(x[each])) +
                     static_cast<std::int16_t>(x[each] >> 8) + static_cast<std::int32_t>(x[each]);
    toward_zero[each] = __ll2float_rz(x[each]);
  }
}
__global__ void from_f64(const double* x, unsigned count, float* f32, float* down,
                         std::int32_t* s32, std::uint64_t* u64, std::int64_t* s64) {
  for (unsigned each = number(); each < count; each += threads()) {
    f32[each] = static_cast<float>(x[each]);
    down[each] = __double2float_rd(x[each]);
    s32[each] = __double2int_rn(x[each]);
    u64[each] = __double2ull_rz(x[each]);
    s64[each] = __double2ll_rz(x[each]);
  }
}

// Memory: all widths, vectors, a structure as a parameter, and memory of a thread.
__global__ void copy_vectors(const uint4* x, uint4* y, const uint2* narrow, uint2* other,
                             unsigned count) {
  for (unsigned each = number(); each < count; each += threads()) {
    uint4 v = x[each];
    asm volatile("st.relaxed.sys.global.v4.u32 [%0], {%1,%2,%3,%4};" ::"l"(y + each), "r"(v.x),
                 "r"(v.y), "r"(v.z), "r"(v.w)
                 : "memory");
    unsigned long long wide = 0;
    asm volatile("ld.volatile.global.v2.u32 {%0,%1}, [%2];"
                 : "=r"(v.x), "=r"(v.y)
                 : "l"(narrow + each)
                 : "memory");
    asm volatile("mov.b64 %0, {%1,%2};" : "=l"(wide) : "r"(v.y), "r"(v.x));
    asm volatile("st.global.cs.u64 [%0], %1;" ::"l"(other + each), "l"(wide) : "memory");
  }
}
__global__ void copy_record(const __grid_constant__ Record record, Record* to, unsigned which,
                            std::uint64_t* chosen) {
  *to = record;
  *chosen = record.wide[which];
}
__global__ void reverse_locally(const int* x, int* y, unsigned count) {
  int kept[16];
  for (unsigned each = 0; each < count; ++each) kept[(each * 7) % 16] = x[each];
  for (unsigned each = 0; each < count; ++each) y[each] = kept[(count - 1 - each) * 7 % 16];
}

// Calls, pointers of functions, and branches by an index.
__device__ __noinline__ Record changed(Record record, int by) {
  record.number += by;
  record.wide[by % 5] *= 3;
  return record;
}
__device__ __noinline__ int twice(int x) { return 2 * x; }
__device__ __noinline__ int square(int x) { return x * x; }
__device__ __noinline__ int sum_to(int n) { return n <= 0 ? 0 : n + sum_to(n - 1); }
__constant__ int kTable[6] = {3, -1, 4, -1, 5, -9};
__global__ void control(Record* record, int by, int* results) {
  *record = changed(*record, by);
  int (*const functions[])(int) = {twice, square, sum_to};
  for (int each = 0; each < 3; ++each) results[each] = functions[(by + each) % 3](10 + each);
  for (int each = 0; each < 9; ++each) {
    int& result = results[3 + each];
    switch (each * by % 9) {
      case 0: result = results[1] + 1; break;
      case 1: result = results[0] * 5; break;
      case 2: result = -results[2]; break;
      case 3: result = kTable[by % 6]; break;
      case 4: result = results[0] / 3; break;
      case 5: result = results[2] << 2; break;
      case 6: result = results[1] ^ 0x55; break;
      default: result = each; break;
    }
  }
}

}  // extern "C"
