#include "ranks.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <map>
#include <stdexcept>
#include <thread>
#include <tuple>

#include "../compute/reference.h"
#include "../transport/stream_transport.h"
#include "collectives/algorithms/algorithms.h"
#include "collectives/schedule/semantics.h"
#include "program_bytes.h"
#include "runtime/engine/variable_blocks.h"
#include "transport/local/local.h"
#include "transport/registry.h"

namespace tutti::test {
namespace {

constexpr std::size_t kGuardBytes = 64;
constexpr std::byte kGuard{0xa5};

// Calls `f` with a null pointer to the type's C++ counterpart.
template <typename F>
auto with_type(DataType type, F&& f) {
  switch (type) {
    case DataType::int8: return f(static_cast<std::int8_t*>(nullptr));
    case DataType::uint8: return f(static_cast<std::uint8_t*>(nullptr));
    case DataType::int16: return f(static_cast<std::int16_t*>(nullptr));
    case DataType::uint16: return f(static_cast<std::uint16_t*>(nullptr));
    case DataType::int32: return f(static_cast<std::int32_t*>(nullptr));
    case DataType::uint32: return f(static_cast<std::uint32_t*>(nullptr));
    case DataType::int64: return f(static_cast<std::int64_t*>(nullptr));
    case DataType::uint64: return f(static_cast<std::uint64_t*>(nullptr));
    case DataType::f16: return f(static_cast<float16*>(nullptr));
    case DataType::bf16: return f(static_cast<bfloat16*>(nullptr));
    case DataType::f32: return f(static_cast<float*>(nullptr));
    case DataType::f64: return f(static_cast<double*>(nullptr));
    case DataType::f8e4m3: return f(static_cast<float8_e4m3*>(nullptr));
    case DataType::f8e5m2: return f(static_cast<float8_e5m2*>(nullptr));
    case DataType::complex64: return f(static_cast<std::complex<float>*>(nullptr));
    case DataType::complex128: return f(static_cast<std::complex<double>*>(nullptr));
    case DataType::boolean: return f(static_cast<Truth*>(nullptr));
  }
  throw std::logic_error("no such type");
}

template <typename T>
struct Real {
  using type = T;
};
template <typename T>
struct Real<std::complex<T>> {
  using type = T;
};

template <typename T>
T from_int(int x) {
  if constexpr (reference::kIsNarrow<T>)
    return reference::nearest<T>(static_cast<float>(x));
  else if constexpr (std::is_same_v<T, Truth>)
    return {static_cast<std::uint8_t>(x != 0)};
  else
    return static_cast<T>(static_cast<typename Real<T>::type>(x));
}

// Element `index` of rank `rank`'s input: small enough that sums and products of 64 ranks are exact
// in bf16's 8 bits, and those of 8 ranks in 8-bit floats.
template <typename T>
T value(Op op, int rank, std::size_t index) {
  const auto mixed = mix(static_cast<std::uint64_t>(rank) << 32 | index);
  // A complex product's zeros would have signs by the order in which negative ones met.
  constexpr bool is_complex = !std::is_same_v<typename Real<T>::type, T>;
  if (op == Op::prod)
    return from_int<T>(mixed % 16 == 0 && !is_complex ? -1 : mixed % 16 == 1 && rank < 6 ? 2 : 1);
  if (reference::kIsNarrow<T> && sizeof(T) == 1)
    return from_int<T>(static_cast<int>(mixed % 3) - 1);
  return from_int<T>(static_cast<int>(mixed % 5) - 2);
}

template <typename T>
T premultiplier(int rank) {
  return from_int<T>(rank % 3 == 1 ? -1 : sizeof(T) > 1 && rank % 3 == 2 ? 3 : 1);
}

template <typename T>
T reduced(Op op, int ranks, std::size_t index) {
  using Work = reference::Work<T>;
  std::vector<Work> operands;
  for (int rank = 0; rank < ranks; ++rank) {
    operands.push_back(reference::to_work(value<T>(op, rank, index)));
    if (op == Op::premul_sum)
      operands.back() =
          reference::fold(Op::prod, operands.back(), reference::to_work(premultiplier<T>(rank)));
  }
  const auto divide_by = static_cast<std::uint32_t>(op == Op::avg ? ranks : 1);
  return reference::from_work<T>(reference::reduce<Work>(op, operands, divide_by));
}

// The position of a chunk in one of a rank's buffers, in elements.
struct Slot {
  int chunk;
  std::size_t offset;
  std::size_t length;
};

// Returns the chunks of a buffer in order; a whole vector is one chunk.
std::vector<Slot> slots(const Trial& trial, const collectives::RankCall& call, Place place) {
  using namespace collectives;
  if (trial.what == Collective::barrier) return {};
  const bool blocks = layout_of(trial.what) == Layout::blocks;
  const int chunks = blocks ? block_count(trial.what, call.ranks) : 1;
  std::vector<Slot> held;
  for (int chunk = 0; chunk < chunks; ++chunk) {
    if (!(place == Place::input ? input_exists(call, chunk) : output_exists(call, chunk))) continue;
    const std::size_t length =
        trial.lengths.empty() ? trial.count : trial.lengths[static_cast<std::size_t>(chunk)];
    const std::size_t offset =
        held.empty() ? 0 : held.back().offset + held.back().length + trial.gap;
    held.push_back({chunk, offset, length});
  }
  return held;
}

std::size_t extent(const std::vector<Slot>& held) {
  return held.empty() ? 0 : held.back().offset + held.back().length;
}

// The counts and displacements that a caller of the variable call would give.
struct Lists {
  Lists(const Trial& trial, const collectives::RankCall& call) {
    const auto add = [](const std::vector<Slot>& held, auto& counts, auto& displacements) {
      for (const Slot& slot : held) {
        counts.push_back(slot.length);
        displacements.push_back(slot.offset);
      }
    };
    add(slots(trial, call, Place::input), input_counts, input_displacements);
    add(slots(trial, call, Place::output), output_counts, output_displacements);
    blocks = {{input_counts, input_displacements},
              {output_counts, output_displacements},
              only_pairs_know(trial.what) ? trial.lengths[static_cast<std::size_t>(call.rank)] : 0};
  }
  Lists(const Lists&) = delete;
  Lists& operator=(const Lists&) = delete;

  std::vector<std::size_t> input_counts, input_displacements, output_counts, output_displacements;
  VariableBlocks blocks;
};

// Returns the number of an element among all elements that a call moves.
std::size_t number_of(const Slot& slot, std::size_t index) {
  return static_cast<std::size_t>(slot.chunk) * 100'000 + index;
}

// One rank's buffers, guarded, and what must be in them afterwards. In place, `output` is empty and
// `input` serves for both.
struct Buffers {
  std::vector<std::byte> input, output, scratch, expected_input, expected_output;
  std::size_t input_offset = 0;  // Where the call's buffers begin, in bytes.
  std::size_t output_offset = 0;
  bool in_place = false;
  alignas(16) std::array<std::byte, 16> premultiplier{};
  CallExtras extras;
  std::unique_ptr<Lists> lists;  // Null unless the call is a variable one.
  BlockTable table;
  std::optional<ZeroCopyBuffers> zero_copy;
};

// Returns where the smaller buffer begins in the larger one, in elements.
std::size_t own_offset(const std::vector<Slot>& larger, int rank) {
  for (const Slot& slot : larger)
    if (slot.chunk == rank) return slot.offset;
  return 0;
}

// Returns elements from number_of({chunk, ...}, 0) on, of rank `rank`'s input or, where `rank` is
// negative, of the reduction of -rank ranks' inputs. They are computed once for all ranks, trials
// and transports, which have most of them in common.
template <typename T>
std::span<const T> elements(Op op, int rank, const Slot& slot) {
  static std::map<std::tuple<Op, int, int>, std::vector<T>> computed;
  // Only products have inputs of their own.
  if (rank >= 0 && op != Op::prod) op = Op::sum;
  std::vector<T>& known = computed[{op, rank, slot.chunk}];
  for (std::size_t i = known.size(); i < slot.length; ++i)
    known.push_back(rank >= 0 ? value<T>(op, rank, number_of(slot, i))
                              : reduced<T>(op, -rank, number_of(slot, i)));
  return std::span(known).first(slot.length);
}

void write_slots(const Trial& trial, const collectives::RankCall& call,
                 const std::vector<Slot>& held, bool result, std::byte* buffer) {
  with_type(trial.type, [&]<typename T>(T*) {
    for (const Slot& slot : held) {
      const int whose = !result ? call.rank
                        : collectives::reduces(trial.what)
                            ? -call.ranks
                            : collectives::source_of(call, slot.chunk);
      const std::span<const T> wanted = elements<T>(trial.op, whose, slot);
      if (!wanted.empty())
        std::memcpy(buffer + slot.offset * sizeof(T), wanted.data(), wanted.size_bytes());
    }
  });
}

Buffers make_buffers(const Trial& trial, int rank, int ranks, std::size_t scratch_bytes) {
  const collectives::RankCall call{trial.what, rank, ranks, trial.root};
  const auto given = slots(trial, call, Place::input);
  const auto wanted = slots(trial, call, Place::output);
  const std::size_t width = size_of(trial.type);
  Buffers b;
  b.in_place =
      trial.what == Collective::broadcast || (trial.in_place && !given.empty() && !wanted.empty());
  b.input_offset = b.output_offset = kGuardBytes;
  if (b.in_place && given.size() < wanted.size())
    b.input_offset += own_offset(wanted, rank) * width;
  if (b.in_place && given.size() > wanted.size())
    b.output_offset += own_offset(given, rank) * width;
  const std::size_t input_bytes = extent(given) * width + 2 * kGuardBytes;
  const std::size_t output_bytes = extent(wanted) * width + 2 * kGuardBytes;
  if (!trial.lengths.empty()) b.lists = std::make_unique<Lists>(trial, call);
  b.input.assign(b.in_place ? std::max(input_bytes, output_bytes) : input_bytes, kGuard);
  b.output.assign(b.in_place ? 0 : output_bytes, kGuard);
  b.scratch.assign(scratch_bytes + kGuardBytes, std::byte{0xee});
  with_type(trial.type, [&]<typename T>(T*) {
    const T scalar = premultiplier<T>(rank);
    std::memcpy(b.premultiplier.data(), &scalar, sizeof(T));
  });
  write_slots(trial, call, given, false, b.input.data() + b.input_offset);
  b.expected_input = b.input;
  b.expected_output = b.output;
  auto& expected = b.in_place ? b.expected_input : b.expected_output;
  write_slots(trial, call, wanted, true, expected.data() + b.output_offset);
  return b;
}

CallBuffers addresses(Buffers& b) {
  CallBuffers call{b.input.data() + b.input_offset,
                   (b.in_place ? b.input : b.output).data() + b.output_offset, b.scratch.data()};
  if (b.lists != nullptr) call.blocks = &b.table;
  b.extras.premultiplier = b.premultiplier.data();
  call.extras = &b.extras;
  call.zero_copy = b.zero_copy;
  return call;
}

CallSignature signature_of(const Trial& trial) {
  const bool variable = !trial.lengths.empty();
  return {trial.what,
          trial.type,
          trial.op,
          trial.root,
          variable ? 0 : trial.count,
          trial.algorithm,
          variable ? kPairLengths : 0,
          0,
          trial.accumulates_f32};
}

// Writes a variable call's table, as the communicator does.
void write_table(const Trial& trial, int rank, int ranks, Buffers& b) {
  if (b.lists == nullptr) return;
  const CallBuffers buffers = addresses(b);
  const Call call{{trial.what, trial.type, trial.op, trial.root,
                   longest_known(trial.what, b.lists->blocks), true},
                  buffers.input,
                  buffers.output,
                  {},
                  {},
                  &b.lists->blocks};
  lay_out(call, rank, ranks, signature_of(trial), b.table);
}

std::string difference(std::string_view name, const std::vector<std::byte>& found,
                       const std::vector<std::byte>& expected) {
  const auto [at, wanted] = std::mismatch(found.begin(), found.end(), expected.begin());
  if (at == found.end()) return "";
  return fmt::format("{} byte {} is {:#x}, not {:#x}", name,
                     at - found.begin() - static_cast<long>(kGuardBytes), static_cast<int>(*at),
                     static_cast<int>(*wanted));
}

std::string difference(const Buffers& b) {
  const std::string in = difference(b.in_place ? "buffer" : "input", b.input, b.expected_input);
  return in.empty() ? difference("output", b.output, b.expected_output) : in;
}

// Offers buffers for zero-copy as a communicator does, but for short messages, too.
void maybe_register(Ranks& ranks, int rank, Buffers& b) {
  ZeroCopyBuffers zero_copy;
  zero_copy.least_bytes = kInlineBytes + 1;
  zero_copy.in_place = b.in_place;
  zero_copy.ordinary = true;
  const auto from = [](const Memory& whole, std::size_t offset) {
    return whole ? whole.part(offset, whole.bytes - offset) : whole;
  };
  const Memory input = ranks.maybe_register(rank, b.input);
  zero_copy.input = from(input, b.input_offset);
  zero_copy.output =
      from(b.in_place ? input : ranks.maybe_register(rank, b.output), b.output_offset);
  const bool any = zero_copy.input || zero_copy.output;
  if (any && b.lists == nullptr) b.zero_copy = zero_copy;
}

}  // namespace

std::string_view to_string(TransportKind kind) {
  switch (kind) {
    case TransportKind::local: return "local";
    case TransportKind::zero_copy: return "zero_copy";
    case TransportKind::kernel: return "kernel";
    case TransportKind::shm: return "shm";
    case TransportKind::tcp: return "tcp";
    case TransportKind::tls: return "tls";
    case TransportKind::ucx: return "ucx";
    case TransportKind::stream: return "stream";
  }
  return "unknown";
}

// Ranks end at the same time, since some wait for each other.
Ranks::~Ranks() {
  std::vector<std::jthread> threads;
  for (auto& transport : transports_) threads.emplace_back([&] { transport.reset(); });
}

Ranks::Ranks(TransportKind kind, int size, std::uint64_t seed, std::size_t message_bytes)
    : random_(seed), over_network_(kind == TransportKind::tcp || kind == TransportKind::ucx) {
  auto wires =
      kind == TransportKind::stream ? stream::make_mesh(size) : std::vector<std::vector<Fd>>{};
  const auto hub = std::make_shared<local::Hub>(size);
  if (kind == TransportKind::zero_copy) hub_ = hub;
  config_.tls = kind == TransportKind::tls;
  zero_copy_ = kind == TransportKind::zero_copy || kind == TransportKind::kernel ||
               kind == TransportKind::stream;
  std::vector<std::string> addresses;
  for (int rank = 0; rank < size; ++rank) {
    TransportContext context;
    context.rank = rank;
    context.size = size;
    context.clock = &clock_;
    context.random = &identities_;
    context.data_bytes = 3 * message_bytes;
    context.max_message_bytes = context.message_limit = message_bytes;
    const bool in_process = kind == TransportKind::local || kind == TransportKind::zero_copy ||
                            kind == TransportKind::kernel;
    if (in_process) context.hub = hub;
    context.config = &config_;
    if (kind == TransportKind::stream)
      transports_.push_back(stream::make(context, std::move(wires[static_cast<std::size_t>(rank)]),
                                         stream::Faults{random_.next()}));
    else
      transports_.push_back(parse_transports(in_process    ? "local"
                                             : config_.tls ? "tcp"
                                                           : to_string(kind))
                                .front()
                                .make(context));
    addresses.push_back(transports_.back()->address());
  }
  std::vector<std::jthread> threads;  // connect() waits for the others
  for (auto& transport : transports_)
    threads.emplace_back(
        [&] { transport->connect(addresses, clock_.now() + std::chrono::seconds(30)); });
}

Memory Ranks::maybe_register(int rank, std::vector<std::byte>& buffer) {
  if (!zero_copy() || random_.next() % 4 == 0) return {};
  if (hub_ == nullptr) return {buffer.data(), buffer.size()};
  const std::shared_ptr<std::byte> memory(buffer.data(), [](std::byte*) {});
  return {buffer.data(), buffer.size(), MemoryKind::shared,
          hub_->segments(rank).add({memory, buffer.size()})};
}

bool Ranks::drive(std::size_t operations,
                  const std::function<void(int, std::size_t, Execution&)>& start) {
  // A transport may need many turns until progress is visible, and a network much time.
  constexpr int kIdleTurnsPerRank = 20'000;
  constexpr std::chrono::seconds kIdleTime{20};
  TimePoint give_up = TimePoint::max();
  const auto size = transports_.size();
  std::vector<Execution> executions(size);
  std::vector<std::size_t> done(size, 0);
  for (std::size_t rank = 0; rank < size; ++rank)
    start(static_cast<int>(rank), 0, executions[rank]);
  std::size_t left = size * operations;
  for (std::size_t idle = 0; left > 0; ++idle) {
    if (idle == kIdleTurnsPerRank * size) {
      if (!over_network_ || clock_.now() >= give_up) return false;
      give_up = std::min(give_up, clock_.now() + kIdleTime);
      idle = 0;
    }
    const std::size_t rank = random_.next() % size;
    transports_[rank]->progress();
    if (done[rank] == operations || !executions[rank].advance()) continue;
    if (++done[rank] < operations) start(static_cast<int>(rank), done[rank], executions[rank]);
    --left;
    idle = 0;
    give_up = TimePoint::max();
  }
  return true;
}

std::string lengths_text(const Trial& trial) {
  std::string text;
  for (const std::size_t length : trial.lengths) text += fmt::format(" {}", length);
  return text.empty() ? text : fmt::format(", lengths{}, gap {}", text, trial.gap);
}

std::string describe(const Trial& trial, int ranks) {
  return fmt::format("{} by {}: {} ranks, {} x {}, {}, root {}, {}", tutti::to_string(trial.what),
                     algorithms()[trial.algorithm].name, ranks, trial.count,
                     tutti::to_string(trial.type), tutti::to_string(trial.op), trial.root,
                     trial.in_place ? "in place" : "out of place") +
         (trial.accumulates_f32 ? ", accumulate = f32" : "") + lengths_text(trial);
}

// Has the messages that are long enough written with streaming stores from now on.
void stream_messages(HostProgram& bound) {
  for (SendPort& port : bound.sends)
    if (SlotStores* const stores = port.stores())
      while (!stores->streams()) stores->record(1u << 30, 1);
}

std::string run(Ranks& ranks, std::span<const Trial> trials, std::uint32_t number) {
  struct Part {
    std::unique_ptr<HostProgram> bound;
    Buffers buffers;
  };
  std::vector<std::vector<Part>> parts(trials.size());
  for (std::size_t k = 0; k < trials.size(); ++k)
    for (int rank = 0; rank < ranks.size(); ++rank) {
      const Trial& trial = trials[k];
      const Schedule schedule =
          algorithms()[trial.algorithm].plan({trial.what, rank, ranks.size(), trial.root});
      const Program program =
          compile(schedule, signature_of(trial), Ranks::kMessageBytes, ranks.zero_copy());
      // The program is converted to bytes and back, which shows that it holds no pointer.
      auto bound =
          std::make_unique<HostProgram>(from_bytes(to_bytes(program)), ranks.transport(rank));
      if (trial.count % 2 != 0) stream_messages(*bound);
      const std::size_t scratch_bytes = bound->program.scratch_bytes;
      parts[k].push_back(
          {std::move(bound), make_buffers(trial, rank, ranks.size(), scratch_bytes)});
      write_table(trial, rank, ranks.size(), parts[k].back().buffers);
      maybe_register(ranks, rank, parts[k].back().buffers);
    }
  const bool ended = ranks.drive(trials.size(), [&](int rank, std::size_t k, Execution& execution) {
    Part& part = parts[k][static_cast<std::size_t>(rank)];
    execution.start(*part.bound, addresses(part.buffers), number + static_cast<std::uint32_t>(k),
                    static_cast<ResultStores>(trials[k].count % 3));
    for (SendPort& port : part.bound->sends) port.set_by_kernel(ranks.random().next() % 4 != 0);
  });
  if (!ended) return "nothing moves any more";
  for (std::size_t k = 0; k < trials.size(); ++k)
    for (int rank = 0; rank < ranks.size(); ++rank) {
      const std::string wrong = difference(parts[k][static_cast<std::size_t>(rank)].buffers);
      if (!wrong.empty())
        return fmt::format("{}: rank {}: {}", describe(trials[k], ranks.size()), rank, wrong);
    }
  return "";
}

}  // namespace tutti::test
