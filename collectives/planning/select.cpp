#include "collectives/planning/select.h"

#include <algorithm>
#include <cassert>
#include <limits>
#include <map>

#include <fmt/format.h>

#include <tutti/error.hpp>

#include "collectives/algorithms/algorithms.h"

namespace tutti {
namespace {

[[noreturn]] void refuse(std::string_view name, const std::string& why) {
  std::string known;
  for (const Algorithm& algorithm : algorithms())
    known += fmt::format("{}{}", known.empty() ? "" : ", ", algorithm.name);
  throw Error(ErrorKind::usage,
              fmt::format("algorithm '{}' {}; known are auto, {}", name, why, known));
}

constexpr int kAnyRanks = std::numeric_limits<int>::max();
constexpr std::size_t kAnyBytes = std::numeric_limits<std::size_t>::max();

/// The first row that fits is used. The rows were measured over shared memory on two cores of
/// Cascade Lake and of Sapphire Rapids, with 2 to 128 ranks, and between two machines in a box with
/// 4 to 20 (docs/algorithms.md, docs/performance.md).
struct Row {
  Collective what;
  int most_ranks;
  std::size_t most_bytes;  ///< See SelectRequest::bytes.
  std::string_view algorithm;
  Spread least_spread = Spread::one_machine;
};
constexpr Row kTable[] = {
    {Collective::all_reduce, 2, 96u << 10, "one_shot", Spread::machines},
    {Collective::all_reduce, kAnyRanks, 16u << 10, "recursive_doubling", Spread::machines},
    {Collective::all_reduce, kAnyRanks, kAnyBytes, "hierarchical", Spread::even_machines},
    {Collective::all_reduce, 2, 32u << 10, "one_shot"},
    {Collective::all_reduce, 2, kAnyBytes, "ring"},
    {Collective::all_reduce, kAnyRanks, 16u << 10, "recursive_doubling"},
    {Collective::all_reduce, kAnyRanks, 128u << 10, "knomial_tree"},
    {Collective::all_reduce, 8, kAnyBytes, "all_pairs"},
    {Collective::all_reduce, kAnyRanks, kAnyBytes, "ring"},
    // For calls that need all summands in one step, if no row above fits.
    {Collective::all_reduce, kAnyRanks, 16u << 10, "one_shot"},
    {Collective::all_reduce, kAnyRanks, kAnyBytes, "all_pairs"},
    {Collective::broadcast, kAnyRanks, kAnyBytes, "hierarchical", Spread::even_machines},
    {Collective::broadcast, 2, kAnyBytes, "one_shot"},
    {Collective::broadcast, 4, 32u << 10, "one_shot"},
    {Collective::broadcast, 4, kAnyBytes, "double_binary_tree"},
    {Collective::broadcast, kAnyRanks, 1u << 20, "binomial_tree"},
    {Collective::broadcast, kAnyRanks, kAnyBytes, "double_binary_tree"},
    {Collective::reduce, kAnyRanks, kAnyBytes, "hierarchical", Spread::even_machines},
    {Collective::reduce, 4, 16u << 10, "one_shot"},
    {Collective::reduce, kAnyRanks, kAnyBytes, "binomial_tree"},
    {Collective::reduce, kAnyRanks, 16u << 10, "one_shot"},  // as all_reduce
    {Collective::reduce, kAnyRanks, kAnyBytes, "all_pairs"},
    {Collective::all_gather, kAnyRanks, 8u << 10, "recursive_doubling"},
    {Collective::all_gather, kAnyRanks, kAnyBytes, "hierarchical", Spread::even_machines},
    {Collective::all_gather, 8, kAnyBytes, "all_pairs"},
    {Collective::all_gather, kAnyRanks, kAnyBytes, "ring"},
    {Collective::reduce_scatter, kAnyRanks, 8u << 10, "recursive_doubling"},
    {Collective::reduce_scatter, kAnyRanks, kAnyBytes, "hierarchical", Spread::even_machines},
    {Collective::reduce_scatter, 8, kAnyBytes, "all_pairs"},
    {Collective::reduce_scatter, kAnyRanks, kAnyBytes, "ring"},
    {Collective::reduce_scatter, kAnyRanks, kAnyBytes, "all_pairs"},  // as all_reduce
    {Collective::barrier, 16, kAnyBytes, "recursive_doubling"},
    {Collective::barrier, kAnyRanks, kAnyBytes, "hierarchical", Spread::even_machines},
    {Collective::barrier, kAnyRanks, kAnyBytes, "recursive_doubling"},
    {Collective::gather, 32, kAnyBytes, "one_shot"},
    {Collective::gather, kAnyRanks, 1u << 10, "knomial_tree"},
    {Collective::gather, kAnyRanks, kAnyBytes, "one_shot"},
    {Collective::scatter, 32, kAnyBytes, "one_shot"},
    {Collective::scatter, kAnyRanks, 1u << 10, "knomial_tree"},
    {Collective::scatter, kAnyRanks, kAnyBytes, "one_shot"},
    {Collective::all_to_all, 32, kAnyBytes, "pairwise"},
    {Collective::all_to_all, kAnyRanks, 32, "pairwise"},  // they fit the cache line of their header
    {Collective::all_to_all, kAnyRanks, 128, "bruck"},
    {Collective::all_to_all, kAnyRanks, kAnyBytes, "pairwise"},
};

// Every collective has a row for calls of any size, so that choose() finds one.
static_assert([] {
  for (int what = 0; what < kCollectives; ++what)
    if (std::none_of(std::begin(kTable), std::end(kTable), [&](const Row& row) {
          return row.what == static_cast<Collective>(what) && row.most_ranks == kAnyRanks &&
                 row.most_bytes == kAnyBytes && row.least_spread == Spread::one_machine;
        }))
      return false;
  return true;
}());

bool serves(const Algorithm& algorithm, const SelectRequest& request) {
  return algorithm.knows(request.what, request.ranks) &&
         (algorithm.direct || !request.pair_lengths);
}

/// Does what why_unsuitable() does, for one algorithm. It plans only if that can matter: no step
/// moves more than a chunk of each rank, and rank 0 as root has the most operands in a step.
std::string why_unsuitable(const Algorithm& algorithm, const SelectRequest& request) {
  const std::size_t chunk = least_chunk_bytes(request.element_bytes);
  const bool all_fit =
      chunk <= 64 && request.max_message_bytes / chunk >= static_cast<std::size_t>(request.ranks);
  if (all_fit && !request.accumulates_f32 && !request.reproducible &&
      (!request.marked || request.ranks <= 64))
    return "";
  const Schedule plan = algorithm.plan({request.what, 0, request.ranks, 0, request.groups});
  ScheduleProperties properties = properties_of({&plan, 1});
  properties.rewrites_output = algorithm.rewrites_output && plan.layout == Layout::whole;
  if (request.ranks > 2) properties.reduces_at_once = algorithm.reduces_at_once;
  return why_unsuitable(properties, request);
}

}  // namespace

Spread spread_over(std::span<const int> machines) {
  std::map<int, std::size_t> ranks;  // the number of ranks on each machine
  for (const int machine : machines) ++ranks[machine];
  if (ranks.size() <= 1) return Spread::one_machine;
  const std::size_t each = ranks.begin()->second;
  const bool even = std::all_of(ranks.begin(), ranks.end(),
                                [&](const auto& machine) { return machine.second == each; });
  return even && each > 1 ? Spread::even_machines : Spread::machines;
}

std::string why_unsuitable(const ScheduleProperties& properties, const SelectRequest& request) {
  if (request.accumulates_f32 && properties.rewrites_output)
    return "keeps partial results in the output, where accumulate = f32 would round them";
  if (request.reproducible && !properties.reduces_at_once)
    return "adds up partial sums, where accumulate = reproducible needs all summands in one step";
  if (request.marked && properties.most_operands > kMaxMarkedOperands)
    return fmt::format(
        "has steps of {} operands; a premultiplied sum and accumulate = f32 need at most {}",
        properties.most_operands, kMaxMarkedOperands);
  const std::size_t room = request.max_message_bytes / least_chunk_bytes(request.element_bytes);
  if (static_cast<std::size_t>(properties.widest) > room)
    return fmt::format("moves {} chunks in one step; messages of {} bytes hold {} of this element",
                       properties.widest, request.max_message_bytes, room);
  return "";
}

bool can_serve(std::uint32_t index, const SelectRequest& request) {
  assert(index < algorithms().size());
  const Algorithm& algorithm = algorithms()[index];
  return serves(algorithm, request) && why_unsuitable(algorithm, request).empty();
}

std::uint32_t algorithm_index(std::string_view name) {
  const auto list = algorithms();
  const auto found =
      std::find_if(list.begin(), list.end(), [&](const Algorithm& a) { return a.name == name; });
  if (found == list.end()) refuse(name, "is unknown");
  return static_cast<std::uint32_t>(found - list.begin());
}

Choice choose(const SelectRequest& request, std::string_view forced, bool by_call) {
  assert(request.ranks >= 1);
  const std::size_t message = request.max_message_bytes;
  if (!forced.empty() && forced != "auto") {
    const std::uint32_t index = algorithm_index(forced);
    if (serves(algorithms()[index], request)) {
      const std::string why = why_unsuitable(algorithms()[index], request);
      if (!why.empty())
        throw Error(ErrorKind::usage, fmt::format("{}: algorithm '{}' {}; leave the choice to auto",
                                                  to_string(request.what), forced, why));
      return {index, message};
    }
    if (by_call)
      throw Error(ErrorKind::usage,
                  fmt::format("{}: algorithm '{}' has no such form for {} ranks{}; leave it out",
                              to_string(request.what), forced, request.ranks,
                              request.pair_lengths ? " and blocks of different lengths" : ""));
  }
  // A reproducible sum takes as long to add up as a plain sum of four times as many bytes.
  const std::size_t bytes = request.pair_lengths   ? kAnyBytes
                            : request.reproducible ? 4 * request.bytes
                                                   : request.bytes;
  for (const Row& row : kTable) {
    if (row.what != request.what || request.ranks > row.most_ranks ||
        request.spread < row.least_spread || bytes > row.most_bytes)
      continue;
    const std::uint32_t index = algorithm_index(row.algorithm);
    if (why_unsuitable(algorithms()[index], request).empty()) return {index, message};
  }
  throw Error(ErrorKind::internal, fmt::format("no algorithm for {} of {} ranks",
                                               to_string(request.what), request.ranks));
}

}  // namespace tutti
