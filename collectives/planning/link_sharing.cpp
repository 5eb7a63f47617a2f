#include "collectives/planning/link_sharing.h"

#include <algorithm>
#include <cassert>
#include <limits>
#include <queue>
#include <utility>

namespace tutti {
namespace {

/// A level at which a link is full (`flow` is false) or a flow has all that it can get.
struct Level {
  double rate;
  bool flow;
  std::uint32_t number;

  bool operator<(const Level& other) const {  // the lowest one is at the top of a heap
    if (rate != other.rate) return rate > other.rate;
    return std::pair(flow, number) > std::pair(other.flow, other.number);
  }
};

}  // namespace

LinkSharing::LinkSharing(const std::vector<double>& capacities, double tolerance)
    : tolerance_(tolerance) {
  assert(0 <= tolerance && tolerance <= 0.1);
  links_.reserve(capacities.size());
  for (const double capacity : capacities) {
    assert(capacity > 0);
    links_.push_back({capacity});
  }
}

std::uint32_t LinkSharing::add(std::span<const Use> uses) {
  assert(!uses.empty());
  const auto number = static_cast<std::uint32_t>(flows_.size());
  Flow flow{static_cast<std::uint32_t>(uses_.size()), static_cast<std::uint32_t>(uses.size())};
  flow.most = std::numeric_limits<double>::max();
  for (const Use& use : uses) {
    assert(use.weight > 0 && use.link < links_.size());
    flow.most = std::min(flow.most, links_[use.link].capacity / use.weight);
    uses_.push_back({use, number});
  }
  flows_.push_back(flow);
  return number;
}

void LinkSharing::mark(std::uint32_t number) {
  Link& link = links_[number];
  if (std::exchange(link.dirty, true)) return;
  dirty_.push_back(number);
}

void LinkSharing::choose(std::uint32_t number) {
  Flow& flow = flows_[number];
  assert(flow.active);
  if (std::exchange(flow.chosen, true)) return;
  chosen_.push_back(number);
  if (!std::exchange(flow.touched, true)) touched_.push_back(number);
}

void LinkSharing::start(std::uint32_t number) {
  Flow& flow = flows_[number];
  assert(!flow.active);
  flow.active = true;
  flow.rate = flow.before = 0;
  flow.bottleneck = kNone;
  for (FlowUse& use : uses_of(flow)) {
    Link& link = links_[use.use.link];
    use.place = static_cast<std::uint32_t>(link.active.size());
    link.active.push_back(static_cast<std::uint32_t>(&use - uses_.data()));
    link.wanted += use.use.weight * flow.most;
  }
  choose(number);
}

void LinkSharing::stop(std::uint32_t number) {
  Flow& flow = flows_[number];
  assert(flow.active);
  flow.active = false;
  for (FlowUse& use : uses_of(flow)) {
    Link& link = links_[use.use.link];
    if (contended(link)) mark(use.use.link);
    const std::uint32_t last = link.active.back();
    link.active[use.place] = last;
    uses_[last].place = use.place;
    link.active.pop_back();
    use.place = kNone;
    if (link.active.empty()) {
      link.wanted = link.load = 0;  // what rounding has left goes
    } else {
      link.wanted -= use.use.weight * flow.most;
      link.load -= use.use.weight * flow.rate;
    }
  }
  flow.rate = 0;
}

void LinkSharing::fix(std::uint32_t number, double rate, std::uint32_t bottleneck) {
  Flow& flow = flows_[number];
  for (const FlowUse& use : uses_of(flow)) {
    Link& link = links_[use.use.link];
    link.load += use.use.weight * rate;
    if (link.local == kNone) continue;
    Filled& filled = filled_[link.local];
    filled.room -= use.use.weight * rate;
    filled.weight -= use.use.weight;
  }
  flow.rate = rate;
  flow.bottleneck = bottleneck;
}

// Computes the rates of the chosen flows beside those of all others, which stay as they are: all
// rates grow alike until a link is full or a flow has all that it can get.
void LinkSharing::fill() {
  filled_.clear();
  for (const std::uint32_t number : chosen_) {
    const Flow& flow = flows_[number];
    for (const FlowUse& use : uses_of(flow)) {
      Link& link = links_[use.use.link];
      link.load -= use.use.weight * flow.rate;
      if (!contended(link)) continue;
      if (link.local == kNone) {
        link.local = static_cast<std::uint32_t>(filled_.size());
        filled_.push_back({use.use.link, 0, 0});
      }
      filled_[link.local].weight += use.use.weight;
    }
  }
  std::priority_queue<Level> levels;
  const auto level_of = [&](const Filled& filled) {
    return std::max(0.0, filled.room) / filled.weight;
  };
  for (Filled& filled : filled_)
    filled.room = links_[filled.link].capacity - links_[filled.link].load;
  for (std::uint32_t local = 0; local < filled_.size(); ++local)
    levels.push({level_of(filled_[local]), false, local});
  for (const std::uint32_t number : chosen_) {
    flows_[number].rate = -1;  // not known yet
    levels.push({flows_[number].most, true, number});
  }
  for (std::size_t left = chosen_.size(); left > 0;) {
    const Level level = levels.top();
    levels.pop();
    if (level.flow) {
      if (flows_[level.number].rate >= 0) continue;
      fix(level.number, level.rate, kNone);
      --left;
      continue;
    }
    const Filled filled = filled_[level.number];
    if (filled.weight < 1e-9) continue;
    const double now = level_of(filled);
    if (now > level.rate) {  // flows that other links hold back have left it more
      levels.push({now, false, level.number});
      continue;
    }
    const Link& link = links_[filled.link];
    for (const std::uint32_t use : link.active) {
      const std::uint32_t flow = uses_[use].flow;
      if (flows_[flow].rate >= 0) continue;
      fix(flow, level.rate, filled.link);
      --left;
    }
  }
  for (const Filled& filled : filled_) links_[filled.link].local = kNone;
}

// Chooses the flows of a link whose rates are not fair any more: those that it held back and that
// could have more now, and those that have more than one that it holds back. Returns whether there
// were any.
bool LinkSharing::choose_from(std::uint32_t number) {
  const Link& link = links_[number];
  double most = 0;                                        // the greatest rate on the link
  double held = std::numeric_limits<double>::infinity();  // the least that it holds back
  for (const std::uint32_t use : link.active) {
    const Flow& flow = flows_[uses_[use].flow];
    most = std::max(most, flow.rate);
    if (flow.bottleneck == number) held = std::min(held, flow.rate);
  }
  const bool full = contended(link) && link.load >= link.capacity * (1 - 1e-9 - tolerance_);
  const double slack = 1e-9 + tolerance_;
  bool found = false;
  for (const std::uint32_t use : link.active) {
    const std::uint32_t flow = uses_[use].flow;
    const Flow& one = flows_[flow];
    if (one.chosen) continue;
    const bool could_have_more =
        one.bottleneck == number && (!full || one.rate < most * (1 - slack));
    const bool has_too_much = one.rate > held * (1 + slack);
    if (!could_have_more && !has_too_much) continue;
    choose(flow);
    found = true;
  }
  return found;
}

bool LinkSharing::choose_more() {
  bool found = false;
  for (std::size_t at = 0; at < dirty_.size(); ++at) found |= choose_from(dirty_[at]);
  return found;
}

std::span<const std::uint32_t> LinkSharing::settle() {
  // A flow may have stopped after it started; and links that flows left may have room for others.
  std::erase_if(chosen_, [&](std::uint32_t flow) {
    if (!flows_[flow].active) flows_[flow].chosen = false;
    return !flows_[flow].active;
  });
  if (!dirty_.empty()) choose_more();
  while (!chosen_.empty()) {
    fill();
    for (const std::uint32_t flow : chosen_)
      for (const FlowUse& use : uses_of(flows_[flow]))
        if (contended(links_[use.use.link])) mark(use.use.link);
    if (!choose_more()) break;
  }
  for (const std::uint32_t flow : chosen_) flows_[flow].chosen = false;
  for (const std::uint32_t link : dirty_) links_[link].dirty = false;
  chosen_.clear();
  dirty_.clear();
  changed_.clear();
  for (const std::uint32_t number : touched_) {
    Flow& flow = flows_[number];
    flow.touched = false;
    if (!flow.active || flow.rate == flow.before) continue;
    flow.before = flow.rate;
    changed_.push_back(number);
  }
  touched_.clear();
  return changed_;
}

}  // namespace tutti
