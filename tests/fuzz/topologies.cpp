// Feeds the readers of files that describe machines and fabrics: a file is refused with `usage`, or
// it becomes a sound graph.
#include <cassert>

#include <tutti/error.hpp>

#include "targets.h"
#include "topology/fabric.h"
#include "topology/nccl_xml.h"

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

}  // namespace

void run_topologies(std::string_view bytes) {
  try {
    const Graph graph = read_nccl_topology("fuzzed", std::string(bytes));
    assert(graph.is_sound());
    assert(read_nccl_topology("again", write_nccl_topology(graph)) == graph);
    assert(!to_text(graph).empty() && !to_json(graph).empty() && !to_dot(graph).empty());
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
