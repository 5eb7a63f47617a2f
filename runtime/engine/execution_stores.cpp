// The part of the engine that chooses how results and messages are written: through the caches, or
// past them.
#include <algorithm>
#include <cstdint>
#include <limits>

#include "runtime/engine/execution.h"
#include "topology/caches.h"

namespace tutti {
namespace {

/// Holds the least sizes of results that are written in each way.
struct ResultSizes {
  /// Such results are in no cache when they are written, so their cache lines are prefetched: 16
  /// MiB take 4.6 ms in place of 5.3 on two cores of Cascade Lake, and 1 MiB takes 100 us in place
  /// of 103 on Sapphire Rapids. Smaller results get slower (64 KiB take 9.8 us in place of 8.2).
  std::size_t fetched = 1u << 20;
  /// Such results are streamed past the caches, unless their lines have just been read: 64 MiB take
  /// 10.5 ms in place of 12.1; in place, they would take 10.7 ms, not 7.9.
  std::size_t streamed = 32u << 20;
};

// On AMD's processors, results that exceed a core's share of the third level take 0.35 to 0.8 of
// the time when they are streamed (docs/performance.md, "AMD's processors"), and prefetching them
// never pays.
ResultSizes result_sizes() {
  const std::size_t share = core_caches().victim_bytes;
  return share != 0 ? ResultSizes{std::numeric_limits<std::size_t>::max(), share} : ResultSizes();
}

}  // namespace

ResultStores stores_for(std::size_t result_bytes, const void* input, const void* output) {
  static const ResultSizes sizes = result_sizes();
  if (result_bytes < std::min(sizes.fetched, sizes.streamed)) return ResultStores::cached;
  const auto in = reinterpret_cast<std::uintptr_t>(input);
  const auto out = reinterpret_cast<std::uintptr_t>(output);
  const bool apart = in + result_bytes <= out || out + result_bytes <= in;
  if (apart && result_bytes >= sizes.streamed) return ResultStores::streamed;
  return result_bytes >= sizes.fetched ? ResultStores::fetched : ResultStores::cached;
}

// Marks the messages of the step that are written with streaming stores. Returns the ring for which
// the step's time is to be recorded, if there is one.
SlotStores* Execution::choose_stores(const LaneState& lane, const Load& load, CombineArgs& args) {
  const BoundStep& step = *lane.step;
  const Program::Operand* const outputs =
      bound_->program.operands.data() + step.first_operand + step.inputs;
  SlotStores* timed = nullptr;
  for (std::size_t k = 0; k < std::min<std::size_t>(step.outputs, 64); ++k) {
    if (outputs[k].place != Place::peer) continue;
    SlotStores* const stores = bound_->sends[outputs[k].port].stores();
    if (stores == nullptr) continue;
    if (stores->is_timed(load.bytes))
      timed = stores;
    else if (stores->streams())
      args.stream_outputs |= std::uint64_t{1} << k;
  }
  args.fetch_outputs &= ~args.stream_outputs;
  return timed;
}

}  // namespace tutti
