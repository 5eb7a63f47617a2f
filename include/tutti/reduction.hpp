// tutti: reductions of the program's own.
#pragma once

#include <cstddef>
#include <string_view>

namespace tutti {

/// A reduction of the program's own, on elements of `element_bytes` bytes that may be copied
/// bytewise. It must be associative; it must also be commutative unless the call asks for an
/// algorithm that reduces in the order of ranks, "one_shot" or "all_pairs". Every algorithm gives
/// all ranks the same bits.
struct UserReduction {
  /// Computes inout[i] = in[i] op inout[i] for i < count; `in` is the left operand, as in
  /// MPI_Op_create. It is called with a few KiB at a time, which do not overlap and are aligned to
  /// at most 16 bytes. Any thread that advances an operation may call it, and several threads do so
  /// at once if several operations are under way. It must not call tutti. An exception fails the
  /// operation.
  using Function = void (*)(const void* in, void* inout, std::size_t count, void* context);

  std::string_view name;      ///< For messages.
  std::size_t element_bytes;  ///< 1 to kMaxUserElementBytes.
  Function function;
  void* context = nullptr;  ///< Passed to the function.
};
inline constexpr std::size_t kMaxUserElementBytes = 4096;
static_assert(kMaxUserElementBytes <= 0xffff'ffff, "ranks compare it as 32 bits");

}  // namespace tutti
