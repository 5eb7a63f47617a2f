#include "perf/operations.h"

#include <algorithm>
#include <cassert>
#include <cstring>

namespace tutti::perf {

std::size_t Call::bytes() const noexcept {
  return std::max(input_count, output_count) * size_of(type);
}

bool reduces(Collective what) noexcept {
  return what == Collective::all_reduce || what == Collective::reduce ||
         what == Collective::reduce_scatter;
}

bool has_root(Collective what) noexcept {
  return what == Collective::broadcast || what == Collective::reduce ||
         what == Collective::gather || what == Collective::scatter;
}

namespace {

/// Whether a buffer holds a block of each rank, which the table counts together.
bool splits_input(Collective what) noexcept {
  return what == Collective::reduce_scatter || what == Collective::scatter ||
         what == Collective::all_to_all;
}
bool splits_output(Collective what) noexcept {
  return what == Collective::all_gather || what == Collective::gather ||
         what == Collective::all_to_all;
}
bool splits(Collective what) noexcept { return splits_input(what) || splits_output(what); }

}  // namespace

Call call_of(Collective what, DataType type, Op op, int root, std::size_t bytes, int ranks) {
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

void run(Communicator& comm, const Call& call, const Buffers& buffers) {
  switch (call.what) {
    case Collective::all_reduce:
      return comm.all_reduce(buffers.input, buffers.output, call.count, call.type, call.op);
    case Collective::reduce:
      return comm.reduce(buffers.input, buffers.output, call.count, call.type, call.op, call.root);
    case Collective::broadcast:
      // It is in place by nature: who wants a copy at the root makes it.
      if (comm.rank() == call.root && buffers.input != buffers.output && call.count > 0)
        std::memcpy(buffers.output, buffers.input, call.bytes());
      return comm.broadcast(buffers.output, call.count, call.type, call.root);
    case Collective::all_gather:
      return comm.all_gather(buffers.input, buffers.output, call.count, call.type);
    case Collective::reduce_scatter:
      return comm.reduce_scatter(buffers.input, buffers.output, call.count, call.type, call.op);
    case Collective::barrier: return comm.barrier();
    case Collective::gather:
      return comm.gather(buffers.input, buffers.output, call.count, call.type, call.root);
    case Collective::scatter:
      return comm.scatter(buffers.input, buffers.output, call.count, call.type, call.root);
    case Collective::all_to_all:
      return comm.all_to_all(buffers.input, buffers.output, call.count, call.type);
  }
  assert(false);
}

double algorithm_gb_s(const Call& call, double time_us, int ranks) {
  // Of the blocks that a rank sends or gets, its own is part of the size.
  const int blocks = splits(call.what) ? ranks : 1;
  const auto bytes = static_cast<double>(call.count * size_of(call.type)) * blocks;
  return time_us > 0 ? bytes / time_us / 1e3 : 0;
}

double bus_factor(Collective what, int ranks) {
  const double others = static_cast<double>(ranks - 1) / ranks;
  if (what == Collective::all_reduce) return 2 * others;
  return splits(what) ? others : 1;
}

}  // namespace tutti::perf
