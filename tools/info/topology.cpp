#include "info/topology.h"

#include <fmt/format.h>

#include <utility>
#include <vector>

#include "topology/caches.h"
#include "topology/discover.h"
#include "topology/discover_gpus.h"
#include "topology/discover_nics.h"
#include "topology/print.h"
#include "topology/print_gpus.h"

namespace tutti::tools {
namespace {

using nlohmann::ordered_json;

/// Returns the cpus to which each rank would be bound, or all allowed cpus if ranks are not bound.
std::vector<Cpus> cpus_of_ranks(const TopologyReport& report) {
  if (!report.placement.ranks.empty()) return report.placement.ranks;
  return std::vector<Cpus>(static_cast<std::size_t>(report.ranks), report.machine.allowed);
}

std::string limits_text(const CgroupLimits& limits) {
  std::string text;
  const auto add = [&](const std::string& limit) { text += (text.empty() ? "" : ", ") + limit; };
  if (limits.cpus) add("cpus " + to_text(*limits.cpus));
  if (limits.cpu_quota) add(fmt::format("the time of {:.3g} cpus", *limits.cpu_quota));
  if (limits.memory_bytes) add(size_text(*limits.memory_bytes) + " of memory");
  return text.empty() ? "none" : text;
}

ordered_json json_of(const MachineGpus& machine) {
  auto gpus = ordered_json::array(), paths = ordered_json::array();
  const GpuPaths found(machine);
  for (std::size_t a = 0; a < machine.gpus.size(); ++a) {
    const GpuNode& gpu = machine.gpus[a];
    gpus.push_back({{"bus", gpu.bus},
                    {"name", gpu.name},
                    {"uuid", gpu.uuid},
                    {"numa", gpu.numa},
                    {"pci", gpu.pci},
                    {"nvlinks", gpu.nvlinks},
                    {"unreachable", gpu.unreachable},
                    {"sm", gpu.sm},
                    {"gcn", gpu.gcn}});
    auto row = ordered_json::array();
    for (std::size_t b = 0; b < machine.gpus.size(); ++b)
      row.push_back(a == b ? "" : to_string(found.between(a, b)));
    paths.push_back(std::move(row));
  }
  return {{"source", machine.source}, {"gpus", std::move(gpus)}, {"paths", std::move(paths)}};
}

ordered_json json_of(const MachineNics& machine) {
  auto nics = ordered_json::array();
  for (const Nic& nic : machine.nics) {
    auto ports = ordered_json::array();
    for (const NicPort& port : nic.ports)
      ports.push_back({{"name", port.name},
                       {"number", port.number},
                       {"megabits", port.megabits},
                       {"guid", port.guid},
                       {"rdma", port.rdma}});
    nics.push_back(
        {{"bus", nic.bus}, {"numa", nic.numa}, {"pci", nic.pci}, {"ports", std::move(ports)}});
  }
  return {{"source", machine.source}, {"nics", std::move(nics)}};
}

}  // namespace

TopologyReport look(int ranks, const std::string& bind, const std::string& sys) {
  TopologyReport report{discover(), ranks, {}, core_cache_bytes(), 0, {}, {}};
  Machine as_if_here = report.machine;
  as_if_here.described = false;
  report.placement = place(as_if_here, ranks, bind);
  for (std::size_t rank = 0; rank < report.placement.ranks.size(); ++rank)
    check_usable(as_if_here, report.placement.ranks[rank], static_cast<int>(rank));
  report.ring_bytes = default_ring_bytes(ranks);
  GpuSources sources;
  if (!sys.empty()) sources.sys = sys;
  if (!report.machine.described || !sys.empty()) {
    report.gpus = discover_gpus(sources);
    report.nics = discover_nics(PciBus(sources.sys));
  }
  return report;
}

std::string as_text(const TopologyReport& report) {
  const Machine& machine = report.machine;
  std::string text =
      fmt::format("{}\ntold by  {}{}\nallowed  cpus {}\n", to_text(machine), machine.source,
                  machine.described ? ", of another machine" : "", to_text(machine.allowed));
  if (!machine.described)
    text += fmt::format("limits   {}\nrings    {}, by a core's L2 cache of {}\n",
                        limits_text(machine.limits), size_text(report.ring_bytes),
                        report.cache_bytes != 0 ? size_text(report.cache_bytes) : "unknown size");
  if (report.gpus) text += gpus_text(*report.gpus);
  if (report.nics) text += nics_text(*report.nics);
  if (report.ranks == 1) return text;
  text += "\n";
  for (std::size_t rank = 0; rank < report.placement.ranks.size(); ++rank)
    text += fmt::format("rank {:<4}cpus {}\n", rank, to_text(report.placement.ranks[rank]));
  if (report.placement.ranks.empty())
    text += fmt::format("not bound: {}\n", report.placement.reason);
  return text + "\n" + links_text(machine, cpus_of_ranks(report));
}

ordered_json as_json(const TopologyReport& report) {
  const Machine& machine = report.machine;
  auto nodes = ordered_json::array(), ranks = ordered_json::array(), links = ordered_json::array();
  for (const Node& node : machine.nodes)
    nodes.push_back({{"kind", to_string(node.kind)},
                     {"parent", node.parent},
                     {"number", node.number},
                     {"level", node.level},
                     {"bytes", node.bytes},
                     {"cpus", to_text(node.cpus)}});
  for (const Cpus& a : cpus_of_ranks(report)) {
    ranks.push_back(to_text(a));
    auto row = ordered_json::array();
    for (const Cpus& b : cpus_of_ranks(report))
      row.push_back(to_string(link_between(machine, a, b)));
    links.push_back(std::move(row));
  }
  const CgroupLimits& limits = machine.limits;
  const auto or_null = [](const auto& value) { return value ? ordered_json(*value) : nullptr; };
  return {{"source", machine.source},
          {"described", machine.described},
          {"nodes", std::move(nodes)},
          {"allowed", to_text(machine.allowed)},
          {"limits",
           {{"cpus", limits.cpus ? ordered_json(to_text(*limits.cpus)) : nullptr},
            {"cpu_quota", or_null(limits.cpu_quota)},
            {"memory_bytes", or_null(limits.memory_bytes)}}},
          {"cache_bytes", report.cache_bytes},
          {"ring_bytes", report.ring_bytes},
          {"bound", !report.placement.ranks.empty()},
          {"why_not_bound", report.placement.reason},
          {"ranks", std::move(ranks)},
          {"links", std::move(links)},
          {"gpus", report.gpus ? json_of(*report.gpus) : ordered_json(nullptr)},
          {"network", report.nics ? json_of(*report.nics) : ordered_json(nullptr)}};
}

}  // namespace tutti::tools
