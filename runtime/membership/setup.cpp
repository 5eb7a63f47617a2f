#include "runtime/membership/setup.h"

#include <unistd.h>

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <limits>
#include <map>
#include <system_error>

#include <fmt/format.h>

#include "collectives/algorithms/algorithms.h"
#include "collectives/planning/select.h"
#include "collectives/planning/tuning_file.h"
#include "common/config.h"
#include "common/secret.h"
#include "common/text.h"
#include "rendezvous/agreement.h"
#include "rendezvous/host.h"
#include "rendezvous/launch/launch_environment.h"
#include "rendezvous/store/open_store.h"
#include "topology/caches.h"
#include "topology/discover.h"
#include "topology/placement.h"
#include "transport/local/local.h"
#include "transport/registry.h"
#include "transport/routed.h"

namespace tutti {
namespace {

// Of a channel of a process's first communicators.
std::size_t first_ring_bytes(const Config& config, int ranks) {
  return config.ring_bytes != 0 ? config.ring_bytes : default_ring_bytes(ranks);
}

// Of a process's many communicators all but the first get this: 13 % slower at 1 and at 16 MiB, and
// a thousand of them fit in the memory of seventy.
constexpr int kLargeRingCommunicators = 8;
constexpr std::size_t kSmallRingBytes = 24u << 10;

// A schedule's widest step is at most a chunk of each rank, of a line at least.
std::size_t least_ring_bytes(int ranks) {
  return SendRing::least_data_bytes(static_cast<std::size_t>(ranks) * kCacheLine);
}

std::size_t message_bytes_in(std::size_t ring_bytes, const Config& config) {
  const std::size_t most = SendRing::max_message_bytes(ring_bytes);
  return config.message_bytes != 0 ? std::min(most, config.message_bytes) : most;
}

// Where the configuration asks for it: the calling thread, and with it those that it starts from
// now on, the background thread first.
void bind_rank(int rank, int size, const Config& config) {
  if (config.bind == "none") return;
  Log log(config.log_level, config.log_sink);
  const Machine machine = discover();
  const Placement placement = place(machine, size, config.bind);
  if (placement.ranks.empty())
    return log.write(LogLevel::info, "rank {} is not bound: {}", rank, placement.reason);
  const Cpus& cpus = placement.ranks[static_cast<std::size_t>(rank)];
  check_usable(machine, cpus, rank);
  if (!bind_thread(cpus))
    throw Error(ErrorKind::unavailable,
                fmt::format("rank {} cannot be bound to cpus {}: {}; set TUTTI_BIND=none", rank,
                            to_text(cpus), std::strerror(errno)));
  log.write(LogLevel::info, "rank {} is bound to cpus {}", rank, to_text(cpus));
}

class PhaseTimer {
 public:
  explicit PhaseTimer(const Clock& clock) : clock_(clock), since_(clock.now()) {}
  void end(std::vector<StartupPhase>& phases, std::string name) {
    const TimePoint now = clock_.now();
    phases.push_back({std::move(name), now - since_});
    since_ = now;
  }

 private:
  const Clock& clock_;
  TimePoint since_;
};

// Before anything is made of them.
void check_settings(const Config& config) {
  check_config(config);
  if (config.algorithm.empty() || config.algorithm == "auto") return;
  try {
    algorithm_index(config.algorithm);
  } catch (const Error& error) {
    throw Error(error.kind(), fmt::format("TUTTI_ALGORITHM (Config::algorithm): {}", error.what()));
  }
}

void check_ranks(int rank, int size) {
  if (size < 1 || size > kMaxRanks)
    throw Error(ErrorKind::usage,
                fmt::format("a communicator of {} ranks; there can be 1 to {}", size, kMaxRanks));
  if (rank < 0 || rank >= size)
    throw Error(ErrorKind::usage,
                fmt::format("rank {} of {}; ranks are 0 to {}", rank, size, size - 1));
}

TransportContext context(const CommunicatorParts& parts, const Secret& secret) {
  const Config& config = parts.runtime->config();
  TransportContext result;
  result.rank = parts.rank;
  result.size = parts.size;
  result.clock = &parts.runtime->clock();
  result.random = &parts.runtime->random();
  result.log = &parts.runtime->log();
  result.data_bytes = config.ring_bytes != 0
                          ? config.ring_bytes
                          : std::max(parts.shared->ring_bytes, least_ring_bytes(parts.size));
  result.max_message_bytes = message_bytes_in(result.data_bytes, config);
  result.doorbell = parts.shared->doorbell;
  result.secret = secret;
  result.config = &config;
  return result;
}

CommunicatorParts parts_of(const Process& process, int rank, int size) {
  CommunicatorParts parts;
  parts.runtime = process.runtime;
  parts.shared = std::make_shared<SharedEndpoint>();
  parts.shared->ranks = size;
  parts.rank = rank;
  parts.size = size;
  const int group_size = parts.runtime->config().group_size;
  for (int peer = 0; group_size > 0 && peer < size; ++peer)
    parts.groups.push_back(peer / group_size);
  return parts;
}

// Of everything that makes two ranks' schedules fit: the names in the list, in order.
std::uint64_t schedule_table_hash() {
  std::uint64_t hash = 0;
  for (const Algorithm& algorithm : algorithms())
    for (const char letter : algorithm.name) hash = mix(hash ^ static_cast<unsigned char>(letter));
  return hash;
}

/// What a rank says of itself: a text each.
enum Said : std::size_t { kSettings, kCosts, kRing, kLocation, kAddress };

// Each rank sizes its rings by its own caches and cores; the smallest size is what all ranks can
// use.
std::size_t least_ring(const Texts& column) {
  std::size_t least = std::numeric_limits<std::size_t>::max();
  for (const std::string& text : column.values()) {
    const auto bytes = parse_number<std::size_t>(text);
    if (!bytes || *bytes % kCacheLine != 0 || *bytes < SendRing::least_data_bytes(kCacheLine))
      throw Error(ErrorKind::corrupt,
                  fmt::format("a rank says that its rings have {} bytes, which cannot be: is it "
                              "running the same build of tutti?",
                              shown(text)));
    least = std::min(least, *bytes);
  }
  return least;
}

// By value of the column.
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

// By rank, the number of its machine; machines are numbered as they first come. None: there is one.
std::vector<int> machines_of(const Texts& column, const std::vector<Location>& locations) {
  std::map<std::string_view, int> numbers;
  for (const Location& location : locations)
    numbers.emplace(location.host, static_cast<int>(numbers.size()));
  std::vector<int> machines;
  if (numbers.size() == 1) return machines;
  machines.reserve(column.size());
  for (const Texts::Run& run : column.runs())
    machines.resize(run.end, numbers.at(locations[run.value].host));
  return machines;
}

// Over several machines, which are numbered as they first come.
void spread(CommunicatorParts& parts, std::vector<int> machines) {
  std::map<int, int> numbers;
  for (int& machine : machines)
    machine = numbers.try_emplace(machine, static_cast<int>(numbers.size())).first->second;
  parts.spread = spread_over(machines);
  parts.machines = std::move(machines);
  if (parts.groups.empty()) parts.groups = parts.machines;
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
  parts.shared->ranks = own->ranks;
  parts.shared->cores = own->cores();
  int cores = 0;
  for (const auto& [name, machine] : machines) cores += machine.cores();
  const int hosts =  // more than machines in a box, whose hosts share its cores
      parts.machines.empty() ? 1
                             : 1 + *std::max_element(parts.machines.begin(), parts.machines.end());
  parts.cores = std::max(1, cores / hosts);
}

constexpr std::string_view kRefused =
    "refused: ";  // before what is wrong with it, in place of costs

// A tuning file that the configuration names is right, or an error; one that is merely there is
// used where it is right.
MachineCosts machine_costs(const Config& config, Log& log) {
  if (config.tuning_file == "none") return {};
  const bool named = config.tuning_file != "auto";
  const auto path = named ? std::filesystem::path(config.tuning_file)
                          : default_tuning_file(process_environment());
  if (!named && path.empty()) return {};
  std::error_code hidden;  // Set where the folder cannot be read; then there is no tuning file.
  if (!named && !std::filesystem::exists(path, hidden)) {
    if (hidden)
      log.write(LogLevel::info, "the built-in costs are used: {}: {}", path.string(),
                hidden.message());
    return {};
  }
  try {
    return read_tuning_file(path, this_machine());
  } catch (const Error& error) {
    if (named) throw;
    log.write(LogLevel::warn, "the built-in costs are used: {}", error.what());
    return {};
  }
}

// What is wrong with rank 0's file every rank says, rather than wait for rank 0.
std::string costs_for_all(const Config& config, Log& log) {
  try {
    return to_text(machine_costs(config, log));
  } catch (const Error& error) {
    return std::string(kRefused) + error.what();
  }
}

// As rank 0 says.
std::shared_ptr<PriceList> prices_of(const std::string& costs) {
  if (costs.starts_with(kRefused))
    throw Error(ErrorKind::usage, "rank 0: " + costs.substr(kRefused.size()));
  const auto parsed = parse_costs(costs);
  if (!parsed)
    throw Error(ErrorKind::corrupt,
                "rank 0 sent costs of its machine that cannot be read: is it running the same "
                "build of tutti?");
  return std::make_shared<PriceList>(*parsed);
}

// Each communicator made over one store has a number, counted by every rank alike.
std::string next_prefix(Store& store, int rank, Store::Deadline deadline) {
  return fmt::format("tutti/{}", store.add(fmt::format("tutti/made/{}", rank), 1, deadline));
}

// By rank; none where nobody has one.
std::vector<std::string> addresses_of(const Texts& column) {
  std::vector<std::string> addresses;
  if (column.values().size() == 1 && column[0].empty()) return addresses;
  addresses.reserve(column.size());
  for (const Texts::Run& run : column.runs()) addresses.resize(run.end, column.values()[run.value]);
  return addresses;
}

// Ranks are on several machines, and the transport that was made joins those of one: another takes
// its place, for each machine's ranks, and one that reaches the others stands beside it. All ranks
// come to this by what all have said.
std::unique_ptr<Transport> connect_machines(CommunicatorParts& parts,
                                            const std::vector<int>& machines,
                                            Store::Deadline deadline) {
  const Config& config = parts.runtime->config();
  const std::string near_name(parts.transport->name());
  const std::string far_name(across_machines(config.transports));
  const int machine = machines[static_cast<std::size_t>(parts.rank)];
  if (far_name.empty())
    throw Error(ErrorKind::unavailable,
                fmt::format("rank {}: some ranks are on other machines (or in other network "
                            "namespaces), which the transport {} does not reach; add tcp to "
                            "TUTTI_TRANSPORTS, or leave it out",
                            parts.rank, near_name));
  std::vector<int> near_rank;
  TransportContext near_context = context(parts, parts.secret);
  near_context.size = 0;
  for (int rank = 0; rank < parts.size; ++rank) {
    const bool is_near = machines[static_cast<std::size_t>(rank)] == machine;
    if (rank == parts.rank) near_context.rank = near_context.size;
    near_rank.push_back(is_near ? near_context.size++ : -1);
  }
  parts.transport.reset();
  auto near = make_transport(near_name, near_context);
  TransportContext far_context = context(parts, parts.secret);
  far_context.status_page = &near->own_status_page();
  auto far = make_transport(far_name, far_context);

  const std::vector<Texts> said = exchange(*parts.store, parts.name + "/machines", parts.rank,
                                           parts.size, {near->address(), far->address()}, deadline);
  const std::vector<std::string> all_near = addresses_of(said[0]);
  std::vector<std::string> near_addresses, far_addresses = addresses_of(said[1]);
  for (int rank = 0; rank < parts.size; ++rank) {
    const auto index = static_cast<std::size_t>(rank);
    if (near_rank[index] < 0) continue;
    near_addresses.push_back(all_near[index]);
    if (rank != parts.rank) far_addresses[index].clear();
  }
  near->connect(near_addresses, deadline);
  far->connect(far_addresses, deadline);
  return route(std::move(near), std::move(far), std::move(near_rank), parts.rank);
}

// Ranks that have made their transports for larger rings than agreed make them again; then all
// ranks exchange their addresses once more.
std::vector<std::string> meet_again(CommunicatorParts& parts, std::size_t made_bytes,
                                    Store::Deadline deadline) {
  const TransportContext agreed = context(parts, parts.secret);
  if (agreed.data_bytes != made_bytes) {
    const std::string name(parts.transport->name());
    parts.transport.reset();
    parts.transport = make_transport(name, agreed);
  }
  return addresses_of(exchange(*parts.store, parts.name + "/rings", parts.rank, parts.size,
                               {parts.transport->address()}, deadline)[0]);
}

// As the columns of Said.
std::vector<std::string> introduction(const CommunicatorParts& parts) {
  const Config& config = parts.runtime->config();
  const Transport& transport = *parts.transport;
  return {fmt::format("tutti's version={}\nthe table of algorithms={:016x}\n{}transport={}\n",
                      version(), schedule_table_hash(), agree_text(config), transport.name()),
          parts.rank == 0 ? costs_for_all(config, parts.runtime->log()) : "",
          fmt::format("{}", parts.shared->ring_bytes),
          to_text(Location{host_identity(), affinity()}), transport.address()};
}

// `name`: the communicator's in the store; empty: the next.
CommunicatorParts join_named(std::shared_ptr<Store> store, std::string name, int rank, int size,
                             const Process& process, const Secret& secret, TimePoint deadline) {
  CommunicatorParts parts = parts_of(process, rank, size);
  const Config& config = parts.runtime->config();
  PhaseTimer timer(parts.runtime->clock());
  parts.store = std::move(store);
  parts.secret = secret;
  parts.shared->ring_bytes = first_ring_bytes(config, size);
  TransportContext own_context = context(parts, secret);
  own_context.hub = process.hub;
  parts.transport = make_transport(config.transports, own_context);
  timer.end(parts.startup, "transport");

  parts.name = name.empty() ? next_prefix(*parts.store, rank, deadline) : std::move(name);
  const std::vector<Texts> said =
      exchange(*parts.store, parts.name, rank, size, introduction(parts), deadline);
  check_agreement(said[kSettings], rank);
  parts.shared->ring_bytes = least_ring(said[kRing]);
  timer.end(parts.startup, "rendezvous");

  const std::vector<Location> locations = locations_of(said[kLocation]);
  std::vector<int> machines = machines_of(said[kLocation], locations);
  const bool across = !machines.empty();
  if (across && across_machines(parts.transport->name()) != parts.transport->name()) {
    parts.transport = connect_machines(parts, machines, deadline);
  } else {
    std::vector<std::string> addresses = addresses_of(said[kAddress]);
    if (said[kRing].values().size() > 1)  // Never among threads, which see the same machine.
      addresses = meet_again(parts, own_context.data_bytes, deadline);
    parts.transport->connect(addresses, deadline);
  }
  if (across) spread(parts, std::move(machines));
  share_cores(parts, said[kLocation], locations);
  parts.prices = prices_of(said[kCosts][0]);
  timer.end(parts.startup, "connect");
  return parts;
}

TimePoint startup_deadline(const Runtime& runtime) {
  return runtime.clock().now() + runtime.config().startup_timeout;
}

}  // namespace

CommunicatorParts join_store(std::shared_ptr<Store> store, int rank, int size, const Config& config,
                             const Secret& secret) {
  check_ranks(rank, size);
  check_settings(config);
  if (store == nullptr)
    throw Error(ErrorKind::usage, "a communicator needs a store; this one is null");
  bind_rank(rank, size, config);
  const Process own{std::make_shared<Runtime>(config), nullptr};
  return join_named(std::move(store), {}, rank, size, own, secret, startup_deadline(*own.runtime));
}

CommunicatorParts join_threads(std::shared_ptr<Store> store, int rank, const Process& process) {
  check_ranks(rank, process.hub->size());
  return join_named(std::move(store), {}, rank, process.hub->size(), process, {},
                    startup_deadline(*process.runtime));
}

CommunicatorParts join_survivors(const CommunicatorParts& whole, const std::vector<int>& members,
                                 std::string name, std::shared_ptr<Store> store,
                                 TimePoint deadline) {
  const auto own = std::find(members.begin(), members.end(), whole.rank);
  assert(own != members.end());
  const Process process{std::make_shared<Runtime>(whole.runtime->config()), nullptr};
  CommunicatorParts parts =
      join_named(std::move(store), std::move(name), static_cast<int>(own - members.begin()),
                 static_cast<int>(members.size()), process, whole.secret,
                 std::min(deadline, startup_deadline(*process.runtime)));
  parts.store = whole.store;
  return parts;
}

CommunicatorParts join_environment(const Config& config) {
  check_settings(config);
  const auto start = std::chrono::steady_clock::now();
  const TimePoint deadline = start + config.startup_timeout;
  const LaunchEnvironment launch = find_launch(process_environment(), config.store, deadline);
  Log log(config.log_level, config.log_sink);
  OpenedStore opened = open_store(launch, config, deadline, log);
  const auto joined = std::chrono::steady_clock::now();
  CommunicatorParts parts =
      join_store(std::move(opened.store), launch.rank, launch.size, config, opened.secret);
  parts.startup.insert(parts.startup.begin(), {"store", joined - start});
  return parts;
}

std::size_t ring_bytes_for_one_more(const CommunicatorParts& whole) {
  const bool large = whole.runtime->config().ring_bytes != 0 ||
                     whole.shared->communicators < kLargeRingCommunicators;
  return large ? whole.shared->ring_bytes : kSmallRingBytes;
}

CommunicatorParts join_subset(const CommunicatorParts& whole, Subset subset,
                              std::size_t ring_bytes) {
  const Runtime& runtime = *whole.runtime;
  PhaseTimer timer(runtime.clock());
  CommunicatorParts parts;
  parts.runtime = whole.runtime;
  parts.store = whole.store;
  parts.shared = whole.shared;
  parts.rank = subset.rank;
  parts.size = static_cast<int>(subset.members.size());
  parts.cores = whole.cores;
  parts.prices = whole.prices;
  const auto of_members = [&](const std::vector<int>& all) {
    std::vector<int> own;
    for (const int member : subset.members)
      if (!all.empty()) own.push_back(all[static_cast<std::size_t>(member)]);
    return own;
  };
  parts.groups = of_members(whole.groups);
  if (!whole.machines.empty()) spread(parts, of_members(whole.machines));
  subset.data_bytes = std::max(ring_bytes, least_ring_bytes(parts.size));
  subset.max_message_bytes = message_bytes_in(subset.data_bytes, runtime.config());
  parts.transport = whole.transport->split(subset);
  if (parts.transport == nullptr)
    throw Error(ErrorKind::unavailable,
                fmt::format("the transport {} cannot serve a communicator split off another one",
                            whole.transport->name()));
  parts.transport->connect({}, runtime.clock().now() + runtime.config().startup_timeout);
  timer.end(parts.startup, "split");
  return parts;
}

std::vector<CommunicatorParts> join_in_process(int size, const Config& config) {
  check_ranks(0, size);
  check_settings(config);
  const Process process{std::make_shared<Runtime>(config), std::make_shared<local::Hub>(size)};
  Runtime& runtime = *process.runtime;
  const int cores = static_cast<int>(affinity().size());
  const std::size_t ring_bytes = first_ring_bytes(config, size);
  const auto prices = std::make_shared<PriceList>(machine_costs(config, runtime.log()));
  std::vector<CommunicatorParts> all;
  for (int rank = 0; rank < size; ++rank) {
    CommunicatorParts parts = parts_of(process, rank, size);
    parts.shared->ring_bytes = ring_bytes;
    TransportContext with_hub = context(parts, {});
    with_hub.hub = process.hub;
    parts.transport = make_transport("local", with_hub);
    parts.cores = parts.shared->cores = cores;
    parts.prices = prices;
    all.push_back(std::move(parts));
  }
  PhaseTimer timer(runtime.clock());
  for (CommunicatorParts& parts : all) {
    parts.transport->connect({}, runtime.clock().now() + config.startup_timeout);
    timer.end(parts.startup, "connect");
  }
  return all;
}

}  // namespace tutti
