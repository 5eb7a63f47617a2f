// A collective call as the program makes it, and the checks that need no other rank.
#pragma once

#include <chrono>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include <tutti/options.hpp>
#include <tutti/reduction.hpp>
#include <tutti/types.hpp>

#include "common/wire.h"
#include "runtime/engine/engine.h"

namespace tutti {

class Group;

/// Holds what a loop repeats from call to call, which is therefore checked once and planned once.
struct CallKind {
  Collective what = Collective::barrier;
  DataType type = DataType::uint8;
  Op op = Op::sum;
  int root = 0;
  /// Elements, as the public call counts them: of the vector, or of one rank's block. In a variable
  /// call it is that of the longest block if all ranks know it, else 0.
  std::size_t count = 0;
  bool variable = false;       ///< The blocks have different lengths.
  bool premultiplied = false;  ///< A premultiplier was given.
  Accumulate accumulate = Accumulate::as_configured;
  std::uint64_t reduction = 0;  ///< The reduction_id() of a program's own reduction, which takes
                                ///< the place of type and op.

  bool operator==(const CallKind&) const = default;
};

/// Describes a buffer with a block for each rank, in elements, indexed by rank. If there are no
/// displacements, each block begins where the one before it ends.
struct BlockList {
  std::span<const std::size_t> counts;
  std::span<const std::size_t> displacements;
};

/// Holds what a variable call adds to a Call.
struct VariableBlocks {
  BlockList input;   ///< Used by reduce_scatterv, scatterv and all_to_allv.
  BlockList output;  ///< Used by all_gatherv, gatherv and all_to_allv.
  /// Elements of the one block that gatherv sends or scatterv receives.
  std::size_t own_count = 0;
};

/// The operation of the all_gather by which ranks tell each other how they split: that of a program
/// is Op::sum, so that ranks which meet in both hear of a mismatch.
inline constexpr Op kSplitOp = Op::max;
constexpr bool is_of_split(Collective what, Op op) noexcept {
  return what == Collective::all_gather && op == kSplitOp;
}

struct Call {
  CallKind kind;
  const void* input = nullptr;
  void* output = nullptr;
  std::chrono::milliseconds timeout{0};
  std::string_view algorithm = {};
  /// Set in a variable call; valid until the call returns.
  const VariableBlocks* variable = nullptr;
  CallExtras extras = {};
  Group* group = nullptr;  ///< If not null, the call is made when the group ends.
  void* stream = nullptr;  ///< The GPU's stream that orders the call, if it was given.
};

/// Does what call_of() does where `options` has members that few calls set: a stream, or a
/// program's own reduction, which replaces the type and op.
Call call_with_rare_options(Collective what, const void* input, void* output, std::size_t count,
                            DataType type, Op op, int root, const CallOptions& options);

/// Makes a Call from the arguments of a public call. The common case returns the record at once:
/// GCC 12 clears all of a record that is changed after it was made, which takes 3 ns.
inline Call call_of(Collective what, const void* input, void* output, std::size_t count,
                    DataType type, Op op, int root, const CallOptions& options) {
  if (options.reduction != nullptr || options.stream != nullptr) [[unlikely]]
    return call_with_rare_options(what, input, output, count, type, op, root, options);
  return {.kind = {.what = what,
                   .type = type,
                   .op = op,
                   .root = root,
                   .count = count,
                   .premultiplied = options.premultiplier != nullptr,
                   .accumulate = options.accumulate},
          .input = input,
          .output = output,
          .timeout = options.timeout,
          .algorithm = options.algorithm,
          .extras = {options.premultiplier, nullptr},
          .group = options.group};
}

/// The sizes of a call's buffers in bytes. `bytes` is the size of the vector or block that the
/// public call counts.
struct BufferSizes {
  std::size_t input;
  std::size_t output;
};
BufferSizes buffer_sizes(Collective what, std::size_t bytes, bool is_root, int size);

/// Throws `usage`: "all_gatherv: <what>".
[[noreturn]] void refuse(const CallKind& kind, const std::string& what);

/// These checks throw `usage`, with a message that names the argument, what was given and what is
/// possible. A call that passes may get an operation number.
void check_kind(const CallKind& kind, int size);
void check_buffers(const Call& call, int rank, int size);  // for a call that is not variable
void check_timeout(const Call& call);

/// The longest timeout that a call may ask for. A timeout of 0 stands for the configured one.
constexpr std::chrono::milliseconds kLongestTimeout = std::chrono::hours(24);
constexpr bool is_timeout(std::chrono::milliseconds timeout) noexcept {
  return timeout.count() >= 0 && timeout <= kLongestTimeout;
}
static_assert(is_timeout(kLongestTimeout) && is_timeout(std::chrono::milliseconds{0}));
static_assert(!is_timeout(kLongestTimeout + std::chrono::milliseconds{1}));
std::string not_a_timeout(std::chrono::milliseconds timeout);
void check_reduction(const Call& call);  // for a call with a program's own reduction

/// Returns the name for error messages, such as "all_gatherv" for a variable all_gather.
std::string name_of(Collective what, bool variable);

inline std::size_t element_bytes(const CallKind& kind) {
  return element_bytes(kind.type, kind.reduction);
}

/// Returns "f32" for example, or "12 bytes" for the elements of a program's own reduction.
std::string element_name(DataType type, std::uint64_t reduction);

/// Returns for example "all_reduce(1024 x f32, sum)", for error messages. `reduction` is the
/// program's own reduction that the call names, if it is known.
std::string describe(const CallSignature& call, const UserReduction* reduction = nullptr);

}  // namespace tutti
