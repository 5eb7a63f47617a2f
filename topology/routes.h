// The links that a message passes between two GPUs of a fabric.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "topology/fabric.h"

namespace tutti {

/// Lists the kinds of links between which reports distinguish. The first are those of a node; `net`
/// joins a node's port to its leaf switch, `spine` a leaf switch to all spines.
enum class RouteKind : std::uint8_t { pci, nvlink, xgmi, c2c, cpus, nic, net, spine };
inline constexpr int kRouteKinds = 8;
std::string_view to_string(RouteKind kind);

/// A link in one direction, with all parallel wires between its two ends.
struct RouteLink {
  RouteKind kind = RouteKind::pci;
  double gb_per_s = 0;    ///< 10^9 bytes a second.
  double latency_us = 0;  ///< That the description gives.

  bool operator==(const RouteLink&) const = default;
};

/// Finds routes by arithmetic: nothing is kept for each node, so a fabric may have a million of
/// them. Rank r is GPU r % gpus() of node r / gpus(), in the order of the node's description.
///
/// Within a node, a message takes the path with the most bandwidth, of those the one with the
/// fewest links, and does not pass through other GPUs. A GPU uses the port to which it has most
/// bandwidth, where several are alike one of them by turns. Messages between leaves are spread
/// evenly over all spines, so that the links of a leaf to the spines are one link. Immutable and
/// thread-safe.
class Routes {
 public:
  /// Throws `unavailable` where a node has no or too many GPUs, or where two GPUs do not reach each
  /// other.
  explicit Routes(const Fabric& fabric);

  int gpus() const { return gpus_; }  ///< Of one node.
  std::int64_t ranks() const { return std::int64_t{nodes_} * gpus_; }
  std::uint32_t links() const { return first_leaf_down_ + leaves_; }

  /// Replaces `links` by the numbers of the links from rank `from` to another rank, in order.
  void find(int from, int to, std::vector<std::uint32_t>& links) const;
  RouteLink link(std::uint32_t number) const;
  /// Returns the place of a link for people, as "node 3: GPU 0 to nv_switch".
  std::string name(std::uint32_t number) const;

 private:
  struct NodeLink {
    RouteLink link;
    int from, to;  // devices
  };

  std::uint32_t node_link(int node, int wire) const {
    return static_cast<std::uint32_t>(node) * static_cast<std::uint32_t>(wires_.size()) +
           static_cast<std::uint32_t>(wire);
  }
  std::uint32_t leaf_of(int node, int port) const {
    return static_cast<std::uint32_t>(node / nodes_per_leaf_ * rails_ + port % rails_);
  }
  void merge_wires(const Graph& node);
  void find_paths(const Graph& node);
  void choose_ports(const std::vector<int>& gpus, const std::vector<int>& ports,
                    const std::vector<std::vector<int>>& to_ports);
  double enters_leaf(std::uint32_t leaf) const;

  int nodes_, rails_, nodes_per_leaf_;
  std::uint32_t leaves_ = 0;
  double oversubscription_, hop_us_;
  int gpus_ = 0;
  std::vector<NodeLink> wires_;               // of one node
  std::vector<std::string> devices_;          // names
  std::vector<std::vector<int>> between_;     // by gpu * gpus + gpu: the wires
  std::vector<int> port_of_;                  // by gpu
  std::vector<std::vector<int>> out_, back_;  // by gpu: the wires to its port, and from it
  std::vector<double> port_gb_per_s_;         // by port
  std::uint32_t first_port_up_ = 0, first_port_down_ = 0, first_leaf_up_ = 0, first_leaf_down_ = 0;
};

}  // namespace tutti
