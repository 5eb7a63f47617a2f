// Feeds the readers of files that describe machines and fabrics: a file is refused with `usage`, or
// it becomes a sound graph, in which rings and trees are found that load no link beyond its
// bandwidth, or there are none within the bound of steps.
#include <algorithm>
#include <cassert>
#include <numeric>

#include <tutti/error.hpp>

#include "targets.h"
#include "topology/fabric.h"
#include "topology/nccl_xml.h"
#include "topology/search/forest.h"
#include "topology/search/gpu_order.h"
#include "topology/search/rings.h"

namespace tutti::fuzz {
namespace {

constexpr const char* kNode = R"(<system version="1"><cpu numaid="0" arch="x86_64">
<pci busid="1" class="0x060400" link_speed="8 GT/s" link_width="16">
<pci busid="2"><gpu dev="0" sm="80"><nvlink target="3" count="2" tclass="0x030200"/></gpu></pci>
<pci busid="3"><gpu dev="1" sm="80"><nvlink target="2" count="2"/><nvlink target="9" tclass="0x068000"/></gpu></pci>
<pci busid="4"><nic><net name="a" dev="0" speed="200000" latency="1"/></nic></pci>
</pci></cpu><cpu numaid="1"><nic><net/></nic>
<pci busid="5" class="0x120000"><gpu gcn="gfx942"><xgmi target="2" count="1" tclass="0x120000"/><c2c bw="9"/></gpu></pci>
</cpu></system>)";

Graph node() { return read_nccl_topology("node", kNode); }

constexpr std::int64_t kFuzzedSteps = 1 << 20;

/// Checks what links carry.
class Loads {
 public:
  explicit Loads(const Paths& paths) : paths_(paths), loads_(paths.links().size()) {}

  void add(int from, int to, double gb_per_s) {
    assert(from == to || paths_.between(from, to).kind != PathKind::none);
    for (const int link : paths_.between(from, to).links)
      loads_[static_cast<std::size_t>(link)] += gb_per_s;
  }
  bool fit() const {
    for (std::size_t link = 0; link < loads_.size(); ++link)
      if (loads_[link] > paths_.links()[link].gb_per_s * (1 + 1e-9) + 1e-3) return false;
    return true;
  }

 private:
  const Paths& paths_;
  std::vector<double> loads_;
};

void search_rings(const Paths& paths, const RingRequest& request) {
  StepBudget budget("the search for rings", kFuzzedSteps);
  const RingPlan plan = find_rings(paths, request, budget);
  Loads loads(paths);
  for (const Ring& ring : plan.rings) {
    for (std::size_t at = 0; at + 1 < ring.gpus.size(); ++at)
      loads.add(ring.gpus[at], ring.gpus[at + 1], ring.gb_per_s);
    const int port = paths.gpus() + ring.port;
    loads.add(ring.gpus.back(), ring.port < 0 ? ring.gpus.front() : port, ring.gb_per_s);
    if (ring.port >= 0) loads.add(port, ring.gpus.front(), ring.gb_per_s);
  }
  assert(loads.fit() && plan.gb_per_s <= plan.bound_gb_per_s * (1 + 1e-9) + 1e-3);
}

void search_trees(const Paths& paths) {
  std::vector<int> roots(static_cast<std::size_t>(std::max(1, paths.gpus())));
  std::iota(roots.begin(), roots.end(), 0);
  StepBudget budget("the search for trees", kFuzzedSteps);
  const Forest forest = pack_forest(paths, roots, 2, TreeUse::down, budget);
  Loads loads(paths);
  for (const SpanningTree& tree : forest.trees)
    for (const auto& edge : tree.edges)
      loads.add(edge.from, edge.to, forest.gb_per_s / forest.trees_of_root);
  assert(loads.fit() && forest.gb_per_s <= forest.bound_gb_per_s * (1 + 1e-9) + 1e-3);
}

template <typename Search>
void bounded(Search search) {
  try {
    search();
  } catch (const Error& error) {
    assert(error.kind() == ErrorKind::unavailable);
  }
}

void plan(const Graph& graph) {
  bounded([&] {
    const Paths paths(graph);
    bounded([&] { search_rings(paths, {}); });
    Fabric fabric;
    fabric.node = graph;
    fabric.nodes = fabric.nodes_per_leaf = 2;
    fabric.rails = std::max(1, paths.ports());
    if (paths.ports() > 0) bounded([&] { search_rings(paths, ring_request(fabric)); });
    bounded([&] { search_trees(paths); });
    bounded([&] {
      StepBudget budget("the search for an order", kFuzzedSteps);
      const std::vector<std::string> order = order_gpus(graph, budget);
      assert(order.empty() || order.size() == graph.all(DeviceKind::gpu).size());
    });
  });
}

}  // namespace

void run_topologies(std::string_view bytes) {
  try {
    const Graph graph = read_nccl_topology("fuzzed", std::string(bytes));
    assert(graph.is_sound());
    assert(read_nccl_topology("again", write_nccl_topology(graph)) == graph);
    assert(!to_text(graph).empty() && !to_json(graph).empty() && !to_dot(graph).empty());
    plan(graph);
  } catch (const Error& error) {
    assert(error.kind() == ErrorKind::usage);
  }
}

std::vector<std::string> topology_seeds() { return {kNode}; }

void run_fabrics(std::string_view bytes) {
  try {
    const Fabric fabric =
        read_fabric("fuzzed", std::string(bytes), [](const std::string&) { return node(); });
    if (fabric.nodes <= 64 && fabric.spines <= 64) assert(expand(fabric).is_sound());
  } catch (const Error& error) {
    assert(error.kind() == ErrorKind::usage);
  }
}

std::vector<std::string> fabric_seeds() {
  return {R"({"nodes": 2, "topology": "n", "rails": 2, "nodes_per_leaf": 1, "spines": 1,
            "oversubscription": 2.5, "hop_us": 0.5})"};
}

}  // namespace tutti::fuzz
