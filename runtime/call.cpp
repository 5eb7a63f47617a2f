#include "runtime/call.h"

#include <cassert>
#include <cstdint>
#include <limits>

#include <fmt/format.h>

#include <tutti/error.hpp>

#include "collectives/schedule/semantics.h"
#include "compute/combine.h"

namespace tutti {

std::string name_of(Collective what, bool variable) {
  return fmt::format("{}{}", to_string(what), variable ? "v" : "");
}

void refuse(const CallKind& kind, const std::string& what) {
  throw Error(ErrorKind::usage, fmt::format("{}: {}", name_of(kind.what, kind.variable), what));
}

namespace {

using collectives::has_root;
using collectives::holds_one_block;
using collectives::reduces;

// Returns how many times `count` elements each buffer holds.
BufferSizes blocks(Collective what, bool is_root, int size) {
  static_assert(kCollectives == 9, "each has a case below");
  assert(size >= 1);
  const auto n = static_cast<std::size_t>(size);
  switch (what) {
    case Collective::all_reduce: return {1, 1};
    case Collective::reduce: return {1, is_root ? 1u : 0u};
    case Collective::broadcast: return {1, 1};
    case Collective::all_gather: return {1, n};
    case Collective::reduce_scatter: return {n, 1};
    case Collective::barrier: return {0, 0};
    case Collective::gather: return {1, is_root ? n : 0};
    case Collective::scatter: return {is_root ? n : 0, 1};
    case Collective::all_to_all: return {n, n};
  }
  return {0, 0};
}

bool in_place(const Call& call, std::uintptr_t in, std::uintptr_t out, std::size_t own) {
  if (holds_one_block(call.kind.what, Place::input)) return in == out + own;
  if (holds_one_block(call.kind.what, Place::output)) return out == in + own;
  return in == out;
}

std::string reduction_name(const CallSignature& call, const UserReduction* reduction) {
  if (call.reduction == 0) return std::string(to_string(call.op));
  const std::uint64_t hash = call.reduction >> 32;
  if (reduction == nullptr ||
      reduction_id(reduction->name, reduction->element_bytes) != call.reduction)
    return fmt::format("reduction #{:08x}", hash);
  return fmt::format("reduction '{}' #{:08x}", reduction->name, hash);
}

std::string_view in_place_rule(Collective what) {
  if (holds_one_block(what, Place::input)) return "input == output + rank * count";
  if (holds_one_block(what, Place::output)) return "output == input + rank * count";
  return "input == output";
}

}  // namespace

std::string element_name(DataType type, std::uint64_t reduction) {
  return reduction == 0 ? std::string(to_string(type))
                        : fmt::format("{} bytes", element_bytes(type, reduction));
}

Call call_with_rare_options(Collective what, const void* input, void* output, std::size_t count,
                            DataType type, Op op, int root, const CallOptions& options) {
  CallOptions common = options;
  common.stream = nullptr;
  common.reduction = nullptr;
  const bool own = options.reduction != nullptr;
  Call call = call_of(what, input, output, count, own ? DataType::uint8 : type, own ? Op::sum : op,
                      root, common);
  call.stream = options.stream;
  if (!own) return call;
  call.kind.reduction = reduction_id(options.reduction->name, options.reduction->element_bytes);
  call.extras.reduction = options.reduction;
  return call;
}

void check_reduction(const Call& call) {
  assert(call.extras.reduction != nullptr);
  if (!reduces(call.kind.what))
    refuse(call.kind, "CallOptions::reduction is for all_reduce, reduce and reduce_scatter alone");
  combine_function(*call.extras.reduction);
}

void check_kind(const CallKind& kind, int size) {
  assert(size >= 1 && (!kind.variable || kind.what != Collective::all_reduce));
  if (static_cast<int>(kind.what) >= kCollectives)
    refuse(kind, fmt::format("there is no collective {}", static_cast<int>(kind.what)));
  if (static_cast<int>(kind.type) >= kDataTypes)
    refuse(kind, fmt::format("there is no data type {}", static_cast<int>(kind.type)));
  if (static_cast<int>(kind.op) >= kOps)
    refuse(kind, fmt::format("there is no reduction {}", static_cast<int>(kind.op)));
  if (static_cast<int>(kind.accumulate) < 0 || kind.accumulate > Accumulate::reproducible)
    refuse(kind, fmt::format("there is no accumulation {}", static_cast<int>(kind.accumulate)));
  if (has_root(kind.what) && (kind.root < 0 || kind.root >= size))
    refuse(kind, fmt::format("root {} is not a rank; ranks are 0 to {}", kind.root, size - 1));
  if (reduces(kind.what)) combine_function(kind.type, kind.op);  // throws `usage` naming the pair
  const bool premultiplies = reduces(kind.what) && kind.op == Op::premul_sum && kind.reduction == 0;
  if (premultiplies && !kind.premultiplied)
    refuse(kind, "premul_sum needs CallOptions::premultiplier, which is null");
  if (!premultiplies && kind.premultiplied)
    refuse(kind, "CallOptions::premultiplier is for premul_sum alone");
  const std::size_t most = static_cast<std::size_t>(std::numeric_limits<std::ptrdiff_t>::max()) /
                           element_bytes(kind) / static_cast<std::size_t>(size);
  if (!kind.variable && kind.count > most)
    refuse(kind,
           fmt::format("{} elements of {} are more than memory can be; at most {} with {} ranks",
                       kind.count, element_name(kind.type, kind.reduction), most, size));
}

void check_timeout(const Call& call) {
  if (!is_timeout(call.timeout)) refuse(call.kind, not_a_timeout(call.timeout));
}

BufferSizes buffer_sizes(Collective what, std::size_t bytes, bool is_root, int size) {
  const BufferSizes holds = blocks(what, is_root, size);
  return {bytes * holds.input, bytes * holds.output};
}

void check_buffers(const Call& call, int rank, int size) {
  const CallKind& kind = call.kind;
  assert(rank >= 0 && rank < size && !kind.variable && call.variable == nullptr);
  check_timeout(call);
  const std::size_t bytes = kind.count * element_bytes(kind);
  const auto [in_bytes, out_bytes] = buffer_sizes(kind.what, bytes, rank == kind.root, size);
  if (call.input == nullptr && in_bytes > 0) refuse(kind, "input is null");
  if (call.output == nullptr && out_bytes > 0) refuse(kind, "output is null");
  const auto in = reinterpret_cast<std::uintptr_t>(call.input);
  const auto out = reinterpret_cast<std::uintptr_t>(call.output);
  const bool apart =
      in_bytes == 0 || out_bytes == 0 || in + in_bytes <= out || out + out_bytes <= in;
  if (apart || in_place(call, in, out, static_cast<std::size_t>(rank) * bytes)) return;
  refuse(kind,
         fmt::format("input ({} bytes at {}) and output ({} bytes at {}) overlap without being "
                     "in place, which is {}",
                     in_bytes, call.input, out_bytes, call.output, in_place_rule(kind.what)));
}

std::string describe(const CallSignature& call, const UserReduction* reduction) {
  if (is_of_split(call.what, call.op)) return "split";
  const bool variable = call.lengths != 0;
  std::string text = name_of(call.what, variable) + "(";
  if (call.lengths == kPairLengths)
    text += to_string(call.type);
  else if (call.what != Collective::barrier)
    text += fmt::format("{} x {}", call.count, element_name(call.type, call.reduction));
  if (variable && call.lengths != kPairLengths)
    text += fmt::format(" in all, counts #{:08x}", call.lengths);
  if (reduces(call.what)) text += fmt::format(", {}", reduction_name(call, reduction));
  if (call.accumulates_f32) text += ", accumulate = f32";
  if (call.reproducible) text += ", accumulate = reproducible";
  if (has_root(call.what)) text += fmt::format(", root {}", call.root);
  return text + ")";
}

}  // namespace tutti
