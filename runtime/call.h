// One call as the program makes it, and the check that it is right by itself.
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
#include "runtime/engine/execution.h"

namespace tutti {

class Group;

/// What a loop repeats from call to call: checked once, and planned once.
struct CallKind {
  Collective what = Collective::barrier;
  DataType type = DataType::uint8;
  Op op = Op::sum;
  int root = 0;
  std::size_t count = 0;  ///< As the public call counts: of the vector, or of one rank's block.
                          ///< Variable: of the longest block, where all ranks know it, or 0.
  bool variable = false;  ///< Blocks have lengths of their own.
  bool premultiplied = false;  ///< A premultiplier was given.
  Accumulate accumulate = Accumulate::as_configured;
  std::uint64_t reduction = 0;  ///< reduction_id() of a program's own, in place of type and op.

  bool operator==(const CallKind&) const = default;
};

/// A buffer with a block for each rank, as the caller describes it: elements, by rank. No
/// displacements: one block behind the other.
struct BlockList {
  std::span<const std::size_t> counts;
  std::span<const std::size_t> displacements;
};

/// What a variable call adds to a Call.
struct VariableBlocks {
  BlockList input;            ///< Of reduce_scatterv, scatterv, all_to_allv,
  BlockList output;           ///< of all_gatherv, gatherv, all_to_allv.
  std::size_t own_count = 0;  ///< Of the one block that gatherv gives and scatterv gets.
};

struct Call {
  CallKind kind;
  const void* input = nullptr;
  void* output = nullptr;
  std::chrono::milliseconds timeout{0};
  std::string_view algorithm = {};
  const VariableBlocks* variable = nullptr;  ///< Of a variable call; valid until it returns.
  CallExtras extras = {};
  Group* group = nullptr;  ///< To be made when it ends.
  bool (*interrupted)() = nullptr;
};

/// Takes over what few calls give: a reduction of the program's own, in place of the type and op.
/// Throws `unavailable` for a stream.
void take_rare_options(Call& call, const CallOptions& options);
/// Throws `unavailable`: this build has no engine for a device.
[[noreturn]] void refuse_stream(std::string_view operation);

/// As the public call has it.
inline Call call_of(Collective what, const void* input, void* output, std::size_t count,
                    DataType type, Op op, int root, const CallOptions& options) {
  Call made{.kind = {.what = what,
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
            .group = options.group,
            .interrupted = options.interrupted};
  if (options.reduction != nullptr || options.stream != nullptr) [[unlikely]]
    take_rare_options(made, options);
  return made;
}

/// Of a call's buffers, in bytes, where it has `bytes` as the public call counts.
struct BufferSizes {
  std::size_t input;
  std::size_t output;
};
BufferSizes buffer_sizes(Collective what, std::size_t bytes, bool is_root, int size);

/// Throws `usage`: "all_gatherv: <what>".
[[noreturn]] void refuse(const CallKind& kind, const std::string& what);

/// All throw `usage` naming the argument, what was given and what is possible. A call that passes
/// may be numbered.
void check_kind(const CallKind& kind, int size);
void check_buffers(const Call& call, int rank, int size);  // of a call that is not variable
void check_timeout(const Call& call);

/// What a call may ask for; 0: what the configuration says.
constexpr std::chrono::milliseconds kLongestTimeout = std::chrono::hours(24);
constexpr bool is_timeout(std::chrono::milliseconds timeout) noexcept {
  return timeout.count() >= 0 && timeout <= kLongestTimeout;
}
std::string not_a_timeout(std::chrono::milliseconds timeout);
void check_reduction(const Call& call);  // of a call that brings its own

/// "all_gatherv" for all_gather with lengths.
std::string name_of(Collective what, bool variable);

inline std::size_t element_bytes(const CallKind& kind) {
  return element_bytes(kind.type, kind.reduction);
}

/// "f32", or "12 bytes" of a program's own.
std::string element_name(DataType type, std::uint64_t reduction);

/// "all_reduce(1024 x f32, sum)", for messages. `reduction`: the program's own that it names, if
/// that is known.
std::string describe(const CallSignature& call, const UserReduction* reduction = nullptr);

}  // namespace tutti
