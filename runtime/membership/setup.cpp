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
#include "common/secret.h"
#include "common/settings.h"
#include "common/text.h"
#include "common/ticks.h"
#include "rendezvous/agreement.h"
#include "rendezvous/launch/launch_environment.h"
#include "rendezvous/store/open_store.h"
#include "runtime/membership/connect.h"
#include "runtime/membership/gpus.h"
#include "runtime/membership/joining_store.h"
#include "runtime/membership/kept_connections.h"
#include "runtime/membership/locations.h"
#include "runtime/membership/newcomer.h"
#include "runtime/membership/pauses.h"
#include "topology/caches.h"
#include "topology/discover.h"
#include "topology/placement.h"
#include "transport/local/local.h"
#include "transport/registry.h"

namespace tutti {
namespace {

// Returns the payload bytes of each ring of a process's first communicators, for the given number
// of ranks on a machine.
std::size_t first_ring_bytes(const Config& config, const CoreCaches& machine, int ranks) {
  return config.ring_bytes != 0 ? config.ring_bytes : ring_bytes_of(machine, ranks);
}

// All communicators of a process except the first few get small rings, which are 13 % slower at 1
// and at 16 MiB. A thousand of them fit in the memory of seventy with large rings.
constexpr int kLargeRingCommunicators = 8;
constexpr std::size_t kSmallRingBytes = 24u << 10;
static_assert(kSmallRingBytes % kCacheLine == 0 && kSmallRingBytes >= 3 * kCacheLine);

// The widest step of a schedule has at most one chunk for each rank, and a chunk is at least a
// cache line.
std::size_t least_ring_bytes(int ranks) {
  return SendRing::least_data_bytes(static_cast<std::size_t>(ranks) * kCacheLine);
}

std::size_t message_bytes_in(std::size_t ring_bytes, const Config& config) {
  const std::size_t most = SendRing::max_message_bytes(ring_bytes);
  assert(most >= kCacheLine);
  return config.message_bytes != 0 ? std::min(most, config.message_bytes) : most;
}

// Returns the largest message of collectives of `size` ranks: what fits in a ring, or what links
// without rings carry by themselves, if nothing is configured.
std::size_t message_bytes_over(std::size_t of_links, std::size_t in_ring, int size,
                               const Config& config) {
  if (config.message_bytes != 0) return in_ring;
  return std::min(in_ring, std::max(of_links, static_cast<std::size_t>(size) * kCacheLine));
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
  result.message_limit = config.message_bytes;
  result.doorbell = parts.shared->doorbell;
  result.secret = secret;
  result.config = &config;
  return result;
}

CommunicatorParts parts_of(const Process& process, int rank, int size) {
  assert(process.runtime != nullptr && rank >= 0 && rank < size);
  CommunicatorParts parts;
  parts.runtime = process.runtime;
  parts.shared = std::make_shared<SharedEndpoint>();
  parts.machine_ranks = size;
  parts.rank = rank;
  parts.size = size;
  const int group_size = parts.runtime->config().group_size;
  for (int peer = 0; group_size > 0 && peer < size; ++peer)
    parts.groups.push_back(peer / group_size);
  return parts;
}

// Returns a hash of everything that two ranks must share for their schedules to fit: the names of
// the algorithms, in order.
std::uint64_t schedule_table_hash() {
  std::uint64_t hash = 0;
  for (const Algorithm& algorithm : algorithms())
    for (const char letter : algorithm.name) hash = mix(hash ^ static_cast<unsigned char>(letter));
  return hash;
}

/// The texts by which a rank introduces itself.
enum Said : std::size_t { kSettings, kCosts, kCaches, kLocation, kGpu, kKept, kOffers, kAddress };

std::string to_text(const CoreCaches& machine) {
  return fmt::format("{} {} {}", machine.cache_bytes, machine.cores, machine.victim_bytes);
}

std::vector<CoreCaches> caches_of(const Texts& column) {
  std::vector<CoreCaches> all;
  for (const std::string& text : column.values()) {
    std::vector<std::string_view> numbers = split(text, ' ');
    numbers.resize(3);
    const auto bytes = parse_number<std::size_t>(numbers[0]);
    const auto cores = parse_number<int>(numbers[1]);
    const auto victim = parse_number<std::size_t>(numbers[2]);
    if (!bytes || !cores || *cores < 1 || !victim)
      throw Error(
          ErrorKind::corrupt,
          fmt::format("a rank says that its caches and cores are {}, which cannot be: is it "
                      "running the same build of tutti?",
                      shown(text)));
    all.push_back({*bytes, *cores, *victim});
  }
  return all;
}

// A tuning file that the configuration names must be valid, else this throws. The default tuning
// file is used only if it is valid.
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

// If rank 0's file is wrong, the text says why, so that every rank reports it in place of waiting
// for rank 0.
std::string costs_for_all(const Config& config, Log& log) {
  try {
    return to_text(machine_costs(config, log));
  } catch (const Error& error) {
    return std::string(kRefused) + error.what();
  }
}

// Returns the prices by the costs that rank 0 has published.
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

// The size of rings on which all ranks agree: each machine's ranks share its caches, and the
// smallest size is one that all can use.
std::size_t agreed_ring_bytes(const Config& config, const Texts& caches, const Texts& location,
                              const std::vector<Location>& locations) {
  std::map<std::string_view, int> ranks;  // the number of ranks on each machine
  std::uint32_t first = 0;
  for (const Texts::Run& run : location.runs()) {
    ranks[machine_of(locations[run.value].host)] += static_cast<int>(run.end - first);
    first = run.end;
  }
  const std::vector<CoreCaches> machines = caches_of(caches);
  std::size_t least = std::numeric_limits<std::size_t>::max();
  auto at = location.runs().begin();
  for (const Texts::Run& run : caches.runs())
    for (;; ++at) {
      const int sharing = ranks[machine_of(locations[at->value].host)];
      least = std::min(least, first_ring_bytes(config, machines[run.value], sharing));
      if (at->end >= run.end) break;
    }
  return least;
}

// Returns whether all ranks made their transports for rings of this size, before they knew each
// other.
bool all_expected(std::size_t ring_bytes, const Config& config, const Texts& caches) {
  const std::vector<CoreCaches> machines = caches_of(caches);
  const auto ranks = static_cast<int>(caches.size());
  return std::all_of(machines.begin(), machines.end(), [&](const CoreCaches& machine) {
    return first_ring_bytes(config, machine, ranks) == ring_bytes;
  });
}

// Returns this rank's text for each column of Said.
std::vector<std::string> introduction(CommunicatorParts& parts, const CoreCaches& caches,
                                      const Connecting& connecting, const Keeping* keeping) {
  const Config& config = parts.runtime->config();
  std::string gpu = introduce_gpu(parts);
  return {fmt::format("tutti's version={}\nthe table of algorithms={:016x}\n{}", version(),
                      schedule_table_hash(), agree_text(config)),
          parts.rank == 0 ? costs_for_all(config, parts.runtime->log()) : "",
          to_text(caches),
          to_text(own_location(parts)),
          std::move(gpu),
          keeping != nullptr ? keeping->abilities() : "",
          connecting.offers(),
          connecting.address()};
}

// Returns a number that all ranks of a communicator compute, and no others: the addresses of the
// ranks are of their own.
std::uint64_t identity_of(const std::string& name, const std::vector<Texts>& said) {
  std::uint64_t hash = 0;
  const auto add = [&hash](const std::string& text) {
    for (const char letter : text) hash = mix(hash ^ static_cast<unsigned char>(letter));
  };
  add(name);
  for (const std::size_t column : {kLocation, kAddress}) {
    for (const std::string& text : said[column].values()) add(text);
    for (const Texts::Run& run : said[column].runs()) hash = mix(hash ^ run.end ^ run.value);
  }
  return hash;
}

// The members know the name without asking each other: it follows from who they are, and from the
// number of the split on each of them.
RecordedName recorded_name(const CommunicatorParts& whole, const Subset& subset) {
  const RecordedName& before = whole.recorded;
  std::uint64_t identity = before.identity;
  for (std::size_t i = 0; i < subset.members.size(); ++i)
    identity = mix(identity ^ mix(static_cast<std::uint64_t>(subset.members[i]) << 32 ^
                                  static_cast<std::uint64_t>(subset.numbers[i])));
  return {identity, fmt::format("{}.{}", before.name, subset.numbers.front()),
          before.world_rank < 0 ? whole.rank : before.world_rank};
}

TimePoint startup_deadline(const Runtime& runtime) {
  return runtime.clock().now() + runtime.config().startup_timeout;
}

}  // namespace

std::size_t first_ring_bytes(const Config& config, int ranks) {
  return first_ring_bytes(config, core_caches(), ranks);
}

void check_settings(const Config& config) {
  check_config(config);
  if (config.algorithm.empty() || config.algorithm == "auto") return;
  try {
    algorithm_index(config.algorithm);
  } catch (const Error& error) {
    throw Error(error.kind(), fmt::format("TUTTI_ALGORITHM (Config::algorithm): {}", error.what()));
  }
}

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

namespace {

CommunicatorParts join_over(JoiningStore& store, const std::string& name, int rank, int size,
                            const Process& process, const Secret& secret, TimePoint deadline) {
  CommunicatorParts parts = parts_of(process, rank, size);
  if (process.keeping != nullptr) process.keeping->lend_endpoint(parts);
  parts.name = name;
  parts.gpu = process.gpu;
  parts.own_place = process.place;
  const Config& config = parts.runtime->config();
  PhaseTimer timer(parts.runtime->clock());
  parts.secret = secret;
  const CoreCaches caches = config.ring_bytes != 0 ? CoreCaches() : core_caches();
  parts.shared->ring_bytes = first_ring_bytes(config, caches, size);
  const auto context_now = [&] {
    TransportContext result = context(parts, secret);
    result.hub = process.hub;
    result.check = [&store] { store.check(); };
    if (process.keeping != nullptr) process.keeping->restrict(result);
    return result;
  };
  Connecting connecting(
      {parse_transports(config.transports, process.transports), config.transports == "auto"},
      context_now());
  timer.end(parts.startup, "transport");

  const std::vector<Texts> said =
      exchange(store, name, rank, size, introduction(parts, caches, connecting, process.keeping),
               deadline, {&parts.runtime->log()});
  check_agreement(said[kSettings], rank);
  store.connects();
  parts.recorded = {identity_of(parts.name, said), parts.name};
  timer.end(parts.startup, "rendezvous");

  const std::vector<Location> locations = locations_of(said[kLocation]);
  parts.shared->ring_bytes = agreed_ring_bytes(config, said[kCaches], said[kLocation], locations);
  const TransportContext agreed = context_now();
  const bool expected = all_expected(parts.shared->ring_bytes, config, said[kCaches]);
  KeptConnections kept;
  if (process.keeping != nullptr) kept = process.keeping->join(agreed, deadline);
  Connecting::Outcome connected = connecting.connect(
      said[kOffers], said[kAddress], agreed, expected, store, name, deadline, std::move(kept));
  parts.transport = std::move(connected.transport);
  parts.rings = connected.links.rings;
  agree_on_gpus(parts, said[kGpu]);
  parts.largest_message = connected.links.largest_message;
  limit_to_kept(parts, said[kKept]);
  parts.message_bytes =
      message_bytes_over(parts.largest_message, agreed.max_message_bytes, size, config);
  take_locations(parts, said[kLocation], locations);
  parts.prices = prices_of(said[kCosts][0]);
  timer.end(parts.startup, "connect");
  return parts;
}

}  // namespace

CommunicatorParts join_named(std::shared_ptr<Store> store, std::string name, int rank, int size,
                             const Process& process, const Secret& secret, TimePoint deadline) {
  if (name.empty()) name = next_prefix(*store, rank, deadline);
  JoiningStore joining(*store, name, rank, size, deadline, process.check);
  try {
    CommunicatorParts parts = join_over(joining, name, rank, size, process, secret, deadline);
    parts.store = std::move(store);
    return parts;
  } catch (const std::exception& error) {
    joining.fail(error);
    throw;
  }
}

namespace {

// Does what join_named() does at a start, with the start's deadline, which an error names that says
// that it has passed.
CommunicatorParts start_named(std::shared_ptr<Store> store, int rank, int size,
                              const Process& process, const Secret& secret) {
  try {
    return join_named(std::move(store), {}, rank, size, process, secret,
                      startup_deadline(*process.runtime));
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::timeout) throw;
    throw Error(ErrorKind::timeout,
                fmt::format("{}; or raise TUTTI_STARTUP_TIMEOUT_MS", error.what()));
  }
}

}  // namespace

CommunicatorParts join_store(std::shared_ptr<Store> store, int rank, int size, const Config& config,
                             const std::function<Secret()>& secret,
                             std::vector<TransportEntry> known) {
  check_ranks(rank, size);
  if (store == nullptr)
    throw Error(ErrorKind::usage, "a communicator needs a store; this one is null");
  Secret its;
  Process own{nullptr, nullptr, std::move(known)};
  tell_if_it_throws(*store, rank, size, [&] {
    check_settings(config);
    if (secret) its = secret();
    bind_rank(rank, size, config);
    own.runtime = std::make_shared<Runtime>(config);
  });
  return start_named(std::move(store), rank, size, own, its);
}

CommunicatorParts join_threads(std::shared_ptr<Store> store, int rank, const Process& process) {
  check_ranks(rank, process.hub->size());
  return start_named(std::move(store), rank, process.hub->size(), process, {});
}

CommunicatorParts join_regrouped(const CommunicatorParts& whole, const Regrouped& members,
                                 std::shared_ptr<WatchedStore> store, TimePoint deadline,
                                 Keeping* keeping) {
  const auto own = std::find(members.members.begin(), members.members.end(), whole.rank);
  assert(own != members.members.end());
  Process process;
  process.runtime =
      keeping != nullptr ? whole.runtime : std::make_shared<Runtime>(whole.runtime->config());
  process.keeping = keeping;
  process.check = store->check();
  process.gpu = whole.gpu;
  process.place = whole.own_place;
  CommunicatorParts parts =
      join_named(std::move(store), members.name, static_cast<int>(own - members.members.begin()),
                 static_cast<int>(members.size()), process, whole.secret,
                 std::min(deadline, startup_deadline(*process.runtime)));
  parts.store = whole.store;
  return parts;
}

CommunicatorParts join_running_job(const Config& config) {
  check_settings(config);
  const auto start = std::chrono::steady_clock::now();
  const TimePoint deadline = start + config.startup_timeout;
  const LaunchEnvironment launch = read_newcomer_environment(process_environment(), config.store);
  Log log(config.log_level, config.log_sink);
  OpenedStore opened =
      open_store_as_newcomer(launch, config, std::min(deadline, start + kMostToFindJob), log);
  const auto joined = std::chrono::steady_clock::now();
  CommunicatorParts parts = join_as_newcomer(opened.store, config, opened.secret, deadline);
  if (opened.be_rank) opened.be_rank();
  parts.startup.insert(parts.startup.begin(), {"store", joined - start});
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
  CommunicatorParts parts = join_store(std::move(opened.store), launch.rank, launch.size, config,
                                       [&opened] { return opened.secret; });
  parts.startup.insert(parts.startup.begin(), {"store", joined - start});
  parts.private_store = launch.size == 1 && launch.file.empty();
  return parts;
}

std::size_t ring_bytes_for_one_more(const CommunicatorParts& whole) {
  const bool large = whole.runtime->config().ring_bytes != 0 ||
                     whole.shared->communicators < kLargeRingCommunicators;
  return large ? whole.shared->ring_bytes : kSmallRingBytes;
}

CommunicatorParts parts_of_subset(const CommunicatorParts& whole, Subset subset,
                                  std::size_t ring_bytes) {
  const Runtime& runtime = *whole.runtime;
  assert(subset.members[static_cast<std::size_t>(subset.rank)] == whole.rank);
  PhaseTimer timer(runtime.clock());
  CommunicatorParts parts;
  parts.runtime = whole.runtime;
  parts.store = whole.store;
  parts.shared = whole.shared;
  parts.rank = subset.rank;
  parts.size = static_cast<int>(subset.members.size());
  parts.cores = whole.cores;
  parts.times_grown = whole.times_grown;
  parts.machine_ranks = whole.machine_ranks;
  parts.machine_cores = whole.machine_cores;
  parts.prices = whole.prices;
  const auto of_members = [&](const std::vector<int>& all) {
    std::vector<int> own;
    for (const int member : subset.members)
      if (!all.empty()) own.push_back(all[static_cast<std::size_t>(member)]);
    return own;
  };
  parts.groups = of_members(whole.groups);
  parts.places = of_members(whole.places);
  parts.recorded = recorded_name(whole, subset);
  if (!whole.machines.empty()) spread(parts, of_members(whole.machines));
  subset.data_bytes = std::max(ring_bytes, least_ring_bytes(parts.size));
  subset.max_message_bytes = message_bytes_in(subset.data_bytes, runtime.config());
  parts.rings = whole.rings;
  parts.gpu = whole.gpu;
  parts.largest_message = whole.largest_message;
  parts.message_bytes = message_bytes_over(whole.largest_message, subset.max_message_bytes,
                                           parts.size, runtime.config());
  parts.transport = whole.transport->split(subset);
  if (parts.transport == nullptr)
    throw Error(ErrorKind::unavailable,
                "a transport of this communicator cannot serve one that is split off it");
  timer.end(parts.startup, "split");
  return parts;
}

std::vector<CommunicatorParts> join_in_process(int size, const Config& config) {
  check_ranks(0, size);
  check_settings(config);
  const Process process{std::make_shared<Runtime>(config), std::make_shared<local::Hub>(size)};
  Runtime& runtime = *process.runtime;
  const int cores = static_cast<int>(affinity().size());
  const std::size_t ring_bytes = first_ring_bytes(config, core_caches(), size);
  const auto prices = std::make_shared<PriceList>(machine_costs(config, runtime.log()));
  const std::uint64_t identity = mix(static_cast<std::uint64_t>(getpid()) ^ mix(ticks()));
  std::vector<CommunicatorParts> all;
  for (int rank = 0; rank < size; ++rank) {
    CommunicatorParts parts = parts_of(process, rank, size);
    parts.shared->ring_bytes = ring_bytes;
    TransportContext with_hub = context(parts, {});
    with_hub.hub = process.hub;
    parts.gpu = open_gpu(config, rank);
    parts.transport = local::entry().make(with_hub);
    parts.message_bytes = with_hub.max_message_bytes;
    parts.cores = parts.machine_cores = cores;
    parts.prices = prices;
    parts.recorded = {identity, "threads"};
    all.push_back(std::move(parts));
  }
  place_threads(all);
  PhaseTimer timer(runtime.clock());
  for (CommunicatorParts& parts : all) {
    parts.transport->connect({}, runtime.clock().now() + config.startup_timeout);
    timer.end(parts.startup, "connect");
  }
  return all;
}

}  // namespace tutti
