// Which transport carries messages between each two ranks of a communicator.
//
// Each rank publishes in the store which transports it offers and its place in each. From what all
// ranks published, every rank computes the same table: for each pair of ranks the transports that
// both offer and that reach from one place to the other, the preferred first. Where a transport
// turns out not to work for a rank or a pair, the ranks publish that, too, and the pair uses the
// next one.
#pragma once

#include <cstddef>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/capabilities.h"
#include "rendezvous/roster.h"
#include "transport/registry.h"

namespace tutti {

/// The transports that ranks choose from.
struct RouteCandidates {
  std::vector<TransportEntry> transports;
  bool by_cost = false;  ///< Whether the cheapest is preferred; otherwise the first in the list is.
};

/// Returns what a rank publishes: a line for each transport that it offers, with its place in it.
std::string offers_text(const RouteCandidates& candidates, const TransportContext& context);

/// The transports that join each two ranks. All ranks that construct the table from the same texts
/// and report the same failures to it have the same table. Links are computed when they are asked
/// for, since all pairs of a thousand machines would take much memory.
class RouteTable {
 public:
  /// `offers` holds the offers_text() of each rank. Throws `corrupt` where one cannot be read.
  RouteTable(RouteCandidates candidates, const Texts& offers);

  /// The transports are known by their index in this list.
  const std::vector<TransportEntry>& transports() const noexcept { return candidates_.transports; }

  struct Link {
    std::size_t transport;
    LinkCapabilities can;
  };
  /// Returns the link between two ranks for memory of a kind. Throws `unavailable`, with the reason
  /// of each transport, where there is none.
  Link link(int rank, int peer, MemoryKind kind = MemoryKind::host) const;

  /// Returns why a transport does not join two ranks, or an empty string where it can.
  std::string why_not(int rank, int peer, std::size_t transport) const;

  /// Returns the links between two ranks at the place of `rank`, the preferred one first.
  std::vector<Link> at_place_of(int rank) const;

  /// A summary of the links that all pairs of ranks use.
  struct Summary {
    /// The transport that all pairs use; none where pairs differ.
    std::optional<std::size_t> only;
    bool may_fail = false;  ///< Whether some link may fail to connect.
    bool rings = true;      ///< Whether all links have rings.
    /// The smallest of all links.
    std::size_t largest_message = std::numeric_limits<std::size_t>::max();
  };
  /// Returns that summary. Throws as link() does where two ranks have no link.
  Summary summary() const;

  /// Reports that `rank` could not make its end of a transport, and why.
  void cannot_make(int rank, std::size_t transport, std::string why);
  /// Reports that two ranks could not connect over the link between them, and why, if that is
  /// known. Either may report it, or both.
  void cannot_connect(int rank, int peer, std::string why);
  /// Applies the reports since the last call, so that the pairs concerned use their next links.
  /// Returns false where there were no reports.
  bool apply_reports();

 private:
  struct Failures {
    // Holds why a rank could not make a transport.
    std::map<std::pair<int, std::size_t>, std::string> ranks;
    // Holds, for pairs of ranks and the transport that did not connect them, why.
    std::map<std::pair<std::pair<int, int>, std::size_t>, std::string> connections;

    bool none() const { return ranks.empty() && connections.empty(); }
  };

  std::size_t place_of(int rank) const;
  std::vector<Link> links_between(std::size_t place, std::size_t other) const;
  bool has_failed(int rank, int peer, std::size_t transport) const;
  std::string why_unconnected(int rank, int peer, std::size_t transport) const;
  [[noreturn]] void refuse(int rank, int peer) const;
  template <typename Use>
  void for_each_pair(Use&& use) const;

  RouteCandidates candidates_;
  Texts offers_;
  std::vector<std::vector<std::optional<std::string>>> places_;  // [value of offers_][transport]
  Failures failures_, reports_;
};

}  // namespace tutti
