#include "perf/operations.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <utility>

namespace tutti::perf {

std::size_t Call::bytes() const noexcept {
  return std::max(input_count, output_count) * size_of(type);
}

std::optional<Collective> collective_of(Operation what) noexcept {
  switch (what) {
    case Operation::all_reduce: return Collective::all_reduce;
    case Operation::all_gather: return Collective::all_gather;
    case Operation::broadcast: return Collective::broadcast;
    case Operation::reduce: return Collective::reduce;
    case Operation::reduce_scatter: return Collective::reduce_scatter;
    case Operation::alltoall: return Collective::all_to_all;
    case Operation::gather: return Collective::gather;
    case Operation::scatter: return Collective::scatter;
    case Operation::alltoallv:
    case Operation::sendrecv:
    case Operation::hypercube: break;
  }
  return std::nullopt;
}

bool reduces(Operation what) noexcept {
  return what == Operation::all_reduce || what == Operation::reduce ||
         what == Operation::reduce_scatter;
}

bool has_root(Operation what) noexcept {
  return what == Operation::broadcast || what == Operation::reduce || what == Operation::gather ||
         what == Operation::scatter;
}

bool has_in_place(Operation what) noexcept {
  return what != Operation::alltoallv && what != Operation::sendrecv;
}

namespace {

/// Whether the buffer holds a block of each rank, which the table counts together.
bool splits_input(Operation what) noexcept {
  return what == Operation::reduce_scatter || what == Operation::scatter ||
         what == Operation::alltoall;
}
bool splits_output(Operation what) noexcept {
  return what == Operation::all_gather || what == Operation::gather ||
         what == Operation::alltoall || what == Operation::hypercube;
}
bool splits(Operation what) noexcept { return splits_input(what) || splits_output(what); }

/// Returns the elements that a rank sends to the one that is `distance` ranks after it, by the
/// formula of nccl-tests.
std::size_t sent_over(int distance, std::size_t total_bytes, const Ranks& ranks, DataType type) {
  assert(0 <= distance && distance < ranks.count);
  const auto total = static_cast<double>(total_bytes);
  const double same = total / ranks.count;
  const double distances = ranks.count * (ranks.count - 1) / 2.0;
  const double weighted = ranks.count > 1 ? distance * total / distances : same;
  const double bytes = (1 - ranks.spread) * same + ranks.spread * weighted;
  return static_cast<std::size_t>(bytes) / 16 * 16 / size_of(type);
}

}  // namespace

Call call_of(Operation what, DataType type, Op op, int root, std::size_t bytes,
             const Ranks& ranks) {
  assert(ranks.count >= 1 && ranks.own < ranks.count);
  const auto n = static_cast<std::size_t>(ranks.count);
  const std::size_t elements = bytes / size_of(type);
  const std::size_t unit = 16 / size_of(type);
  const std::size_t block = elements / n / unit * unit;
  Call call{what, type, op, root, elements, elements, elements};
  if (splits(what)) {
    call.count = block;
    call.input_count = splits_input(what) ? block * n : block;
    call.output_count = splits_output(what) ? block * n : block;
  }
  if (what == Operation::alltoallv) {
    call.count = block;
    call.input_count = call.output_count = 0;
    for (int peer = 0; peer < ranks.count; ++peer) {
      const int after = (peer - ranks.own + ranks.count) % ranks.count;
      const std::size_t total_bytes = block * n * size_of(type);
      call.to.push_back(sent_over(after, total_bytes, ranks, type));
      call.from.push_back(sent_over((ranks.count - after) % ranks.count, total_bytes, ranks, type));
      call.input_count += call.to.back();
      call.output_count += call.from.back();
    }
  }
  return call;
}

Buffers in_place(const Call& call, std::byte* memory, int rank) {
  assert(memory != nullptr && rank >= 0);
  std::byte* own = memory + static_cast<std::size_t>(rank) * call.count * size_of(call.type);
  if (splits_output(call.what) && !splits_input(call.what)) return {own, memory};
  if (splits_input(call.what) && !splits_output(call.what)) return {memory, own};
  return {memory, memory};
}

namespace {

/// A broadcast always works in place; out of place, the root copies its buffer.
void copy_at_root(const Communicator& comm, const Call& call, const Buffers& buffers) {
  if (comm.rank() == call.root && buffers.input != buffers.output && call.count > 0)
    std::memcpy(buffers.output, buffers.input, call.bytes());
}

/// Receives from the rank before and sends to the one after; with `works`, without waiting.
void send_and_receive(Communicator& comm, const Call& call, const Buffers& buffers,
                      const CallOptions& options, std::vector<Work>* works) {
  const int rank = comm.rank(), ranks = comm.size();
  const int before = (rank + ranks - 1) % ranks, after = (rank + 1) % ranks;
  Work received = comm.recv_async(buffers.output, call.count, call.type, before, 0, options);
  if (works == nullptr) {
    comm.send(buffers.input, call.count, call.type, after, 0, options);
    return received.wait();
  }
  works->push_back(std::move(received));
  works->push_back(comm.send_async(buffers.input, call.count, call.type, after, 0, options));
}

/// Runs an all_gather in rounds, each of which doubles the blocks that a rank has.
void exchange_over_hypercube(Communicator& comm, const Call& call, const Buffers& buffers,
                             const CallOptions& options) {
  const int rank = comm.rank();
  const std::size_t block_bytes = call.count * size_of(call.type);
  const auto block = [&](int of) {
    return buffers.output + static_cast<std::size_t>(of) * block_bytes;
  };
  if (buffers.input != block(rank) && block_bytes > 0)
    std::memcpy(block(rank), buffers.input, block_bytes);
  for (int mask = 1; mask < comm.size(); mask *= 2) {
    const int mine = rank & ~(mask - 1), peer = rank ^ mask;
    const std::size_t count = call.count * static_cast<std::size_t>(mask);
    Work received = comm.recv_async(block(mine ^ mask), count, call.type, peer, 0, options);
    comm.send(block(mine), count, call.type, peer, 0, options);
    received.wait();
  }
}

}  // namespace

// Calls a function of `comm` by its name, or its asynchronous form if there are `works`.
#define TUTTI_CALL(name, ...)                         \
  (works == nullptr ? comm.name(__VA_ARGS__, options) \
                    : works->push_back(comm.name##_async(__VA_ARGS__, options)))

void run(Communicator& comm, const Call& call, const Buffers& buffers, const CallOptions& options,
         std::vector<Work>* works) {
  const auto& [what, type, op, root, count, input_count, output_count, to, from] = call;
  const auto& [input, output] = buffers;
  switch (what) {
    case Operation::all_reduce: return TUTTI_CALL(all_reduce, input, output, count, type, op);
    case Operation::reduce: return TUTTI_CALL(reduce, input, output, count, type, op, root);
    case Operation::broadcast:
      copy_at_root(comm, call, buffers);
      return TUTTI_CALL(broadcast, output, count, type, root);
    case Operation::all_gather: return TUTTI_CALL(all_gather, input, output, count, type);
    case Operation::reduce_scatter:
      return TUTTI_CALL(reduce_scatter, input, output, count, type, op);
    case Operation::gather: return TUTTI_CALL(gather, input, output, count, type, root);
    case Operation::scatter: return TUTTI_CALL(scatter, input, output, count, type, root);
    case Operation::alltoall: return TUTTI_CALL(all_to_all, input, output, count, type);
    case Operation::alltoallv:
      return TUTTI_CALL(all_to_allv, input, to, {}, output, from, {}, type);
    case Operation::sendrecv: return send_and_receive(comm, call, buffers, options, works);
    case Operation::hypercube: return exchange_over_hypercube(comm, call, buffers, options);
  }
  assert(false);
}

#undef TUTTI_CALL

double algorithm_gb_s(const Call& call, double time_us, int ranks) {
  assert(ranks >= 1);
  const auto count_bytes = static_cast<double>(call.count * size_of(call.type));
  double bytes = count_bytes;
  if (call.what == Operation::alltoallv)
    bytes = static_cast<double>(call.bytes());
  else if (call.what == Operation::hypercube)
    bytes = count_bytes * (ranks - 1);
  else if (splits(call.what))  // a rank's own block counts in the size
    bytes = count_bytes * ranks;
  return time_us > 0 ? bytes / time_us / 1e3 : 0;
}

double bus_factor(Operation what, int ranks) {
  assert(ranks >= 1);
  const double others = static_cast<double>(ranks - 1) / ranks;
  if (what == Operation::all_reduce) return 2 * others;
  if (what == Operation::hypercube) return 1;
  return splits(what) || what == Operation::alltoallv ? others : 1;
}

}  // namespace tutti::perf
