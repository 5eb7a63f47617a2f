// Classes of ranks that do the same at the same time, so that one of each class is simulated.
#pragma once

#include <cstdint>
#include <vector>

#include "collectives/planning/rank_plans.h"
#include "topology/routes.h"

namespace tutti {

/// Holds a partition of ranks and of the channels between them.
struct RankClasses {
  std::vector<std::uint32_t> of_rank;  ///< By rank: its class.
  std::vector<int> first;              ///< By class: its first rank, which stands for it.
  /// Holds, by index in RankPlans::all_sends(), the channel's class. Channels of one class go
  /// between ranks of the same classes over links of the same classes.
  std::vector<std::uint32_t> of_channel;
  /// Holds, by the number of a link, its class; it is kUnused for links over which no channel goes.
  std::vector<std::uint32_t> of_link;
  std::uint32_t channel_classes = 0, link_classes = 0;
  /// Says whether all members of a class have equal neighbours. They then do the same at the same
  /// time.
  bool complete = true;

  static constexpr std::uint32_t kUnused = 0xffff'ffff;
};

/// Holds for each channel the links of its route.
struct ChannelRoutes {
  std::vector<std::size_t>
      first;  ///< By channel: the index of its first link; one more at the end.
  std::vector<std::uint32_t> links;
  std::vector<int> from;              ///< By channel.
  std::vector<std::size_t> receives;  ///< By channel: its other end in RankPlans::all_receives().
};
/// Throws `unavailable` where the routes of all channels take too much memory.
ChannelRoutes channel_routes(const RankPlans& plans, const Routes& routes);

/// Finds the coarsest partition in which ranks of a class have equal shapes and channels to ranks
/// of equal classes over links that equal channels share (colour refinement: Cardon, Crochemore:
/// Partitioning a graph in O(|A| log2 |V|), 1982). It ends early, and is not complete, when there
/// would be more than `most` classes of ranks.
RankClasses classes_of(const RankPlans& plans, const ChannelRoutes& channels, const Routes& routes,
                       std::size_t most);

/// Returns classes of one rank each.
RankClasses single_ranks(const RankPlans& plans, const ChannelRoutes& channels,
                         const Routes& routes);

}  // namespace tutti
