// The choice of the algorithm that serves a call (docs/selection.md says in which order it is
// looked for), of its stripes, and of the type of its partial sums.
#include <algorithm>
#include <cassert>
#include <exception>

#include <fmt/format.h>

#include "collectives/algorithms/algorithms.h"
#include "collectives/schedule/semantics.h"
#include "compute/fixed_point.h"
#include "runtime/engine/variable_blocks.h"
#include "runtime/planner.h"

namespace tutti {

Choice CallPlanner::choose_algorithm(const CallKind& kind, std::string_view algorithm) {
  const SelectRequest request = request_of(kind);
  if (!algorithm.empty()) return choose_named(kind, request, algorithm);
  const std::string selected = this->selected(kind);
  if (!selected.empty()) try {
      return choose_named(kind, request, selected);
    } catch (const Error& error) {
      throw Error(error.kind(), fmt::format("{} (Config::select named it)", error.what()));
    }
  const std::optional<Choice> meant = of_files(kind, request);
  return meant ? *meant : parts_.prices->choose(request, parts_.runtime->config().algorithm, false);
}

Choice CallPlanner::choose_named(const CallKind& kind, const SelectRequest& request,
                                 std::string_view algorithm) {
  const bool own = own_algorithms_.has(algorithm);
  if (own && request.pair_lengths)
    refuse(kind,
           fmt::format("algorithm '{}' is the program's own; lengths that only pairs of ranks "
                       "know need one of tutti's",
                       algorithm));
  if (!own) return parts_.prices->choose(request, algorithm, true);
  const std::size_t most = request.max_message_bytes;
  const std::uint32_t number = own_algorithms_.number(algorithm, kind.what, kind.root, most);
  const std::string why = why_unsuitable(own_algorithms_.properties(number), request);
  if (!why.empty()) refuse(kind, fmt::format("algorithm '{}' {}", algorithm, why));
  assert((number & kOwnAlgorithm) != 0 && most == parts_.message_bytes);
  return {number, most};
}

// Returns the choice of a file that is meant for calls of this size, unless a setting names an
// algorithm or the file's cannot serve the call.
std::optional<Choice> CallPlanner::of_files(const CallKind& kind, const SelectRequest& request) {
  if (kind.variable || parts_.runtime->config().algorithm != "auto") return std::nullopt;
  const std::size_t most = request.max_message_bytes;
  const std::string name = own_algorithms_.of_window(
      kind.what, kind.root, kind.count * element_bytes(kind) * blocks_moved(kind.what, parts_.size),
      most);
  if (name.empty()) return std::nullopt;
  const std::uint32_t number = own_algorithms_.number(name, kind.what, kind.root, most);
  if (!why_unsuitable(own_algorithms_.properties(number), request).empty()) return std::nullopt;
  return Choice{number, most};
}

// Returns the number of stripes: more than one only if all links have rings, and at most the
// configured number of threads, or by default the cores that each rank has. All ranks agree on it,
// since they agree on everything from which it is computed. A program's own algorithm that needs
// more channels than a stripe has gets one stripe.
int CallPlanner::stripes_of(const CallKind& kind, std::uint32_t algorithm) const {
  // Moving it takes far longer than waking a thread.
  constexpr std::size_t kLeastStripeBytes = 2u << 20;
  // A block of threads on a GPU moves a share of this size in the time of a few launches.
  constexpr std::size_t kLeastDeviceStripeBytes = 256u << 10;
  if (kind.variable || !parts_.rings) return 1;
  if ((algorithm & kOwnAlgorithm) != 0 &&
      own_algorithms_.properties(algorithm).channels > kStripeChannels)
    return 1;
  static_assert(kMostStripes >= 1 && kMostStripes <= 64);
  assert(parts_.machine_ranks >= 1 && parts_.machine_cores >= 1);
  if (parts_.gpu != nullptr)
    return static_cast<int>(std::clamp<std::size_t>(
        kind.count * element_bytes(kind) / kLeastDeviceStripeBytes, 1, kMostStripes));
  const int threads = parts_.runtime->config().threads;
  const int most = threads != 0 ? threads : parts_.machine_cores / parts_.machine_ranks;
  const std::size_t bytes = kind.count * element_bytes(kind);
  return static_cast<int>(std::clamp<std::size_t>(
      bytes / kLeastStripeBytes, 1, static_cast<std::size_t>(std::clamp(most, 1, kMostStripes))));
}

Accumulate CallPlanner::accumulation_of(const CallKind& kind) const {
  return kind.accumulate == Accumulate::as_configured ? parts_.runtime->config().accumulate
                                                      : kind.accumulate;
}

// Returns whether the call adds in fixed point. Only sums of floating-point numbers need it; all
// other results have the same bits in any case.
bool CallPlanner::sums_reproducibly(const CallKind& kind) const {
  if (accumulation_of(kind) != Accumulate::reproducible || !collectives::reduces(kind.what) ||
      kind.reduction != 0 || fixed_point_sum(kind.type) == nullptr)
    return false;
  if (kind.op == Op::prod)
    refuse(kind, fmt::format("a product of {} depends on the order of its factors; give it "
                             "accumulate = step in its options",
                             to_string(kind.type)));
  const bool sums = kind.op == Op::sum || kind.op == Op::avg || kind.op == Op::premul_sum;
  const int most = kind.premultiplied ? static_cast<int>(kMaxMarkedOperands) : kMostSummands;
  if (sums && parts_.size > most)
    throw Error(
        ErrorKind::unavailable,
        fmt::format("{}: accumulate = reproducible adds up the {}s of at most {} ranks, "
                    "not {}",
                    name_of(kind.what, kind.variable), to_string(kind.op), most, parts_.size));
  return sums;
}

bool CallPlanner::accumulates_in_f32(const CallKind& kind) const {
  if (accumulation_of(kind) != Accumulate::f32 || !collectives::reduces(kind.what) ||
      kind.reduction != 0)
    return false;
  const bool rounds =
      kind.op == Op::sum || kind.op == Op::prod || kind.op == Op::avg || kind.op == Op::premul_sum;
  return rounds && accumulation_type(kind.type) != kind.type;
}

SelectRequest CallPlanner::request_of(const CallKind& kind) const {
  const bool accumulates_f32 = accumulates_in_f32(kind);
  const std::size_t moved =
      accumulates_f32 ? size_of(accumulation_type(kind.type)) : element_bytes(kind);
  const bool priced = parts_.size <= kMostPricedRanks;
  return {.what = kind.what,
          .bytes = kind.count * moved,
          .ranks = parts_.size,
          .cores = parts_.cores,
          .max_message_bytes = parts_.message_bytes,
          .pair_lengths = kind.variable && only_pairs_know(kind.what),
          .element_bytes = moved,
          .accumulates_f32 = accumulates_f32,
          .reproducible = sums_reproducibly(kind),
          .marked = accumulates_f32 || kind.premultiplied,
          .spread = parts_.spread,
          .machines = priced ? parts_.machines : std::vector<int>(),
          .groups = priced ? parts_.groups : std::vector<int>()};
}

// Returns the algorithm that the program's own selection function names; empty if there is no such
// function, or if it leaves the choice to tutti.
std::string CallPlanner::selected(const CallKind& kind) const {
  const Select& select = parts_.runtime->config().select;
  if (!select || is_of_split(kind.what, kind.op)) return {};
  try {
    return select({kind.what, kind.type, kind.op, kind.root, kind.count,
                   kind.count * element_bytes(kind), parts_.size, accumulation_of(kind)});
  } catch (const std::exception& thrown) {
    refuse(kind, fmt::format("Config::select threw: {}", thrown.what()));
  } catch (...) {
    refuse(kind, "Config::select threw something that is no std::exception");
  }
}

std::vector<AlgorithmPrice> CallPlanner::prices(const CallKind& kind) {
  check_kind(kind, parts_.size);
  const SelectRequest request = request_of(kind);
  const Choice choice = choose_algorithm(kind, "");
  std::vector<Candidate> priced = parts_.prices->candidates(request);
  std::vector<AlgorithmPrice> list;
  for (const Candidate& candidate : priced)
    list.push_back({std::string(algorithms()[candidate.algorithm].name), candidate.message_bytes,
                    static_cast<double>(candidate.predicted) / 1e6,
                    candidate.algorithm == choice.algorithm});
  if (!priced.empty()) return list;
  for (std::uint32_t index = 0; index < algorithms().size(); ++index)
    if (can_serve(index, request))
      list.push_back({std::string(algorithms()[index].name), choice.message_bytes, std::nullopt,
                      index == choice.algorithm});
  return list;
}

std::string CallPlanner::explain(const CallKind& kind) {
  const Plan plan = plan_kind(kind, "");
  const CallSignature& call = plan.key.signature;
  const std::string own = own_algorithms_.name_of(call.algorithm);
  return fmt::format("{} by {}, in messages of {} bytes at most, {} at a time\n{}", describe(call),
                     own.empty() ? describe_algorithm(call.algorithm) : "algorithm " + own,
                     plan.key.message_bytes,
                     plan.key.stripes == 1 ? "one part" : fmt::format("{} parts", plan.key.stripes),
                     to_text(programs_.plan(call)));
}

}  // namespace tutti
