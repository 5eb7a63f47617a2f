#include "perf/operations.h"

#include <algorithm>
#include <cassert>
#include <cstring>

namespace tutti::perf {

std::size_t Call::bytes() const noexcept {
  return std::max(input_count, output_count) * size_of(type);
}

bool reduces(Operation what) noexcept {
  return what == Operation::all_reduce || what == Operation::reduce ||
         what == Operation::reduce_scatter;
}

bool has_root(Operation what) noexcept {
  return what == Operation::broadcast || what == Operation::reduce || what == Operation::gather ||
         what == Operation::scatter;
}

namespace {

/// Whether a buffer holds a block of each rank, which the table counts together.
bool splits_input(Operation what) noexcept {
  return what == Operation::reduce_scatter || what == Operation::scatter ||
         what == Operation::alltoall;
}
bool splits_output(Operation what) noexcept {
  return what == Operation::all_gather || what == Operation::gather || what == Operation::alltoall;
}
bool splits(Operation what) noexcept { return splits_input(what) || splits_output(what); }

}  // namespace

Call call_of(Operation what, DataType type, Op op, int root, std::size_t bytes, int ranks) {
  assert(ranks >= 1);
  const auto n = static_cast<std::size_t>(ranks);
  const std::size_t elements = bytes / size_of(type);
  const std::size_t unit = 16 / size_of(type);
  const std::size_t block = elements / n / unit * unit;
  Call call{what, type, op, root, elements, elements, elements};
  if (!splits(what)) return call;
  call.count = block;
  call.input_count = splits_input(what) ? block * n : block;
  call.output_count = splits_output(what) ? block * n : block;
  return call;
}

Buffers in_place(const Call& call, std::byte* memory, int rank) {
  std::byte* own = memory + static_cast<std::size_t>(rank) * call.count * size_of(call.type);
  if (splits_output(call.what) && !splits_input(call.what)) return {own, memory};
  if (splits_input(call.what) && !splits_output(call.what)) return {memory, own};
  return {memory, memory};
}

namespace {

/// A broadcast is in place by nature: who wants a copy at the root makes it.
void copy_at_root(const Communicator& comm, const Call& call, const Buffers& buffers) {
  if (comm.rank() == call.root && buffers.input != buffers.output && call.count > 0)
    std::memcpy(buffers.output, buffers.input, call.bytes());
}

}  // namespace

void run(Communicator& comm, const Call& call, const Buffers& buffers, const CallOptions& options) {
  const auto& [what, type, op, root, count, input_count, output_count] = call;
  const auto& [input, output] = buffers;
  switch (what) {
    case Operation::all_reduce: return comm.all_reduce(input, output, count, type, op, options);
    case Operation::reduce: return comm.reduce(input, output, count, type, op, root, options);
    case Operation::broadcast:
      copy_at_root(comm, call, buffers);
      return comm.broadcast(output, count, type, root, options);
    case Operation::all_gather: return comm.all_gather(input, output, count, type, options);
    case Operation::reduce_scatter:
      return comm.reduce_scatter(input, output, count, type, op, options);
    case Operation::gather: return comm.gather(input, output, count, type, root, options);
    case Operation::scatter: return comm.scatter(input, output, count, type, root, options);
    case Operation::alltoall: return comm.all_to_all(input, output, count, type, options);
  }
  assert(false);
}

Work start(Communicator& comm, const Call& call, const Buffers& buffers,
           const CallOptions& options) {
  const auto& [what, type, op, root, count, input_count, output_count] = call;
  const auto& [input, output] = buffers;
  switch (what) {
    case Operation::all_reduce:
      return comm.all_reduce_async(input, output, count, type, op, options);
    case Operation::reduce: return comm.reduce_async(input, output, count, type, op, root, options);
    case Operation::broadcast:
      copy_at_root(comm, call, buffers);
      return comm.broadcast_async(output, count, type, root, options);
    case Operation::all_gather: return comm.all_gather_async(input, output, count, type, options);
    case Operation::reduce_scatter:
      return comm.reduce_scatter_async(input, output, count, type, op, options);
    case Operation::gather: return comm.gather_async(input, output, count, type, root, options);
    case Operation::scatter: return comm.scatter_async(input, output, count, type, root, options);
    case Operation::alltoall: return comm.all_to_all_async(input, output, count, type, options);
  }
  assert(false);
  return {};
}

double algorithm_gb_s(const Call& call, double time_us, int ranks) {
  // Of the blocks that a rank sends or gets, its own is part of the size.
  const int blocks = splits(call.what) ? ranks : 1;
  const auto bytes = static_cast<double>(call.count * size_of(call.type)) * blocks;
  return time_us > 0 ? bytes / time_us / 1e3 : 0;
}

double bus_factor(Operation what, int ranks) {
  const double others = static_cast<double>(ranks - 1) / ranks;
  if (what == Operation::all_reduce) return 2 * others;
  return splits(what) ? others : 1;
}

}  // namespace tutti::perf
