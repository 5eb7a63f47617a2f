#include "runtime/call.h"

#include <cstdint>
#include <limits>

#include <fmt/format.h>

#include <tutti/error.hpp>

#include "collectives/semantics.h"
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

struct Blocks {
  std::size_t input;
  std::size_t output;
};

// How many times `count` each buffer holds.
Blocks blocks(Collective what, bool is_root, int size) {
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

std::string_view in_place_rule(Collective what) {
  if (holds_one_block(what, Place::input)) return "input == output + rank * count";
  if (holds_one_block(what, Place::output)) return "output == input + rank * count";
  return "input == output";
}

}  // namespace

void check_kind(const CallKind& kind, int size) {
  if (static_cast<int>(kind.type) >= kDataTypes)
    refuse(kind, fmt::format("there is no data type {}", static_cast<int>(kind.type)));
  if (static_cast<int>(kind.op) >= kOps)
    refuse(kind, fmt::format("there is no reduction {}", static_cast<int>(kind.op)));
  if (has_root(kind.what) && (kind.root < 0 || kind.root >= size))
    refuse(kind, fmt::format("root {} is not a rank; ranks are 0 to {}", kind.root, size - 1));
  if (reduces(kind.what)) combine_function(kind.type, kind.op);  // throws `usage` naming the pair
  if (reduces(kind.what) && kind.op == Op::premul_sum)
    refuse(kind, "no call takes the scalar of a premultiplied sum yet");
  const std::size_t most = static_cast<std::size_t>(std::numeric_limits<std::ptrdiff_t>::max()) /
                           size_of(kind.type) / static_cast<std::size_t>(size);
  if (!kind.variable && kind.count > most)
    refuse(kind,
           fmt::format("{} elements of {} are more than memory can be; at most {} with {} ranks",
                       kind.count, to_string(kind.type), most, size));
}

void check_timeout(const Call& call) {
  if (call.timeout.count() < 0)
    refuse(call.kind, fmt::format("a timeout of {} ms is negative", call.timeout.count()));
}

void check_buffers(const Call& call, int rank, int size) {
  const CallKind& kind = call.kind;
  check_timeout(call);
  const Blocks holds = blocks(kind.what, rank == kind.root, size);
  const std::size_t bytes = kind.count * size_of(kind.type);
  const std::size_t in_bytes = bytes * holds.input;
  const std::size_t out_bytes = bytes * holds.output;
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

std::string describe(const CallSignature& call) {
  const bool variable = call.lengths != 0;
  std::string text = name_of(call.what, variable) + "(";
  if (call.lengths == kPairLengths)
    text += to_string(call.type);
  else if (call.what != Collective::barrier)
    text += fmt::format("{} x {}", call.count, to_string(call.type));
  if (variable && call.lengths != kPairLengths)
    text += fmt::format(" in all, counts #{:08x}", call.lengths);
  if (reduces(call.what)) text += fmt::format(", {}", to_string(call.op));
  if (has_root(call.what)) text += fmt::format(", root {}", call.root);
  return text + ")";
}

}  // namespace tutti
