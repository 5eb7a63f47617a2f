#include "perf/on_stream.h"

#include <cstddef>

namespace tutti::perf {
namespace {

/// Describes a transfer of one direction.
struct Transfer {
  std::byte* data = nullptr;
  int peer = 0;
};

/// Sends and receives as many elements in a group: a receive alone would keep the send behind it on
/// the stream from its turn.
Work exchange(Communicator& comm, std::size_t count, DataType type, const Transfer& from,
              const Transfer& to, CallOptions options) {
  Group group;
  options.group = &group;
  comm.recv(from.data, count, type, from.peer, 0, options);
  comm.send(to.data, count, type, to.peer, 0, options);
  return group.end_async();
}

/// Runs an all_gather in rounds, which follow each other on the stream.
void exchange_over_hypercube(Communicator& comm, const Call& call, const Buffers& buffers,
                             const CallOptions& options, const GpuOfRank& gpu,
                             std::vector<Work>& works) {
  const int rank = comm.rank();
  const std::size_t block_bytes = call.count * size_of(call.type);
  const auto block = [&](int of) {
    return buffers.output + static_cast<std::size_t>(of) * block_bytes;
  };
  if (buffers.input != block(rank)) gpu.copy(block(rank), buffers.input, block_bytes);
  for (int mask = 1; mask < comm.size(); mask *= 2) {
    const int mine = rank & ~(mask - 1), peer = rank ^ mask;
    works.push_back(exchange(comm, call.count * static_cast<std::size_t>(mask), call.type,
                             {block(mine ^ mask), peer}, {block(mine), peer}, options));
  }
}

}  // namespace

void start_on_stream(Communicator& comm, const Call& call, const Buffers& buffers,
                     const CallOptions& options, const GpuOfRank& gpu, std::vector<Work>& works) {
  const GpuOfRank::Current current(gpu);
  CallOptions ordered = options;
  ordered.stream = gpu.stream();
  const int rank = comm.rank(), ranks = comm.size();
  if (call.what == Operation::sendrecv) {
    works.push_back(exchange(comm, call.count, call.type,
                             {buffers.output, (rank + ranks - 1) % ranks},
                             {buffers.input, (rank + 1) % ranks}, ordered));
    return;
  }
  if (call.what == Operation::hypercube)
    return exchange_over_hypercube(comm, call, buffers, ordered, gpu, works);
  Buffers own = buffers;
  if (call.what == Operation::broadcast) {  // works in place; out of place, the root copies
    if (rank == call.root && own.input != own.output) gpu.copy(own.output, own.input, call.bytes());
    own.input = own.output;
  }
  run(comm, call, own, ordered, &works);
}

}  // namespace tutti::perf
