#include "runtime/membership/locations.h"

#include <algorithm>
#include <cassert>
#include <cstdint>
#include <iterator>
#include <map>
#include <string_view>

#include <fmt/format.h>

#include <tutti/error.hpp>

#include "common/text.h"
#include "topology/discover.h"
#include "topology/discover_topology.h"
#include "topology/nccl_xml.h"
#include "topology/pci_bus.h"
#include "topology/search/gpu_order.h"
#include "topology/topology_file.h"

namespace tutti {
namespace {

// A start waits for it: some tenths of a second at most.
constexpr std::int64_t kOrderSteps = std::int64_t{1} << 27;

// Returns the topology of this machine. A file that is named must be right; where what the machine
// says of itself is not, that is `unavailable`.
Graph topology_of(const Config& config) {
  const bool named = !config.topology_file.empty();
  try {
    return named ? read_topology_file(config.topology_file).node
                 : read_nccl_topology("this machine", discover_topology().xml);
  } catch (const Error& error) {
    if (named)
      throw Error(error.kind(),
                  fmt::format("TUTTI_TOPOLOGY_FILE (Config::topology_file): {}", error.what()));
    throw Error(ErrorKind::unavailable, error.what());
  }
}

// Returns the GPUs of this machine in the order of its best ring; empty if there is none.
std::vector<std::string> order_of_gpus(const Config& config, Log& log) {
  std::string why = "no order of its GPUs is better than another one";
  try {
    StepBudget budget("the search for the order of the GPUs", kOrderSteps);
    std::vector<std::string> order = order_gpus(topology_of(config), budget);
    if (!order.empty()) return order;
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::unavailable) throw;
    why = error.what();
  }
  log.write(LogLevel::debug, "rings follow the numbers of the ranks of this machine: {}", why);
  return {};
}

// A GPU that is not in the topology comes behind the others.
int place_in(const std::vector<std::string>& order, const GpuDevice& gpu, const Config& config,
             Log& log) {
  if (order.empty()) return 0;
  const auto found = std::find_if(order.begin(), order.end(), [&](const std::string& bus) {
    return pci_number(bus) == pci_number(gpu.bus());
  });
  const auto place = static_cast<int>(found - order.begin());
  if (found != order.end())
    log.write(LogLevel::debug, "GPU {} ({}) has place {} of {} in the ring of its machine",
              gpu.ordinal(), gpu.bus(), place, order.size());
  else
    log.write(config.topology_file.empty() ? LogLevel::info : LogLevel::warn,
              "GPU {} ({}) is not in the topology{}, so rings do not know its links", gpu.ordinal(),
              gpu.bus(),
              config.topology_file.empty()
                  ? ""
                  : fmt::format(" of TUTTI_TOPOLOGY_FILE={}", shown(config.topology_file)));
  return place;
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
  std::map<std::string_view, int> first;  // the place of one of a machine's ranks
  const bool differ =
      std::any_of(locations.begin(), locations.end(), [&](const Location& location) {
        return first.emplace(location.host, location.place).first->second != location.place;
      });
  std::vector<int> places;
  if (!differ) return places;
  // A group may have ranks of several machines, whose places then lie apart.
  std::map<std::pair<int, int>, int> numbers;  // by machine and place
  const auto machine = [&](const Location& location) {
    return static_cast<int>(std::distance(first.begin(), first.find(location.host)));
  };
  for (const Location& location : locations) numbers[{machine(location), location.place}] = 0;
  int next = 0;
  for (auto& [where, number] : numbers) number = next++;
  places.reserve(column.size());
  for (const Texts::Run& run : column.runs()) {
    const Location& location = locations[run.value];
    places.resize(run.end, numbers.at({machine(location), location.place}));
  }
  assert(places.size() == column.size());
  return places;
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
  parts.machine_ranks = own->ranks;
  parts.machine_cores = own->cores();
  int cores = 0;
  for (const auto& [name, machine] : machines) cores += machine.cores();
  // There may be more hosts than machines, since emulated hosts share the cores of one machine.
  const int hosts = parts.machines.empty()
                        ? 1
                        : 1 + *std::max_element(parts.machines.begin(), parts.machines.end());
  parts.cores = std::max(1, cores / hosts);
}

}  // namespace

Location own_location(CommunicatorParts& parts) {
  const Config& config = parts.runtime->config();
  Log& log = parts.runtime->log();
  Location location{host_identity(), affinity()};
  if (parts.own_place) {
    location.place = *parts.own_place;
  } else if (parts.gpu != nullptr) {
    location.place = place_in(order_of_gpus(config, log), *parts.gpu, config, log);
  } else if (const auto package = package_of(location.cpus)) {
    location.place = *package;
    log.write(LogLevel::debug, "rank {} is bound to package {}", parts.rank, *package);
  }
  parts.own_place = location.place;
  return location;
}

void place_threads(std::vector<CommunicatorParts>& all) {
  if (all.front().gpu == nullptr) return;
  const Config& config = all.front().runtime->config();
  Log& log = all.front().runtime->log();
  const std::vector<std::string> order = order_of_gpus(config, log);
  if (order.empty()) return;
  std::vector<int> places;
  for (const CommunicatorParts& parts : all)
    places.push_back(place_in(order, *parts.gpu, config, log));
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
