// tutti: a reduction of one's own.
#pragma once

#include <cstddef>
#include <string_view>

namespace tutti {

/// A reduction of one's own, on elements of one's own: any `element_bytes` that may be copied as
/// bytes. It must be associative, and commutative unless the call asks for an algorithm that folds
/// in the order of ranks: "one_shot" or "all_pairs". All ranks get the same bits by every
/// algorithm.
struct UserReduction {
  /// inout[i] = in[i] op inout[i] for i < count, `in` being what stands to the left, as in
  /// MPI_Op_create. Called with a few KiB at a time, neither aligned to more than 16 bytes nor
  /// overlapping; by any thread that advances the operation, several at a time where several
  /// operations run. It must not call tutti. What it throws fails the operation.
  using Function = void (*)(const void* in, void* inout, std::size_t count, void* context);

  std::string_view name;      ///< For messages.
  std::size_t element_bytes;  ///< 1 to kMaxUserElementBytes.
  Function function;
  void* context = nullptr;  ///< Handed to the function.
};
inline constexpr std::size_t kMaxUserElementBytes = 4096;

}  // namespace tutti
