#include "runtime/membership/locations.h"

#include <algorithm>
#include <cassert>
#include <cstdint>
#include <map>
#include <string_view>

#include <fmt/format.h>

#include <tutti/error.hpp>

#include "common/text.h"
#include "topology/discover.h"
#include "topology/discover_topology.h"
#include "topology/nccl_xml.h"
#include "topology/search/gpu_order.h"
#include "topology/topology_file.h"

namespace tutti {
namespace {

// A start waits for it: some tenths of a second at most.
constexpr std::int64_t kOrderSteps = std::int64_t{1} << 27;

Graph topology_of(const Config& config) {
  if (!config.topology_file.empty()) return read_topology_file(config.topology_file).node;
  return read_nccl_topology("this machine", discover_topology().xml);
}

// Returns the GPUs of this machine in the order of its best ring; empty if there is none.
std::vector<PlacedGpu> order_of_gpus(const Config& config, Log& log) {
  const Graph graph = topology_of(config);
  try {
    StepBudget budget("the search for the order of the GPUs", kOrderSteps);
    return order_gpus(graph, budget);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::unavailable) throw;
    log.write(LogLevel::info, "rings follow the numbers of the ranks: {}", error.what());
    return {};
  }
}

int place_in(const std::vector<PlacedGpu>& order, const GpuDevice& gpu, Log& log) {
  if (order.empty()) return 0;
  const auto found = std::find_if(order.begin(), order.end(),
                                  [&](const PlacedGpu& each) { return each.bus == gpu.bus(); });
  if (found == order.end()) {
    log.write(LogLevel::info, "GPU {} ({}) is not in the topology, so rings do not know its links",
              gpu.ordinal(), gpu.bus());
    return 0;
  }
  log.write(LogLevel::debug, "GPU {} ({}) has place {} of {} in the ring of its machine",
            gpu.ordinal(), gpu.bus(), found->place, order.size());
  return found->place;
}

// Returns the number of each rank's machine, indexed by rank; machines are numbered in the order of
// their first ranks. Empty if there is only one machine.
std::vector<int> machines_of(const Texts& column, const std::vector<Location>& locations) {
  std::map<std::string_view, int> numbers;
  for (const Location& location : locations)
    numbers.emplace(location.host, static_cast<int>(numbers.size()));
  std::vector<int> machines;
  if (numbers.size() == 1) return machines;
  machines.reserve(column.size());
  for (const Texts::Run& run : column.runs())
    machines.resize(run.end, numbers.at(locations[run.value].host));
  assert(machines.size() == column.size());
  return machines;
}

// Returns the place of each rank, indexed by rank. Empty if no two ranks of one machine differ.
std::vector<int> places_of(const Texts& column, const std::vector<Location>& locations) {
  std::map<std::string_view, int> first;  // the place of a machine's first rank
  bool differ = false;
  std::vector<int> places;
  for (const Texts::Run& run : column.runs()) {
    const Location& location = locations[run.value];
    const int of_first = first.emplace(location.host, location.place).first->second;
    differ = differ || of_first != location.place;
    places.resize(run.end, location.place);
  }
  return differ ? places : std::vector<int>();
}

void share_cores(CommunicatorParts& parts, const Texts& column,
                 const std::vector<Location>& locations) {
  struct Machine {
    int ranks = 0;
    Cpus cpus;
    int cores() const { return std::max(1, static_cast<int>(cpus.size())); }
  };
  std::map<std::string_view, Machine> machines;
  for (const Location& location : locations) {
    Cpus& all = machines[machine_of(location.host)].cpus;
    all = unite(all, location.cpus);
  }
  std::uint32_t first = 0;
  const Machine* own = nullptr;
  for (const Texts::Run& run : column.runs()) {
    Machine& machine = machines[machine_of(locations[run.value].host)];
    machine.ranks += static_cast<int>(run.end - first);
    if (own == nullptr && static_cast<std::uint32_t>(parts.rank) < run.end) own = &machine;
    first = run.end;
  }
  assert(own != nullptr && own->ranks >= 1);
  parts.shared->ranks = own->ranks;
  parts.shared->cores = own->cores();
  int cores = 0;
  for (const auto& [name, machine] : machines) cores += machine.cores();
  // There may be more hosts than machines, since emulated hosts share the cores of one machine.
  const int hosts = parts.machines.empty()
                        ? 1
                        : 1 + *std::max_element(parts.machines.begin(), parts.machines.end());
  parts.cores = std::max(1, cores / hosts);
}

}  // namespace

Location own_location(const CommunicatorParts& parts) {
  const Config& config = parts.runtime->config();
  Log& log = parts.runtime->log();
  const Cpus cpus = affinity();
  const int place = parts.gpu != nullptr ? place_in(order_of_gpus(config, log), *parts.gpu, log)
                                         : package_of(cpus).value_or(0);
  return {host_identity(), cpus, place};
}

void place_threads(std::vector<CommunicatorParts>& all) {
  if (all.front().gpu == nullptr) return;
  Log& log = all.front().runtime->log();
  const std::vector<PlacedGpu> order = order_of_gpus(all.front().runtime->config(), log);
  if (order.empty()) return;
  std::vector<int> places;
  for (const CommunicatorParts& parts : all) places.push_back(place_in(order, *parts.gpu, log));
  for (CommunicatorParts& parts : all) parts.places = places;
}

std::vector<Location> locations_of(const Texts& column) {
  std::vector<Location> locations;
  for (const std::string& text : column.values()) {
    auto location = parse_location(text);
    if (!location)
      throw Error(ErrorKind::corrupt,
                  fmt::format("a rank says that it runs at {}, which cannot be read: is it running "
                              "the same build of tutti?",
                              shown(text)));
    locations.push_back(*std::move(location));
  }
  return locations;
}

void spread(CommunicatorParts& parts, std::vector<int> machines) {
  assert(machines.size() == static_cast<std::size_t>(parts.size));
  std::map<int, int> numbers;
  for (int& machine : machines)
    machine = numbers.try_emplace(machine, static_cast<int>(numbers.size())).first->second;
  parts.spread = spread_over(machines);
  parts.machines = std::move(machines);
  if (parts.groups.empty()) parts.groups = parts.machines;
}

void take_locations(CommunicatorParts& parts, const Texts& column,
                    const std::vector<Location>& locations) {
  if (std::vector<int> machines = machines_of(column, locations); !machines.empty())
    spread(parts, std::move(machines));
  parts.places = places_of(column, locations);
  share_cores(parts, column, locations);
}

}  // namespace tutti
