#include "ranks.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <thread>

#include "../transport/stream_transport.h"
#include "collectives/algorithms.h"
#include "collectives/semantics.h"
#include "transport/local/local.h"
#include "transport/registry.h"

namespace tutti::test {
namespace {

constexpr std::size_t kGuardBytes = 64;
constexpr std::byte kGuard{0xa5};

// Element `index` of rank `rank`'s input: small enough that sums and products of 64 ranks are exact
// in bf16's 8 bits.
int value(Op op, int rank, std::size_t index) {
  const auto mixed = mix(static_cast<std::uint64_t>(rank) << 32 | index);
  if (op == Op::prod) return mixed % 16 == 0 ? -1 : mixed % 16 == 1 && rank < 6 ? 2 : 1;
  return static_cast<int>(mixed % 5) - 2;
}

std::uint16_t to_bf16(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  return static_cast<std::uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

void store(DataType type, std::byte* at, std::size_t index, double x) {
  const auto put = [&](auto element) {
    std::memcpy(at + index * sizeof element, &element, sizeof element);
  };
  switch (type) {
    case DataType::f32: put(static_cast<float>(x)); break;
    case DataType::f64: put(x); break;
    case DataType::bf16: put(to_bf16(static_cast<float>(x))); break;
    case DataType::int32: put(static_cast<std::int32_t>(x)); break;
    case DataType::int64: put(static_cast<std::int64_t>(x)); break;
    default: put(static_cast<std::uint8_t>(static_cast<int>(x))); break;
  }
}

double reduced(const Trial& trial, int ranks, std::size_t index) {
  double result = value(trial.op, 0, index);
  for (int rank = 1; rank < ranks; ++rank) {
    const double x = value(trial.op, rank, index);
    switch (trial.op) {
      case Op::sum:
      case Op::avg: result += x; break;
      case Op::prod: result *= x; break;
      case Op::min: result = std::min(result, x); break;
      case Op::max: result = std::max(result, x); break;
    }
  }
  if (trial.op != Op::avg) return result;
  const bool narrow = trial.type == DataType::f32 || trial.type == DataType::bf16;
  return narrow ? static_cast<double>(static_cast<float>(result) / static_cast<float>(ranks))
                : result / ranks;
}

// One rank's buffers, guarded, and what must be in them afterwards.
struct Buffers {
  std::vector<std::byte> input, output, scratch, expected_input, expected_output;
  bool in_place = false;
  std::size_t in_place_offset = 0;  // of the smaller buffer in the larger

  std::byte* body(std::vector<std::byte>& buffer) { return buffer.data() + kGuardBytes; }
};

std::size_t blocks_in(const Trial& trial, int rank, int ranks, bool input) {
  using namespace collectives;
  if (trial.what == Collective::barrier) return 0;
  const int chunks = layout_of(trial.what) == Layout::blocks ? ranks : 1;
  std::size_t blocks = 0;
  for (int chunk = 0; chunk < chunks; ++chunk)
    blocks += input ? input_exists(trial.what, rank, trial.root, chunk)
                    : output_exists(trial.what, rank, trial.root, chunk);
  return blocks;
}

void fill(const Trial& trial, int rank, int ranks, std::byte* input) {
  if (trial.what == Collective::broadcast && rank != trial.root) return;
  const std::size_t blocks = blocks_in(trial, rank, ranks, true);
  for (std::size_t i = 0; i < blocks * trial.count; ++i)
    store(trial.type, input, i, value(trial.op, rank, i));
}

void expect(const Trial& trial, int rank, int ranks, std::byte* output) {
  const std::size_t elements = blocks_in(trial, rank, ranks, false) * trial.count;
  const auto first =
      trial.what == Collective::reduce_scatter ? static_cast<std::size_t>(rank) * trial.count : 0;
  for (std::size_t i = 0; i < elements; ++i) {
    double x = 0;
    if (trial.what == Collective::broadcast)
      x = value(trial.op, trial.root, i);
    else if (trial.what == Collective::all_gather)
      x = value(trial.op, static_cast<int>(i / trial.count), i % trial.count);
    else
      x = reduced(trial, ranks, first + i);
    store(trial.type, output, i, x);
  }
}

Buffers make_buffers(const Trial& trial, int rank, int ranks, std::size_t scratch_bytes) {
  Buffers b;
  b.in_place = trial.in_place || trial.what == Collective::broadcast;
  const std::size_t block = trial.count * size_of(trial.type);
  b.input.assign(blocks_in(trial, rank, ranks, true) * block + 2 * kGuardBytes, kGuard);
  b.output.assign(blocks_in(trial, rank, ranks, false) * block + 2 * kGuardBytes, kGuard);
  b.scratch.assign(scratch_bytes + kGuardBytes, std::byte{0xee});
  fill(trial, rank, ranks, b.body(b.input));
  b.expected_input = b.input;
  b.expected_output = b.output;
  expect(trial, rank, ranks, b.body(b.expected_output));
  const bool one_block =
      trial.what == Collective::all_gather || trial.what == Collective::reduce_scatter;
  if (one_block) b.in_place_offset = static_cast<std::size_t>(rank) * block;
  if (b.in_place && trial.what == Collective::all_gather)
    std::copy(b.input.begin() + kGuardBytes, b.input.end() - kGuardBytes,
              b.body(b.output) + b.in_place_offset);
  else if (b.in_place && trial.what != Collective::reduce_scatter &&
           b.output.size() == b.input.size())
    b.output = b.input;
  return b;
}

CallBuffers addresses(const Trial& trial, Buffers& b) {
  CallBuffers call{b.body(b.input), b.body(b.output), b.scratch.data()};
  if (!b.in_place) return call;
  if (trial.what == Collective::reduce_scatter)
    call.output = b.body(b.input) + b.in_place_offset;
  else if (trial.what == Collective::all_gather)
    call.input = b.body(b.output) + b.in_place_offset;
  else if (b.output.size() == b.input.size() || trial.what == Collective::broadcast)
    call.input = call.output;
  return call;
}

std::string difference(const Trial& trial, int rank, Buffers& b) {
  if (b.in_place &&
      trial.what == Collective::reduce_scatter) {  // the rest of the input may be used up
    const std::size_t bytes = trial.count * size_of(trial.type);
    return std::memcmp(b.body(b.input) + b.in_place_offset, b.body(b.expected_output), bytes) == 0
               ? ""
               : fmt::format("rank {}: wrong result in place", rank);
  }
  const auto [found, wanted] =
      std::mismatch(b.output.begin(), b.output.end(), b.expected_output.begin());
  if (found != b.output.end())
    return fmt::format("rank {}: output byte {} is {:#x}, not {:#x}", rank,
                       found - b.output.begin() - static_cast<long>(kGuardBytes),
                       static_cast<int>(*found), static_cast<int>(*wanted));
  if (b.input != b.expected_input) return fmt::format("rank {}: the input was written", rank);
  return "";
}

}  // namespace

std::string_view to_string(TransportKind kind) {
  switch (kind) {
    case TransportKind::local: return "local";
    case TransportKind::shm: return "shm";
    case TransportKind::stream: return "stream";
  }
  return "unknown";
}

Ranks::Ranks(TransportKind kind, int size, std::uint64_t seed) : random_(seed) {
  auto wires =
      kind == TransportKind::stream ? stream::make_mesh(size) : std::vector<std::vector<Fd>>{};
  const auto hub = std::make_shared<local::Hub>(size);
  std::vector<std::string> addresses;
  for (int rank = 0; rank < size; ++rank) {
    TransportContext context;
    context.rank = rank;
    context.size = size;
    context.clock = &clock_;
    context.random = &random_;
    context.data_bytes = 3 * kMessageBytes;
    context.max_message_bytes = kMessageBytes;
    if (kind == TransportKind::local) context.hub = hub;
    if (kind == TransportKind::stream)
      transports_.push_back(stream::make(context, std::move(wires[static_cast<std::size_t>(rank)]),
                                         stream::Faults{random_.next()}));
    else
      transports_.push_back(make_transport(to_string(kind), context));
    addresses.push_back(transports_.back()->address());
  }
  std::vector<std::jthread> threads;  // connect() waits for the others
  for (auto& transport : transports_)
    threads.emplace_back(
        [&] { transport->connect(addresses, clock_.now() + std::chrono::seconds(30)); });
}

bool Ranks::drive(std::size_t operations,
                  const std::function<void(int, std::size_t, Execution&)>& start) {
  // A transport may need many turns before anything is seen to move.
  constexpr int kIdleTurnsPerRank = 20'000;
  const auto size = transports_.size();
  std::vector<Execution> executions(size);
  std::vector<std::size_t> done(size, 0);
  for (std::size_t rank = 0; rank < size; ++rank)
    start(static_cast<int>(rank), 0, executions[rank]);
  std::size_t left = size * operations;
  for (std::size_t idle = 0; left > 0; ++idle) {
    if (idle > kIdleTurnsPerRank * size) return false;
    const std::size_t rank = random_.next() % size;
    transports_[rank]->progress();
    if (done[rank] == operations || !executions[rank].advance()) continue;
    if (++done[rank] < operations) start(static_cast<int>(rank), done[rank], executions[rank]);
    --left;
    idle = 0;
  }
  return true;
}

std::string describe(const Trial& trial, int ranks) {
  return fmt::format("{} by {}: {} ranks, {} x {}, {}, root {}, {}", tutti::to_string(trial.what),
                     algorithms()[trial.algorithm].name, ranks, trial.count,
                     tutti::to_string(trial.type), tutti::to_string(trial.op), trial.root,
                     trial.in_place ? "in place" : "out of place");
}

std::string run(Ranks& ranks, std::span<const Trial> trials, std::uint32_t number) {
  struct Part {
    std::unique_ptr<BoundProgram> bound;
    Buffers buffers;
  };
  std::vector<std::vector<Part>> parts(trials.size());
  for (std::size_t k = 0; k < trials.size(); ++k)
    for (int rank = 0; rank < ranks.size(); ++rank) {
      const Trial& trial = trials[k];
      const CallSignature call{trial.what, trial.type,  trial.op,
                               trial.root, trial.count, trial.algorithm};
      const Schedule schedule =
          algorithms()[trial.algorithm].plan({trial.what, rank, ranks.size(), trial.root});
      auto bound = std::make_unique<BoundProgram>(compile(schedule, call, Ranks::kMessageBytes),
                                                  ranks.transport(rank));
      const std::size_t scratch_bytes = bound->program.scratch_bytes;
      parts[k].push_back(
          {std::move(bound), make_buffers(trial, rank, ranks.size(), scratch_bytes)});
    }
  const bool ended = ranks.drive(trials.size(), [&](int rank, std::size_t k, Execution& execution) {
    Part& part = parts[k][static_cast<std::size_t>(rank)];
    execution.start(*part.bound, addresses(trials[k], part.buffers),
                    number + static_cast<std::uint32_t>(k),
                    static_cast<ResultStores>(trials[k].count % 3));
  });
  if (!ended) return "nothing moves any more";
  for (std::size_t k = 0; k < trials.size(); ++k)
    for (int rank = 0; rank < ranks.size(); ++rank) {
      const std::string wrong =
          difference(trials[k], rank, parts[k][static_cast<std::size_t>(rank)].buffers);
      if (!wrong.empty()) return describe(trials[k], ranks.size()) + ": " + wrong;
    }
  return "";
}

}  // namespace tutti::test
