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
  return what == Collective::broadcast || what == Collective::reduce;
}

Call call_of(Collective what, DataType type, Op op, int root, std::size_t bytes, int ranks) {
  assert(ranks >= 1);
  const auto n = static_cast<std::size_t>(ranks);
  const std::size_t elements = bytes / size_of(type);
  const std::size_t unit = 16 / size_of(type);
  const std::size_t block = elements / n / unit * unit;
  Call call{what, type, op, root, elements, elements, elements};
  if (what == Collective::all_gather)
    call.count = call.input_count = block, call.output_count = block * n;
  if (what == Collective::reduce_scatter)
    call.count = call.output_count = block, call.input_count = block * n;
  return call;
}

Buffers in_place(const Call& call, std::byte* memory, int rank) {
  std::byte* own = memory + static_cast<std::size_t>(rank) * call.count * size_of(call.type);
  if (call.what == Collective::all_gather) return {own, memory};
  if (call.what == Collective::reduce_scatter) return {memory, own};
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
  }
  assert(false);
}

double algorithm_gb_s(const Call& call, double time_us, int ranks) {
  // Of the blocks that a rank sends or gets, its own is part of the size.
  const bool blocks =
      call.what == Collective::all_gather || call.what == Collective::reduce_scatter;
  const auto bytes = static_cast<double>(call.count * size_of(call.type)) * (blocks ? ranks : 1);
  return time_us > 0 ? bytes / time_us / 1e3 : 0;
}

double bus_factor(Collective what, int ranks) {
  const double others = static_cast<double>(ranks - 1) / ranks;
  if (what == Collective::all_reduce) return 2 * others;
  if (what == Collective::all_gather || what == Collective::reduce_scatter) return others;
  return 1;
}

}  // namespace tutti::perf
