#include "runtime/setup.h"

#include <unistd.h>

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <cstring>
#include <map>

#include <fmt/format.h>

#include "collectives/algorithms.h"
#include "collectives/select.h"
#include "common/config.h"
#include "common/secret.h"
#include "rendezvous/agreement.h"
#include "rendezvous/launch_environment.h"
#include "rendezvous/open_store.h"
#include "topology/caches.h"
#include "topology/discover.h"
#include "topology/placement.h"
#include "topology/tuning_file.h"
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
                          : std::max(parts.family->ring_bytes, least_ring_bytes(parts.size));
  result.max_message_bytes = message_bytes_in(result.data_bytes, config);
  result.doorbell_fd = parts.family->doorbell.fd();
  result.membarrier = parts.family->doorbell.membarrier();
  result.secret = secret;
  result.trust_network = config.trust_network;
  result.tls = config.tls;
  result.checksum = config.checksum;
  result.interfaces = config.interfaces;
  return result;
}

CommunicatorParts parts_of(std::shared_ptr<Runtime> runtime, int rank, int size) {
  CommunicatorParts parts;
  parts.runtime = std::move(runtime);
  parts.family = std::make_shared<Family>();
  parts.family->ranks = size;
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

// Of the ranks on the cores of one machine.
int cores_of(const std::vector<Hello>& hellos, std::string_view machine) {
  Cpus all;
  for (const Hello& hello : hellos)
    if (machine_of(hello.host) == machine) all = unite(all, hello.cpus);
  return std::max(1, static_cast<int>(all.size()));
}

// By rank, the number of its machine; machines are numbered as they first come.
std::vector<int> machines_of(const std::vector<Hello>& hellos) {
  std::map<std::string, int> numbers;
  std::vector<int> machines;
  for (const Hello& hello : hellos)
    machines.push_back(numbers.emplace(hello.host, static_cast<int>(numbers.size())).first->second);
  return machines;
}

// Over several machines.
void spread(CommunicatorParts& parts, std::vector<int> machines) {
  parts.spread = spread_over(machines);
  parts.machines = std::move(machines);
  if (parts.groups.empty()) parts.groups = parts.machines;
}

void share_cores(CommunicatorParts& parts, const std::vector<Hello>& hellos) {
  std::map<std::string_view, int> ranks;  // by machine
  for (const Hello& hello : hellos) ++ranks[machine_of(hello.host)];
  const auto own = machine_of(hellos[static_cast<std::size_t>(parts.rank)].host);
  parts.family->ranks = ranks[own];
  parts.family->cores = cores_of(hellos, own);
  parts.cores = 0;
  for (const auto& [machine, count] : ranks) parts.cores += cores_of(hellos, machine);
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
  if (!named && (path.empty() || !std::filesystem::exists(path))) return {};
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

std::shared_ptr<PriceList> prices_of(const Hello& first) {
  if (first.costs.starts_with(kRefused))
    throw Error(ErrorKind::usage, "rank 0: " + first.costs.substr(kRefused.size()));
  const auto costs = parse_costs(first.costs);
  if (!costs)
    throw Error(ErrorKind::corrupt,
                "rank 0 sent costs of its machine that cannot be read: is it running the same "
                "build of tutti?");
  return std::make_shared<PriceList>(*costs);
}

// Each communicator made over one store has a number, counted by every rank alike.
std::string next_prefix(Store& store, int rank, Store::Deadline deadline) {
  return fmt::format("tutti/{}", store.add(fmt::format("tutti/made/{}", rank), 1, deadline));
}

std::vector<std::string> addresses_of(const std::vector<Hello>& hellos,
                                      std::string_view transport) {
  std::vector<std::string> addresses;
  for (const Hello& hello : hellos) addresses.push_back(hello.addresses.at(std::string(transport)));
  return addresses;
}

// Ranks are on several machines, and the transport that was made joins those of one: another takes
// its place, for each machine's ranks, and one that reaches the others stands beside it. All ranks
// come to this from the same hellos.
std::unique_ptr<Transport> connect_machines(CommunicatorParts& parts,
                                            const std::vector<int>& machines, Hello mine,
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
  far_context.board = &near->own_board();
  auto far = make_transport(far_name, far_context);

  mine.addresses = {{near_name, near->address()}, {far_name, far->address()}};
  const std::vector<Hello> hellos = exchange_hellos(*parts.store, parts.name + "/machines",
                                                    parts.rank, parts.size, mine, deadline);
  std::vector<std::string> near_addresses;
  std::vector<std::string> far_addresses = addresses_of(hellos, far_name);
  for (int rank = 0; rank < parts.size; ++rank) {
    const auto index = static_cast<std::size_t>(rank);
    if (near_rank[index] < 0) continue;
    near_addresses.push_back(hellos[index].addresses.at(near_name));
    if (rank != parts.rank) far_addresses[index].clear();
  }
  near->connect(near_addresses, deadline);
  far->connect(far_addresses, deadline);
  return route(std::move(near), std::move(far), std::move(near_rank), parts.rank);
}

// `name`: the communicator's in the store; empty: the next.
CommunicatorParts join_named(std::shared_ptr<Store> store, std::string name, int rank, int size,
                             const Config& config, const Secret& secret) {
  CommunicatorParts parts = parts_of(std::make_shared<Runtime>(config), rank, size);
  PhaseTimer timer(parts.runtime->clock());
  const TimePoint deadline = parts.runtime->clock().now() + config.startup_timeout;
  parts.store = std::move(store);
  parts.secret = secret;
  parts.family->ring_bytes = first_ring_bytes(config, size);
  parts.transport = make_transport(config.transports, context(parts, secret));
  timer.end(parts.startup, "transport");

  Hello mine;
  mine.version = version();
  mine.settings = agree_text(config) + fmt::format("transport={}\nlargest message={}\n",
                                                   parts.transport->name(),
                                                   parts.transport->max_message_bytes());
  mine.schedules = schedule_table_hash();
  if (rank == 0) mine.costs = costs_for_all(config, parts.runtime->log());
  mine.host = host_identity();
  mine.pid = getpid();
  mine.cpus = affinity();
  mine.addresses[std::string(parts.transport->name())] = parts.transport->address();
  parts.name = name.empty() ? next_prefix(*parts.store, rank, deadline) : std::move(name);
  const std::vector<Hello> hellos =
      exchange_hellos(*parts.store, parts.name, rank, size, mine, deadline);
  check_agreement(hellos, rank);
  timer.end(parts.startup, "rendezvous");

  std::vector<int> machines = machines_of(hellos);
  const bool across = std::count(machines.begin(), machines.end(), 0) < size;
  if (!across || across_machines(parts.transport->name()) == parts.transport->name())
    parts.transport->connect(addresses_of(hellos, parts.transport->name()), deadline);
  else
    parts.transport = connect_machines(parts, machines, mine, deadline);
  if (across) spread(parts, std::move(machines));
  share_cores(parts, hellos);
  parts.prices = prices_of(hellos[0]);
  timer.end(parts.startup, "connect");
  return parts;
}

}  // namespace

CommunicatorParts join_store(std::shared_ptr<Store> store, int rank, int size, const Config& config,
                             const Secret& secret) {
  check_ranks(rank, size);
  check_settings(config);
  if (store == nullptr)
    throw Error(ErrorKind::usage, "a communicator needs a store; this one is null");
  bind_rank(rank, size, config);
  return join_named(std::move(store), {}, rank, size, config, secret);
}

CommunicatorParts join_survivors(const CommunicatorParts& whole, const std::vector<int>& members,
                                 std::string name) {
  const auto own = std::find(members.begin(), members.end(), whole.rank);
  assert(own != members.end());
  return join_named(whole.store, std::move(name), static_cast<int>(own - members.begin()),
                    static_cast<int>(members.size()), whole.runtime->config(), whole.secret);
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
                     whole.family->communicators < kLargeRingCommunicators;
  return large ? whole.family->ring_bytes : kSmallRingBytes;
}

CommunicatorParts join_subset(const CommunicatorParts& whole, Subset subset,
                              std::size_t ring_bytes) {
  const Runtime& runtime = *whole.runtime;
  PhaseTimer timer(runtime.clock());
  CommunicatorParts parts;
  parts.runtime = whole.runtime;
  parts.store = whole.store;
  parts.family = whole.family;
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
  auto runtime = std::make_shared<Runtime>(config);
  auto hub = std::make_shared<local::Hub>(size);
  const int cores = static_cast<int>(affinity().size());
  const std::size_t ring_bytes = first_ring_bytes(config, size);
  const auto prices = std::make_shared<PriceList>(machine_costs(config, runtime->log()));
  std::vector<CommunicatorParts> all;
  for (int rank = 0; rank < size; ++rank) {
    CommunicatorParts parts = parts_of(runtime, rank, size);
    parts.family->ring_bytes = ring_bytes;
    TransportContext with_hub = context(parts, {});
    with_hub.hub = hub;
    parts.transport = make_transport("local", with_hub);
    parts.cores = parts.family->cores = cores;
    parts.prices = prices;
    all.push_back(std::move(parts));
  }
  const std::vector<std::string> addresses(static_cast<std::size_t>(size));
  PhaseTimer timer(runtime->clock());
  for (CommunicatorParts& parts : all) {
    parts.transport->connect(addresses, runtime->clock().now() + config.startup_timeout);
    timer.end(parts.startup, "connect");
  }
  return all;
}

}  // namespace tutti
