#include "perf/measured_rank.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <numeric>

#include "perf/on_stream.h"
#include "perf/pages.h"

namespace tutti::perf {

MeasuredRank::MeasuredRank(TeamRank& rank, const Options& options)
    : rank_(rank),
      options_(options),
      numbers_{rank.group().size(), rank.group().rank(), options.alltoallv_spread},
      buffer_bytes_(options.max_bytes +
                    static_cast<std::size_t>(options.unalign) * size_of(DataType::complex128)),
      input_(allocate()),
      output_(allocate()) {}

MeasuredRank::Memory MeasuredRank::allocate() const {
  if (rank_.gpu) {
    Memory memory = rank_.gpu->allocate(buffer_bytes_);
    rank_.gpu->fill(memory.get(), 0, buffer_bytes_);
    return memory;
  }
  if (options_.shared_buffers > 0) {
    const auto buffer = std::make_shared<Buffer>(Buffer::allocate(rank_.group(), buffer_bytes_));
    return {buffer, buffer->data()};
  }
  try {
    return allocate_pages(buffer_bytes_);
  } catch (const std::bad_alloc&) {
    throw Error(ErrorKind::unavailable,
                fmt::format("rank {}: no memory for two buffers of {} bytes; choose a smaller -e",
                            rank_.all.rank(), buffer_bytes_));
  }
}

void MeasuredRank::choose_reduction(DataType type, Op op) {
  scalar_ = Pattern::scalar_element(type, numbers_.own);
  call_options_.premultiplier = op == Op::premul_sum ? scalar_.data() : nullptr;
}

Buffers MeasuredRank::buffers(const Call& call, bool in_place, std::int64_t number) const {
  std::size_t shift = static_cast<std::size_t>(options_.unalign) * size_of(call.type);
  if (options_.rotate && call.bytes() > 0)
    shift +=
        call.bytes() * (static_cast<std::size_t>(number) % (options_.max_bytes / call.bytes()));
  if (in_place && has_in_place(call.what))
    return perf::in_place(call, output_.get() + shift, numbers_.own);
  return {input_.get() + shift, output_.get() + shift};
}

void MeasuredRank::run(const Call& call, const Buffers& buffers) {
  perf::run(rank_.group(), call, buffers, call_options_);
}

void MeasuredRank::start(const Call& call, const Buffers& buffers, std::vector<Work>& works) {
  if (rank_.gpu)
    start_on_stream(rank_.group(), call, buffers, call_options_, *rank_.gpu, works);
  else
    perf::run(rank_.group(), call, buffers, call_options_, &works);
}

Pattern MeasuredRank::pattern(const Call& call, std::uint64_t seed) const {
  return {call.type, reduces(call.what) ? call.op : Op::max, numbers_.count, seed,
          std::max(call.input_count, call.output_count)};
}

void MeasuredRank::write_input(const Call& call, bool in_place, std::uint64_t seed) {
  const Buffers to = buffers(call, in_place, 0);
  const Pattern inputs = pattern(call, seed);
  const std::size_t moved_by = static_cast<std::size_t>(options_.unalign) * size_of(call.type);
  if (!rank_.gpu) {
    std::memset(output_.get(), 0xff, call.bytes() + moved_by);
    inputs.write(to.input, 0, call.input_count, numbers_.own);
    return;
  }
  rank_.gpu->fill(output_.get(), 0xff, call.bytes() + moved_by);
  std::vector<std::byte> written(call.input_count * size_of(call.type));
  inputs.write(written.data(), 0, call.input_count, numbers_.own);
  rank_.gpu->upload(to.input, written.data(), written.size());
}

std::size_t MeasuredRank::count_wrong(const Call& call, bool in_place, std::uint64_t seed) const {
  const int rank = numbers_.own, ranks = numbers_.count;
  const auto own_block = static_cast<std::size_t>(rank);
  const std::byte* output = buffers(call, in_place, 0).output;
  std::vector<std::byte> copied;
  if (rank_.gpu) {
    copied.resize(call.output_count * size_of(call.type));
    rank_.gpu->download(copied.data(), output, copied.size());
    output = copied.data();
  }
  const Pattern expected = pattern(call, seed);
  switch (call.what) {
    case Operation::all_reduce: return expected.wrong_reduced(output, 0, call.count);
    case Operation::reduce:
      return rank == call.root ? expected.wrong_reduced(output, 0, call.count) : 0;
    case Operation::reduce_scatter:
      return expected.wrong_reduced(output, own_block * call.count, call.count);
    case Operation::broadcast: return expected.wrong_copied(output, 0, call.count, call.root);
    case Operation::scatter:
      return expected.wrong_copied(output, own_block * call.count, call.count, call.root);
    case Operation::sendrecv:
      return expected.wrong_copied(output, 0, call.count, (rank + ranks - 1) % ranks);
    case Operation::gather:
    case Operation::all_gather:
    case Operation::alltoallv:
    case Operation::hypercube:
    case Operation::alltoall: break;
  }
  return wrong_blocks(expected, call, output);
}

/// Returns the number of wrong elements in the blocks that come from each rank.
std::size_t MeasuredRank::wrong_blocks(const Pattern& pattern, const Call& call,
                                       const std::byte* output) const {
  if (call.what == Operation::gather && numbers_.own != call.root) return 0;
  const auto own = static_cast<std::size_t>(numbers_.own);
  std::size_t wrong = 0;
  for (int peer = 0; peer < numbers_.count; ++peer) {
    std::size_t first = 0, count = call.count;  // elements of the peer's input
    if (call.what == Operation::alltoall) first = own * call.count;
    if (call.what == Operation::alltoallv) {
      const Call theirs =
          call_of(call.what, call.type, call.op, call.root,
                  call.count * static_cast<std::size_t>(numbers_.count) * size_of(call.type),
                  {numbers_.count, peer, numbers_.spread});
      first = std::accumulate(theirs.to.begin(), theirs.to.begin() + numbers_.own, std::size_t{0});
      count = call.from[static_cast<std::size_t>(peer)];
    }
    wrong += pattern.wrong_copied(output, first, count, peer);
    output += count * size_of(call.type);
  }
  return wrong;
}

}  // namespace tutti::perf
