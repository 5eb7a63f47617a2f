#include "collectives/planning/rank_classes.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cassert>
#include <numeric>
#include <unordered_map>

#include <tutti/error.hpp>

namespace tutti {
namespace {

constexpr std::size_t kMostRouteLinks = 400'000'000;

/// Refines the colours of the vertices ranks, channels and links, in this order. A channel is
/// joined to its two ranks and to the links of its route.
class Refinement {
 public:
  Refinement(const RankPlans& plans, const ChannelRoutes& channels, const Routes& routes)
      : plans_(plans),
        channels_(channels),
        ranks_(static_cast<std::size_t>(plans.ranks())),
        first_link_(ranks_ + channels.from.size()),
        colors_(first_link_ + routes.links()) {
    join_links(routes.links());
    labels_of_receives();
    for (std::size_t rank = 0; rank < ranks_; ++rank)
      paint(rank, joined(1, plans.shape_number(static_cast<int>(rank))));
    for (std::size_t channel = 0; channel < channels.from.size(); ++channel)
      paint(ranks_ + channel,
            joined(joined(2, send_label(channel)), label_of_receive_[channels.receives[channel]]));
    for (std::uint32_t link = 0; link < routes.links(); ++link) {
      const RouteLink one = routes.link(link);
      paint(first_link_ + link,
            joined(joined(3, std::bit_cast<std::uint64_t>(one.gb_per_s)),
                   joined(std::bit_cast<std::uint64_t>(one.latency_us), std::uint64_t(one.kind))));
    }
    painted_.clear();
  }

  /// Splits classes until nothing changes. Returns false if there would be more than `most` classes
  /// of ranks; the classes are then those before the last split.
  bool run(std::size_t most) {
    std::vector<std::uint32_t> dirty(colors_.size());
    std::iota(dirty.begin(), dirty.end(), 0u);
    while (!dirty.empty()) {
      undo_.clear();
      const std::vector<std::uint32_t> split = round(dirty);
      if (rank_colors_ > most) {
        for (const auto& [vertex, color] : undo_) colors_[vertex] = color;
        return false;
      }
      dirty = neighbours_of(split);
    }
    return true;
  }

  const std::vector<std::uint32_t>& colors() const { return colors_; }
  std::size_t first_link() const { return first_link_; }

 private:
  void paint(std::size_t vertex, std::uint64_t what) {
    const auto [found, added] =
        painted_.try_emplace(what, static_cast<std::uint32_t>(sizes_.size()));
    if (added) {
      sizes_.push_back(0);
      if (vertex < ranks_) ++rank_colors_;
    }
    colors_[vertex] = found->second;
    ++sizes_[found->second];
  }

  void join_links(std::uint32_t links) {
    first_channel_of_link_.assign(links + std::size_t{1}, 0);
    for (const std::uint32_t link : channels_.links)
      ++first_channel_of_link_[link + std::size_t{1}];
    std::partial_sum(first_channel_of_link_.begin(), first_channel_of_link_.end(),
                     first_channel_of_link_.begin());
    channels_of_links_.resize(channels_.links.size());
    std::vector<std::size_t> next(first_channel_of_link_.begin(), first_channel_of_link_.end() - 1);
    for (std::size_t channel = 0; channel < channels_.from.size(); ++channel)
      for (std::size_t at = channels_.first[channel]; at < channels_.first[channel + 1]; ++at)
        channels_of_links_[next[channels_.links[at]]++] = static_cast<std::uint32_t>(channel);
  }

  void labels_of_receives() {
    label_of_receive_.resize(plans_.all_receives().size());
    channel_of_receive_.resize(label_of_receive_.size());
    for (int rank = 0; rank < plans_.ranks(); ++rank)
      for (std::size_t at = plans_.first_receive(rank); at < plans_.first_receive(rank + 1); ++at)
        label_of_receive_[at] = plans_.shape(rank).receives[at - plans_.first_receive(rank)].label;
    for (std::size_t channel = 0; channel < channels_.receives.size(); ++channel)
      channel_of_receive_[channels_.receives[channel]] = static_cast<std::uint32_t>(channel);
  }

  std::uint64_t send_label(std::size_t channel) const {
    const int rank = channels_.from[channel];
    return plans_.shape(rank).sends[channel - plans_.first_send(rank)].label;
  }

  int to(std::size_t channel) const { return plans_.all_sends()[channel].peer; }

  // Calls with each neighbour of a vertex and what it is to the vertex.
  template <typename Visit>
  void visit_neighbours(std::size_t vertex, Visit visit) const {
    if (vertex < ranks_) {
      const int rank = static_cast<int>(vertex);
      for (std::size_t at = plans_.first_send(rank); at < plans_.first_send(rank + 1); ++at)
        visit(ranks_ + at, 1u);
      for (std::size_t at = plans_.first_receive(rank); at < plans_.first_receive(rank + 1); ++at)
        visit(ranks_ + channel_of_receive_[at], 2u);
    } else if (vertex < first_link_) {
      const std::size_t channel = vertex - ranks_;
      visit(static_cast<std::size_t>(channels_.from[channel]), 3u);
      visit(static_cast<std::size_t>(to(channel)), 4u);
      for (std::size_t at = channels_.first[channel]; at < channels_.first[channel + 1]; ++at)
        visit(first_link_ + channels_.links[at], 5u);
    } else {
      const std::size_t link = vertex - first_link_;
      for (std::size_t at = first_channel_of_link_[link]; at < first_channel_of_link_[link + 1];
           ++at)
        visit(ranks_ + channels_of_links_[at], 6u);
    }
  }

  // Gives new colours to the vertices among `dirty` whose neighbours differ from those of the
  // others of their colour; the largest part of each colour keeps it. Returns those with new ones.
  std::vector<std::uint32_t> round(const std::vector<std::uint32_t>& dirty) {
    struct Seen {
      std::uint32_t color;
      std::uint64_t neighbours;
      std::uint32_t vertex;
    };
    std::vector<Seen> seen;
    seen.reserve(dirty.size());
    for (const std::uint32_t vertex : dirty) {
      std::uint64_t sum = 0;
      visit_neighbours(
          vertex, [&](std::size_t other, unsigned what) { sum += joined(what, colors_[other]); });
      seen.push_back({colors_[vertex], sum, vertex});
    }
    std::sort(seen.begin(), seen.end(), [](const Seen& a, const Seen& b) {
      return std::tie(a.color, a.neighbours, a.vertex) < std::tie(b.color, b.neighbours, b.vertex);
    });
    std::vector<std::uint32_t> split;
    for (std::size_t begin = 0; begin < seen.size();) {
      std::size_t end = begin;
      std::vector<std::size_t> parts{begin};  // where a part of equal neighbours begins
      while (end < seen.size() && seen[end].color == seen[begin].color) {
        if (end > begin && seen[end].neighbours != seen[end - 1].neighbours) parts.push_back(end);
        ++end;
      }
      const std::uint32_t color = seen[begin].color;
      parts.push_back(end);
      std::size_t keeps = parts.size();  // the part that keeps the colour; none if others have it
      if (sizes_[color] == end - begin) {
        keeps = 0;
        for (std::size_t part = 1; part + 1 < parts.size(); ++part)
          if (parts[part + 1] - parts[part] > parts[keeps + 1] - parts[keeps]) keeps = part;
      }
      for (std::size_t part = 0; part + 1 < parts.size(); ++part) {
        if (part == keeps) continue;
        const auto fresh = static_cast<std::uint32_t>(sizes_.size());
        sizes_.push_back(static_cast<std::uint32_t>(parts[part + 1] - parts[part]));
        sizes_[color] -= sizes_[fresh];
        if (seen[begin].vertex < ranks_) ++rank_colors_;
        for (std::size_t at = parts[part]; at < parts[part + 1]; ++at) {
          undo_.emplace_back(seen[at].vertex, color);
          colors_[seen[at].vertex] = fresh;
          split.push_back(seen[at].vertex);
        }
      }
      begin = end;
    }
    return split;
  }

  std::vector<std::uint32_t> neighbours_of(const std::vector<std::uint32_t>& vertices) const {
    std::vector<std::uint32_t> list;
    for (const std::uint32_t vertex : vertices)
      visit_neighbours(vertex, [&](std::size_t other, unsigned) {
        list.push_back(static_cast<std::uint32_t>(other));
      });
    std::sort(list.begin(), list.end());
    list.erase(std::unique(list.begin(), list.end()), list.end());
    return list;
  }

  const RankPlans& plans_;
  const ChannelRoutes& channels_;
  const std::size_t ranks_, first_link_;
  std::vector<std::uint32_t> colors_;
  std::vector<std::uint32_t> sizes_;  // by colour
  std::size_t rank_colors_ = 0;
  std::vector<std::pair<std::uint32_t, std::uint32_t>> undo_;  // colours before the last split
  std::unordered_map<std::uint64_t, std::uint32_t> painted_;
  std::vector<std::size_t> first_channel_of_link_;
  std::vector<std::uint32_t> channels_of_links_;
  std::vector<std::uint64_t> label_of_receive_;
  std::vector<std::uint32_t> channel_of_receive_;
};

/// Numbers different values from 0 on, in the order in which they are first seen.
class Numbering {
 public:
  std::uint32_t operator()(std::uint64_t value) {
    return known_.try_emplace(value, static_cast<std::uint32_t>(known_.size())).first->second;
  }
  std::uint32_t count() const { return static_cast<std::uint32_t>(known_.size()); }

 private:
  std::unordered_map<std::uint64_t, std::uint32_t> known_;
};

/// Numbers the classes. Channels of one class end at ranks of the same classes, and links of one
/// class have channels of the same classes, even where the partition is not complete.
RankClasses numbered(RankClasses classes, const RankPlans& plans, const ChannelRoutes& channels) {
  Numbering ranks, of_channels, of_links;
  for (std::uint32_t& number : classes.of_rank) number = ranks(number);
  std::vector<std::uint64_t> on_link(classes.of_link.size(), 0);
  for (std::size_t channel = 0; channel < classes.of_channel.size(); ++channel) {
    const auto from = static_cast<std::size_t>(channels.from[channel]),
               to = static_cast<std::size_t>(plans.all_sends()[channel].peer);
    std::uint32_t& number = classes.of_channel[channel];
    number = of_channels(
        joined(number, std::uint64_t{classes.of_rank[from]} << 32 | classes.of_rank[to]));
    for (std::size_t at = channels.first[channel]; at < channels.first[channel + 1]; ++at)
      on_link[channels.links[at]] += joined(4, number);
  }
  for (std::size_t link = 0; link < on_link.size(); ++link)
    classes.of_link[link] = on_link[link] == 0
                                ? RankClasses::kUnused
                                : of_links(joined(classes.of_link[link], on_link[link]));
  classes.channel_classes = of_channels.count();
  classes.link_classes = of_links.count();
  for (std::size_t rank = 0; rank < classes.of_rank.size(); ++rank)
    if (classes.of_rank[rank] == classes.first.size())
      classes.first.push_back(static_cast<int>(rank));
  return classes;
}

}  // namespace

ChannelRoutes channel_routes(const RankPlans& plans, const Routes& routes) {
  ChannelRoutes channels;
  const std::size_t count = plans.all_sends().size();
  channels.first.reserve(count + 1);
  channels.from.reserve(count);
  channels.receives.reserve(count);
  std::vector<std::uint32_t> links;
  for (int rank = 0; rank < plans.ranks(); ++rank)
    for (std::size_t at = plans.first_send(rank); at < plans.first_send(rank + 1); ++at) {
      routes.find(rank, plans.all_sends()[at].peer, links);
      if (channels.links.size() + links.size() > kMostRouteLinks)
        throw Error(ErrorKind::unavailable,
                    fmt::format("the routes of {} channels have more than {} links; choose another "
                                "algorithm or fewer ranks",
                                count, kMostRouteLinks));
      channels.first.push_back(channels.links.size());
      channels.links.insert(channels.links.end(), links.begin(), links.end());
      channels.from.push_back(rank);
      channels.receives.push_back(plans.other_end(rank, at));
    }
  channels.first.push_back(channels.links.size());
  return channels;
}

RankClasses classes_of(const RankPlans& plans, const ChannelRoutes& channels, const Routes& routes,
                       std::size_t most) {
  Refinement refinement(plans, channels, routes);
  RankClasses classes;
  classes.complete = refinement.run(most);
  const auto& colors = refinement.colors();
  const auto at = [&](std::size_t index) {
    return colors.begin() + static_cast<std::ptrdiff_t>(index);
  };
  const auto ranks = static_cast<std::size_t>(plans.ranks());
  classes.of_rank.assign(colors.begin(), at(ranks));
  classes.of_channel.assign(at(ranks), at(refinement.first_link()));
  classes.of_link.assign(at(refinement.first_link()), colors.end());
  return numbered(std::move(classes), plans, channels);
}

RankClasses single_ranks(const RankPlans& plans, const ChannelRoutes& channels,
                         const Routes& routes) {
  RankClasses classes;
  classes.of_rank.resize(static_cast<std::size_t>(plans.ranks()));
  classes.of_channel.resize(channels.from.size());
  classes.of_link.resize(routes.links());
  for (auto* numbers : {&classes.of_rank, &classes.of_channel, &classes.of_link})
    std::iota(numbers->begin(), numbers->end(), 0u);
  return numbered(std::move(classes), plans, channels);
}

}  // namespace tutti
