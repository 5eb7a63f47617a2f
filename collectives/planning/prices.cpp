#include "collectives/planning/prices.h"

#include <algorithm>
#include <bit>
#include <cassert>

#include "collectives/algorithms/algorithms.h"
#include "collectives/planning/simulate.h"

namespace tutti {
namespace {

constexpr std::size_t kLeastSmallerMessage = 4 << 10;
// Cost of an operand of a reproducible sum, relative to one of a plain sum.
constexpr Picoseconds kFixedPoint = 20;
// Algorithms that cost more than this times the cheapest are not chosen with any message size.
constexpr Picoseconds kWorthSizing = 2;

auto find(const std::vector<Candidate>& list, std::uint32_t algorithm) {
  return std::find_if(list.begin(), list.end(),
                      [&](const Candidate& c) { return c.algorithm == algorithm; });
}

// Returns the choice with its cheapest message size, if it was priced.
Choice sized(const Choice& choice, const std::vector<Candidate>& list) {
  const auto priced = find(list, choice.algorithm);
  return priced == list.end() ? choice : Choice{choice.algorithm, priced->message_bytes};
}

}  // namespace

std::size_t size_class(std::size_t bytes) {
  if (bytes < 4) return bytes;
  const std::size_t lowest = std::size_t{1} << (std::bit_width(bytes) - 2);
  return bytes & ~(lowest - 1);
}

std::vector<Candidate> PriceList::candidates(const SelectRequest& request) {
  if (request.ranks > kMostPricedRanks || request.ranks < 2 || request.pair_lengths ||
      (request.spread != Spread::one_machine && request.machines.empty()))
    return {};
  SelectRequest priced_as = request;
  priced_as.bytes = size_class(std::min(request.bytes, kMostPricedBytes));
  const std::lock_guard lock(mutex_);
  const auto found = priced_.find(priced_as);
  if (found != priced_.end()) return found->second;
  if (priced_.size() >= kMostKept) priced_.clear();
  return priced_[priced_as] = priced(priced_as);
}

std::vector<Candidate> PriceList::priced(const SelectRequest& request) const {
  std::vector<Candidate> list;
  for (std::uint32_t index = 0; index < algorithms().size(); ++index)
    if (can_serve(index, request))
      list.push_back(
          {index, request.max_message_bytes, price(index, request.max_message_bytes, request)});
  const auto cheaper = [](const Candidate& a, const Candidate& b) {
    return a.predicted < b.predicted;
  };
  if (list.empty()) return list;
  const Picoseconds least = std::min_element(list.begin(), list.end(), cheaper)->predicted;
  for (Candidate& candidate : list)
    if (candidate.predicted <= kWorthSizing * least) candidate = cheapest_size(candidate, request);
  std::stable_sort(list.begin(), list.end(), cheaper);
  return list;
}

// With smaller messages the ranks begin to overlap sooner, but the number of messages grows.
Candidate PriceList::cheapest_size(Candidate candidate, const SelectRequest& request) const {
  assert(candidate.message_bytes == request.max_message_bytes);
  SelectRequest smaller = request;
  for (const int parts : {2, 4}) {
    smaller.max_message_bytes = request.max_message_bytes / parts & ~std::size_t{63};
    if (smaller.max_message_bytes < kLeastSmallerMessage ||
        request.bytes <= smaller.max_message_bytes || !can_serve(candidate.algorithm, smaller))
      break;
    const Picoseconds predicted = price(candidate.algorithm, smaller.max_message_bytes, request);
    if (clearly_less(predicted, candidate.predicted))
      candidate = {candidate.algorithm, smaller.max_message_bytes, predicted};
  }
  return candidate;
}

Picoseconds PriceList::price(std::uint32_t algorithm, std::size_t message_bytes,
                             const SelectRequest& request) const {
  assert(algorithm < algorithms().size() && message_bytes > 0);
  assert(2 <= request.ranks && request.ranks <= kMostPricedRanks && !request.pair_lengths);
  // A call on bytes, since the model does not distinguish the kernels of the types.
  CallSignature call;
  call.what = request.what;
  call.count = request.bytes;
  std::vector<Program> programs;
  for (int rank = 0; rank < request.ranks; ++rank)
    programs.push_back(compile(
        algorithms()[algorithm].plan({request.what, rank, request.ranks, 0, request.groups}), call,
        message_bytes));
  MachineCosts costs = costs_;
  if (request.reproducible) costs.reduce_kib *= kFixedPoint;
  std::vector<int> machines = request.machines;
  machines.resize(static_cast<std::size_t>(request.ranks));
  return simulate(programs, cluster_of(costs, std::move(machines), request.cores, costs.anywhere,
                                       3 * request.max_message_bytes));
}

bool PriceList::clearly_less(Picoseconds a, Picoseconds b) const {
  assert(a >= 0 && b >= 0);
  return a * (100 + costs_.error_percent) < b * 100;
}

Choice PriceList::choose(const SelectRequest& request, std::string_view forced, bool by_call) {
  if (!forced.empty() && forced != "auto") {
    const Choice named = tutti::choose(request, forced, by_call);
    if (named.algorithm == algorithm_index(forced)) return sized(named, candidates(request));
  }
  if (request.pair_lengths) return tutti::choose(request, "");
  {
    const std::lock_guard lock(mutex_);
    const auto found = chosen_.find(request);
    if (found != chosen_.end()) return found->second;
  }
  const Choice choice = cheapest(request);
  const std::lock_guard lock(mutex_);
  if (chosen_.size() >= kMostKept) chosen_.clear();
  return chosen_[request] = choice;
}

Choice PriceList::cheapest(const SelectRequest& request) {
  const Choice table = tutti::choose(request, "");
  const std::vector<Candidate> list = candidates(request);
  const auto measured = find(list, table.algorithm);
  if (measured == list.end() || !clearly_less(list.front().predicted, measured->predicted))
    return sized(table, list);
  return {list.front().algorithm, list.front().message_bytes};
}

}  // namespace tutti
