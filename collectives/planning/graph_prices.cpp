#include "collectives/planning/graph_prices.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cassert>

#include <tutti/error.hpp>

#include "collectives/planning/graph_actors.h"

namespace tutti {
namespace {

/// With more steps of all ranks than this, one rank of each of at most kMostClasses is simulated,
/// even where ranks of a class are not quite alike.
constexpr std::uint64_t kMostSteps = 60'000'000;
constexpr std::size_t kMostClasses = 1024;
/// About so many pieces of a long call are simulated until they repeat.
constexpr std::uint64_t kUsualPieces = 40;
/// With more actors than this, rates that change by less than kTolerance are kept.
constexpr std::size_t kManyActors = 4096;
constexpr double kTolerance = 0.01;

void check(const GraphCall& call, const Routes& routes, const GraphCosts& costs) {
  const auto refuse = [](const std::string& why) { throw Error(ErrorKind::usage, why); };
  assert(call.algorithm != nullptr && call.algorithm->knows(call.what, call.ranks));
  if (call.ranks < 2) refuse(fmt::format("{} ranks: at least 2 are simulated", call.ranks));
  if (call.ranks > routes.ranks())
    refuse(
        fmt::format("{} ranks, but the fabric has {} GPUs: describe more nodes, or simulate "
                    "fewer ranks",
                    call.ranks, routes.ranks()));
  if (!(costs.copy_gb_per_s > 0) || !(costs.reduce_gb_per_s > 0))
    refuse("a rank must copy and reduce more than 0 bytes a second");
  if (costs.window < 2 || costs.window > 64)
    refuse(fmt::format("a window of {} messages: it must be 2 to 64", costs.window));
  constexpr Picoseconds kMost = 1'000'000'000'000;
  for (const Picoseconds time : {costs.step, costs.node_latency, costs.network_latency})
    if (time < 0 || time > kMost) refuse("steps and latencies must take 0 to 1 second");
}

RankPlans plans_of(const GraphCall& call, int gpus) {
  CallSignature signature;
  signature.what = call.what;
  signature.count = call.bytes;
  RankPlans plans(signature, call.message_bytes);
  PlanRequest request{call.what, 0, call.ranks, 0};
  request.group_size = gpus;
  for (int rank = 0; rank < call.ranks; ++rank) {
    request.rank = rank;
    collectives::Rounds rounds = call.algorithm->plan_in_rounds(request);
    if (call.every_rank)
      plans.add_each_step(collectives::expand(std::move(rounds)));
    else
      plans.add(rounds);
    if (call.progress && rank % 4096 == 0) call.progress("plans", double(rank) / call.ranks);
  }
  return plans;
}

std::size_t most_classes(const RankPlans& plans) {
  double steps = 0;
  const double left_out = static_cast<double>(std::min(plans.pieces(), kUsualPieces)) /
                          static_cast<double>(plans.pieces());
  for (int rank = 0; rank < plans.ranks(); ++rank)
    steps += static_cast<double>(plans.steps_of(rank)) * left_out;
  return steps <= static_cast<double>(kMostSteps) ? static_cast<std::size_t>(plans.ranks())
                                                  : kMostClasses;
}

void weigh(GraphPrice& price, const std::vector<LinkLoad>& loads, const Routes& routes) {
  std::array<KindLoad, kRouteKinds> kinds{};
  std::array<std::uint32_t, kRouteKinds> busiest{};
  for (const LinkLoad& load : loads) {
    const RouteLink link = routes.link(load.link);
    KindLoad& kind = kinds[static_cast<std::size_t>(link.kind)];
    kind.bytes += load.bytes;
    const double needs = load.bytes * 1e3 / link.gb_per_s;
    if (needs <= kind.busy) continue;
    kind.busy = needs;
    kind.most_bytes = load.bytes;
    busiest[static_cast<std::size_t>(link.kind)] = load.link;
  }
  for (std::size_t at = 0; at < kinds.size(); ++at) {
    if (kinds[at].bytes <= 0) continue;
    kinds[at].kind = static_cast<RouteKind>(at);
    kinds[at].link = routes.name(busiest[at]);
    price.at_least = std::max(price.at_least, static_cast<Picoseconds>(kinds[at].busy));
    if (price.time > 0) kinds[at].busy /= static_cast<double>(price.time);
    price.loads.push_back(kinds[at]);
  }
  std::stable_sort(price.loads.begin(), price.loads.end(),
                   [](const KindLoad& a, const KindLoad& b) { return a.busy > b.busy; });
}

std::string bottleneck_of(const GraphPrice& price) {
  const TimeParts& parts = price.parts;
  const double most = std::max({parts.steps, parts.bytes, parts.transfer, parts.latency});
  const double percent = price.time > 0 ? 100 * most / static_cast<double>(price.time) : 0;
  if (most == parts.latency)
    return fmt::format("latency of messages, {:.0f} % of the time", percent);
  if (most == parts.steps) return fmt::format("the cost of steps, {:.0f} % of the time", percent);
  if (most == parts.bytes)
    return fmt::format("copying and reducing in a rank, {:.0f} % of the time", percent);
  if (price.loads.empty()) return "nothing";
  const KindLoad& load = price.loads.front();
  return fmt::format("bytes on links, {:.0f} % of the time: {} ({}) is busy {:.0f} % of it",
                     percent, to_string(load.kind), load.link, 100 * load.busy);
}

}  // namespace

GraphPrice price_on_graph(const GraphCall& call, const Routes& routes, const GraphCosts& costs) {
  check(call, routes, costs);
  const auto tell = [&](const char* what, double part) {
    if (call.progress) call.progress(what, part);
  };
  const RankPlans plans = plans_of(call, routes.gpus());
  tell("routes", 0);
  const ChannelRoutes channels = channel_routes(plans, routes);
  tell("classes", 0);
  const RankClasses classes = call.every_rank
                                  ? single_ranks(plans, channels, routes)
                                  : classes_of(plans, channels, routes, most_classes(plans));
  GraphPrice price;
  price.classes = classes.first.size();
  GraphRequest request{plans, channels, classes, routes, costs};
  request.skip_repeats = !call.every_rank;
  if (!call.every_rank && price.classes > kManyActors) request.tolerance = kTolerance;
  request.most_spans = call.most_spans;
  request.progress = call.progress;
  const int recorded = std::min(call.recorded_ranks, call.ranks);
  for (int rank = 0; rank < recorded; ++rank)
    request.recorded_actors = std::max<std::size_t>(
        request.recorded_actors, classes.of_rank[static_cast<std::size_t>(rank)] + std::size_t{1});
  tell("simulation", 0);
  GraphRun run = run_on_graph(request);
  price.time = run.time;
  price.parts = run.parts;
  price.events = run.events;
  price.repeated_steps = run.repeated_steps;
  // A step of an actor is one of each recorded rank of its class.
  std::vector<std::size_t> ranks_of(request.recorded_actors);
  for (int rank = 0; rank < recorded; ++rank)
    ++ranks_of[classes.of_rank[static_cast<std::size_t>(rank)]];
  std::size_t kept = 0;
  for (std::size_t steps = 0; kept < run.spans.size(); ++kept)
    if ((steps += ranks_of[run.spans[kept].actor]) > call.most_spans) break;
  run.spans.resize(kept);
  for (int rank = 0; rank < recorded; ++rank)
    for (const StepSpan& span : run.spans)
      if (span.actor == classes.of_rank[static_cast<std::size_t>(rank)])
        price.spans.push_back({rank, span});
  weigh(price, loads_of(request), routes);
  price.bottleneck = bottleneck_of(price);
  if (plans.rounded())
    price.reasons.emplace_back("all chunks are taken to be as long as the longest");
  if (!classes.complete)
    price.reasons.emplace_back(fmt::format(
        "{} classes stand for ranks whose surroundings differ farther away", price.classes));
  if (request.tolerance > 0)
    price.reasons.emplace_back("rates that change by less than 1 % are kept");
  price.exact = price.reasons.empty();
  return price;
}

}  // namespace tutti
