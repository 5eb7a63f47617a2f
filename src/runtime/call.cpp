#include "runtime/call.h"

#include <cstdint>
#include <limits>

#include <fmt/format.h>

#include <tutti/error.hpp>

#include "compute/combine.h"

namespace tutti {
namespace {

[[noreturn]] void refuse(const Call& call, const std::string& what) {
  throw Error(ErrorKind::usage, fmt::format("{}: {}", to_string(call.what), what));
}

bool has_root(Collective what) {
  return what == Collective::broadcast || what == Collective::reduce;
}
bool reduces(Collective what) {
  return what == Collective::all_reduce || what == Collective::reduce ||
         what == Collective::reduce_scatter;
}

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
  }
  return {0, 0};
}

void check_overlap(const Call& call, int rank, std::size_t in_bytes, std::size_t out_bytes) {
  const auto in = reinterpret_cast<std::uintptr_t>(call.input);
  const auto out = reinterpret_cast<std::uintptr_t>(call.output);
  if (in_bytes == 0 || out_bytes == 0 || in + in_bytes <= out || out + out_bytes <= in) return;
  const std::size_t own =
      static_cast<std::size_t>(rank) * (in_bytes < out_bytes ? in_bytes : out_bytes);
  if (call.what == Collective::all_gather       ? in == out + own
      : call.what == Collective::reduce_scatter ? out == in + own
                                                : in == out)
    return;  // in place
  refuse(
      call,
      fmt::format(
          "input ({} bytes at {}) and output ({} bytes at {}) overlap without being in place; {}",
          in_bytes, call.input, out_bytes, call.output,
          call.what == Collective::all_gather       ? "in place is input == output + rank * count"
          : call.what == Collective::reduce_scatter ? "in place is output == input + rank * count"
                                                    : "in place is input == output"));
}

}  // namespace

void check_call(const Call& call, int rank, int size) {
  if (static_cast<int>(call.type) >= kDataTypes)
    refuse(call, fmt::format("there is no data type {}", static_cast<int>(call.type)));
  if (static_cast<int>(call.op) >= kOps)
    refuse(call, fmt::format("there is no reduction {}", static_cast<int>(call.op)));
  if (call.timeout.count() < 0)
    refuse(call, fmt::format("a timeout of {} ms is negative", call.timeout.count()));
  if (has_root(call.what) && (call.root < 0 || call.root >= size))
    refuse(call, fmt::format("root {} is not a rank; ranks are 0 to {}", call.root, size - 1));
  if (reduces(call.what)) combine_function(call.type, call.op);  // throws `usage` naming the pair
  const Blocks holds = blocks(call.what, rank == call.root, size);
  const std::size_t most = std::numeric_limits<std::ptrdiff_t>::max() / size_of(call.type) /
                           static_cast<std::size_t>(size);
  if (call.count > most)
    refuse(call,
           fmt::format("{} elements of {} are more than memory can be; at most {} with {} ranks",
                       call.count, to_string(call.type), most, size));
  const std::size_t bytes = call.count * size_of(call.type);
  if (call.input == nullptr && bytes * holds.input > 0) refuse(call, "input is null");
  if (call.output == nullptr && bytes * holds.output > 0) refuse(call, "output is null");
  check_overlap(call, rank, bytes * holds.input, bytes * holds.output);
}

std::string describe(const CallSignature& call) {
  std::string text = fmt::format("{}(", to_string(call.what));
  if (call.what != Collective::barrier)
    text += fmt::format("{} x {}", call.count, to_string(call.type));
  if (reduces(call.what)) text += fmt::format(", {}", to_string(call.op));
  if (has_root(call.what)) text += fmt::format(", root {}", call.root);
  return text + ")";
}

}  // namespace tutti
