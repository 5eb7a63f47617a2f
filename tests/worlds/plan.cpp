#include "plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "common/random.h"

namespace tutti::worlds {
namespace {

using namespace std::chrono_literals;

class Drawing {
 public:
  explicit Drawing(std::uint64_t seed) : random_(mix(seed + 1)) {}
  int below(int n) { return static_cast<int>(random_.next() % static_cast<std::uint64_t>(n)); }
  bool one_in(int n) { return below(n) == 0; }
  std::uint64_t number() { return random_.next(); }
  Nanoseconds up_to(Nanoseconds most) {
    return Nanoseconds(random_.next() % static_cast<std::uint64_t>(most.count()));
  }

 private:
  SeededRandom random_;
};

int draw_ranks(Drawing& draw) {
  const int kind = draw.below(20);
  return kind < 14 ? 2 + draw.below(4) : kind < 19 ? 5 + draw.below(5) : 8 + draw.below(25);
}

Step draw_call(Drawing& draw, int slot) {
  constexpr std::array kTypes{DataType::int32, DataType::int64, DataType::f32, DataType::uint8};
  constexpr std::array kOps{Op::sum, Op::min, Op::max};
  Step step;
  const int kind = draw.below(10);
  step.what = kind < 6 ? What::collective : kind < 9 ? What::exchange : What::group;
  step.slot = slot;
  step.salt = draw.number();
  step.collective = static_cast<Collective>(draw.below(kCollectives));
  step.type = kTypes[static_cast<std::size_t>(draw.below(kTypes.size()))];
  step.op = kOps[static_cast<std::size_t>(draw.below(kOps.size()))];
  const int size = draw.below(10);
  step.count = static_cast<std::size_t>(size < 7   ? draw.below(30)
                                        : size < 9 ? draw.below(300)
                                                   : draw.below(1500));
  step.root = draw.below(32);
  step.shift = draw.below(32);
  step.any_source = draw.one_in(3);
  step.in_place = draw.one_in(2);
  return step;
}

// Returns faults that must not be seen in any result.
faulty::Faults draw_noise(Drawing& draw) {
  faulty::Faults noise;
  noise.seed = draw.number();
  if (!draw.one_in(4)) {
    noise.delayed_percent = 10 + draw.below(60);
    noise.longest_delay = draw.one_in(5) ? 3ms : 200us;
  }
  if (draw.one_in(2)) {
    noise.full_percent = 5 + draw.below(30);
    noise.longest_full = 200us;
  }
  if (draw.one_in(2)) noise.oldest_news = draw.one_in(3) ? 3ms : 200us;
  return noise;
}

void draw_events(Drawing& draw, Plan& plan) {
  const auto any_time = [&] { return TimePoint(draw.up_to(draw.one_in(2) ? 2ms : 15ms)); };
  const int count = draw.one_in(3) ? 2 : 1;
  for (int k = 0; k < count; ++k) {
    faulty::Event event;
    event.rank = draw.below(plan.ranks);
    event.peer = (event.rank + 1 + draw.below(plan.ranks - 1)) % plan.ranks;
    event.at = any_time();
    const int kind = draw.below(10);
    if (kind < 3) {
      event.peer = faulty::Event::kAllPeers;  // the rank is killed
      event.lasts = draw.up_to(1ms);
    } else if (kind < 5) {
      event.lasts = draw.one_in(6) ? faulty::Event::kForever : draw.up_to(1ms);
    } else if (kind < 7) {
      event.kind = faulty::Event::Kind::silence;
      event.lasts = draw.one_in(2) ? plan.timeout / 5 : Nanoseconds(5ms);
      if (draw.one_in(2)) event.peer = faulty::Event::kAllPeers;
    } else if (kind < 8) {
      event.kind = faulty::Event::Kind::damage;
    } else if (kind < 9) {
      event.kind = faulty::Event::Kind::flip;
    } else {
      event.kind = faulty::Event::Kind::silence;
      event.lasts = faulty::Event::kForever;
    }
    plan.faults.events.push_back(event);
  }
}

// A port that is down comes up again. All ports of a rank may be down at once: what it sends then
// goes over the control connection.
void draw_network(Drawing& draw, Plan& plan) {
  plan.ports = 1 + draw.below(3);
  plan.at_once = !draw.one_in(3);
  if (draw.one_in(3)) return;
  const int count = 1 + draw.below(4);
  for (int k = 0; k < count; ++k) {
    const TimePoint at(draw.up_to(draw.one_in(2) ? 2ms : 15ms));
    const int port = draw.below(plan.ranks * plan.ports);
    if (draw.one_in(2)) {
      plan.network.push_back({at});
      continue;
    }
    plan.network.push_back({at, NetworkEvent::What::port_down, port});
    plan.network.push_back({at + draw.up_to(5ms), NetworkEvent::What::port_up, port});
  }
}

bool has(const Plan& plan, faulty::Event::Kind kind) {
  return std::any_of(plan.faults.events.begin(), plan.faults.events.end(),
                     [&](const faulty::Event& event) { return event.kind == kind; });
}

void draw_steps(Drawing& draw, Plan& plan) {
  // Where nothing checks the cards of a split, a changed bit makes communicators of other members.
  const bool splits =
      plan.transport != "stream" && !has(plan, faulty::Event::Kind::flip) && !draw.one_in(4);
  const int count = 3 + draw.below(plan.ranks > 12 ? 6 : 14);
  // The end of the connections of "verbs" is that of the world, since it waits for the other ranks.
  const int first_to_end = plan.transport == "verbs" ? plan.bases : 1;
  std::vector<int> open;
  for (int slot = 0; slot < plan.bases; ++slot) open.push_back(slot);
  plan.slots = plan.bases;
  for (int k = 0; k < count && !open.empty(); ++k) {
    const auto at = static_cast<std::size_t>(draw.below(static_cast<int>(open.size())));
    Step step = draw_call(draw, open[at]);
    // Long messages over a stream are sent and received without a copy, and over queue pairs they
    // are read in place.
    if (plan.message_bytes > 4096 && draw.one_in(2))
      step.count = static_cast<std::size_t>(1000 + draw.below(3000));
    if (plan.ranks > 8) step.count %= 30;  // else a call takes all the time of many small worlds
    const int kind = plan.slow_rank >= 0 ? 100 : draw.below(100);
    if (kind < 15 && splits && plan.slots < 8) {
      step.what = What::split;
      step.child = plan.slots++;
      step.colors = draw.one_in(3) ? 1 : 2 + draw.below(2);
      open.push_back(step.child);
    } else if (kind < 22 && step.slot >= first_to_end) {
      step.what = What::end;
      open.erase(open.begin() + static_cast<std::ptrdiff_t>(at));
    } else if (kind == 22) {
      step.what = What::abort;
    } else if (kind == 23 || kind == 24) {
      step.what = What::mismatch;
      step.collective = Collective::all_reduce;
      step.count += 2;
    }
    if (plan.slow_rank >= 0) {
      // No rank ends one of these before the slow rank has begun it, so that no call has to wait
      // for two of its pauses.
      constexpr std::array kAllWait{Collective::all_reduce, Collective::all_gather,
                                    Collective::all_to_all, Collective::barrier};
      step.what = What::collective;
      step.collective = kAllWait[static_cast<std::size_t>(draw.below(kAllWait.size()))];
    }
    plan.steps.push_back(step);
  }
}

}  // namespace

Plan plan_of(std::uint64_t seed, std::string_view transport) {
  Drawing draw(seed);
  Plan plan;
  plan.seed = seed;
  plan.decorated = transport.starts_with("faulty-") || transport.starts_with("faulty_");
  plan.transport = plan.decorated ? transport.substr(7) : transport;
  plan.ranks = draw_ranks(draw);
  const bool in_process = plan.transport == "local" || plan.transport == "stream";
  if (!in_process) plan.ranks = std::min(plan.ranks, 4);
  if (plan.transport == "stream") plan.ranks = std::min(plan.ranks, 5);
  plan.bases = draw.one_in(4) ? 2 : 1;
  plan.timeout = plan.ranks > 8 ? 20s : 2s;  // of time that passes faster the more ranks poll
  if (draw.one_in(10)) {
    plan.slow_rank = draw.below(plan.ranks);
    plan.bases = 1;
  }
  if (plan.decorated) {
    plan.faults = draw_noise(draw);
    if (plan.slow_rank < 0 && draw.one_in(3)) draw_events(draw, plan);
  }
  if ((plan.transport == "stream" || plan.transport == "tcp") && draw.one_in(2))
    plan.message_bytes = 16 << 10;
  if (plan.transport == "verbs") {
    if (draw.one_in(2)) plan.message_bytes = 40 << 10;
    draw_network(draw, plan);
    // A rank without calls looks at its queue pairs twice a second, and finds some of what has
    // happened, since completions are late. A path that fails is replaced in several such steps.
    plan.timeout = 10s;
  }
  draw_steps(draw, plan);
  plan.renews = draw.one_in(4);
  const bool dies = draw.one_in(3);
  if (dies) {
    plan.dies_in_renewal = draw.below(plan.ranks);
    plan.dies_after_steps = draw.below(8);
  }
  if (draw.one_in(2)) {
    plan.newcomers = 1 + draw.below(3);
    plan.spare_newcomers = draw.below(2);
    if (dies && draw.one_in(2))
      plan.dies_in_renewal = plan.ranks + draw.below(plan.newcomers + plan.spare_newcomers);
  }
  return plan;
}

std::vector<int> members(const Plan& plan, int slot, int rank) {
  std::vector<int> all;
  if (slot < plan.bases) {
    for (int each = 0; each < plan.ranks; ++each) all.push_back(each);
    return all;
  }
  const auto split = std::find_if(plan.steps.begin(), plan.steps.end(), [&](const Step& step) {
    return step.what == What::split && step.child == slot;
  });
  if (split == plan.steps.end()) return {};
  const std::vector<int> parents = members(plan, split->slot, rank);
  const auto color = [&](int each) { return color_of(*split, each); };
  if (color(rank) < 0) return {};
  for (const int each : parents)
    if (color(each) == color(rank)) all.push_back(each);
  std::stable_sort(all.begin(), all.end(),
                   [&](int a, int b) { return key_of(*split, a) < key_of(*split, b); });
  return all;
}

int color_of(const Step& split, int rank) {
  if (split.colors == 1) return 0;
  const auto drawn = mix(split.salt ^ static_cast<std::uint64_t>(rank + 1)) %
                     static_cast<std::uint64_t>(split.colors * 4 + 1);
  return drawn == 0 ? -1 : static_cast<int>(drawn) % split.colors;
}

int key_of(const Step& split, int rank) {
  return split.colors == 1 ? 0 : static_cast<int>(mix(split.salt + 7 * (rank + 1)) % 5);
}

std::string describe(const faulty::Event& event) {
  using Kind = faulty::Event::Kind;
  const std::string_view name = event.kind == Kind::cut       ? "cut"
                                : event.kind == Kind::silence ? "silence"
                                : event.kind == Kind::damage  ? "damage"
                                                              : "flip";
  const std::string peer = event.peer < 0 ? "all" : std::to_string(event.peer);
  const std::string lasts = event.lasts == faulty::Event::kForever
                                ? "for ever"
                                : fmt::format("{} us", event.lasts.count() / 1000);
  return fmt::format("{} of rank {} and {} at {} us, {}", name, event.rank, peer,
                     event.at.time_since_epoch().count() / 1000, lasts);
}

std::string describe(const NetworkEvent& event) {
  const auto at = event.at.time_since_epoch().count() / 1000;
  switch (event.what) {
    case NetworkEvent::What::pair_fails: return fmt::format("a queue pair fails at {} us", at);
    case NetworkEvent::What::port_down: return fmt::format("port {} down at {} us", event.port, at);
    case NetworkEvent::What::port_up: break;
  }
  return fmt::format("port {} up at {} us", event.port, at);
}

std::string describe(const Step& step) {
  switch (step.what) {
    case What::split:
      return fmt::format("slot {}: split, {} colors, as slot {}", step.slot, step.colors,
                         step.child);
    case What::abort: return fmt::format("slot {}: abort by one rank", step.slot);
    case What::end: return fmt::format("slot {}: end", step.slot);
    case What::exchange:
      return fmt::format("slot {}: exchange, shift {}, {} x {}{}", step.slot, step.shift,
                         step.count, to_string(step.type), step.any_source ? ", any source" : "");
    case What::collective:
    case What::group:
    case What::mismatch: break;
  }
  return fmt::format("slot {}: {}{}, {} x {}, {}, root {}{}", step.slot,
                     step.what == What::group      ? "group of an exchange and "
                     : step.what == What::mismatch ? "mismatched "
                                                   : "",
                     to_string(step.collective), step.count, to_string(step.type),
                     to_string(step.op), step.root, step.in_place ? ", in place" : "");
}

std::string describe(const Plan& plan) {
  std::string text = fmt::format(
      "seed {}, {}{}, {} ranks, {} base communicators, slow rank {}, makes a new communicator {} "
      "with {} newcomers of {}, rank {} dies "
      "after "
      "{} steps of it\n  noise: {} % delayed up to {} us, {} % full up to {} us, news up to {} us "
      "old\n",
      plan.seed, plan.decorated ? "faulty-" : "", plan.transport, plan.ranks, plan.bases,
      plan.slow_rank, plan.renews, plan.newcomers, plan.newcomers + plan.spare_newcomers,
      plan.dies_in_renewal, plan.dies_after_steps, plan.faults.delayed_percent,
      plan.faults.longest_delay.count() / 1000, plan.faults.full_percent,
      plan.faults.longest_full.count() / 1000, plan.faults.oldest_news.count() / 1000);
  for (const auto& event : plan.faults.events)
    text += fmt::format("  fault: {}\n", describe(event));
  if (plan.transport == "verbs")
    text +=
        fmt::format("  {} ports of each rank, connected at once {}\n", plan.ports, plan.at_once);
  for (const auto& event : plan.network) text += fmt::format("  network: {}\n", describe(event));
  for (std::size_t k = 0; k < plan.steps.size(); ++k)
    text += fmt::format("  step {}: {}\n", k, describe(plan.steps[k]));
  return text;
}

namespace {

// A plan without step `at`, and without the steps of the communicators that it makes.
Plan without_step(const Plan& plan, std::size_t at) {
  Plan less = plan;
  std::vector<int> gone;
  if (plan.steps[at].what == What::split) gone.push_back(plan.steps[at].child);
  less.steps.clear();
  for (std::size_t k = 0; k < plan.steps.size(); ++k) {
    const Step& step = plan.steps[k];
    const bool left_out = k == at || std::find(gone.begin(), gone.end(), step.slot) != gone.end();
    if (!left_out) less.steps.push_back(step);
    if (left_out && step.what == What::split) gone.push_back(step.child);
  }
  return less;
}

}  // namespace

std::vector<Plan> smaller(const Plan& plan) {
  std::vector<Plan> plans;
  for (const int ranks : {plan.ranks / 2, plan.ranks - 1}) {
    if (ranks < 2) continue;
    Plan less = plan;
    less.ranks = ranks;
    std::erase_if(less.faults.events,
                  [&](const auto& event) { return event.rank >= ranks || event.peer >= ranks; });
    if (less.slow_rank >= ranks) less.slow_rank = -1;
    if (less.dies_in_renewal >= ranks) less.dies_in_renewal = -1;
    plans.push_back(less);
  }
  if (plan.renews) plans.push_back(plan), plans.back().renews = false;
  if (plan.renews && plan.newcomers > 0) plans.push_back(plan), plans.back().newcomers = 0;
  if (plan.slow_rank >= 0) plans.push_back(plan), plans.back().slow_rank = -1;
  for (std::size_t k = 0; k < plan.faults.events.size(); ++k) {
    plans.push_back(plan);
    auto& events = plans.back().faults.events;
    events.erase(events.begin() + static_cast<std::ptrdiff_t>(k));
  }
  const auto quieter = [&](auto change) {
    Plan less = plan;
    change(less.faults);
    const faulty::Faults &a = less.faults, &b = plan.faults;
    if (a.delayed_percent != b.delayed_percent || a.full_percent != b.full_percent ||
        a.oldest_news != b.oldest_news)
      plans.push_back(less);
  };
  quieter([](auto& faults) { faults.delayed_percent = 0; });
  quieter([](auto& faults) { faults.full_percent = 0; });
  quieter([](auto& faults) { faults.oldest_news = {}; });
  for (std::size_t k = plan.steps.size(); k-- > 0;) plans.push_back(without_step(plan, k));
  return plans;
}

}  // namespace tutti::worlds
