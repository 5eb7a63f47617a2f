#include "tests/interleaving/world.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <string>
#include <thread>
#include <utility>

#include "transport/registry.h"

namespace tutti::interleaving {
namespace {

constexpr std::size_t kRingBytes = 4096;

Config patient_config() {
  Config config;
  config.timeout = config.startup_timeout = std::chrono::hours(1000);
  config.stall = std::chrono::milliseconds(0);
  config.spin_polls = 2;
  config.log_level = LogLevel::error;
  config.trust_network = true;
  return config;
}

std::shared_ptr<Runtime> make_runtime(Scheduler& scheduler, std::uint64_t seed) {
  return std::make_shared<Runtime>(patient_config(), std::make_unique<SimulatedClock>(scheduler),
                                   std::make_unique<SeededRandom>(seed));
}

// The parts of a rank, whose transport is not connected yet.
CommunicatorParts parts_of(std::shared_ptr<Runtime> runtime, int rank, int ranks,
                           std::string_view transport, std::size_t message_bytes,
                           std::shared_ptr<local::Hub> hub) {
  CommunicatorParts parts;
  parts.runtime = std::move(runtime);
  parts.shared = std::make_shared<SharedEndpoint>();
  parts.machine_ranks = parts.size = ranks;
  // With a core for each rank, threads that wait do not yield.
  parts.cores = parts.machine_cores = ranks;
  parts.shared->ring_bytes = kRingBytes;
  parts.rank = rank;
  parts.message_bytes = message_bytes;
  TransportContext context;
  context.rank = rank;
  context.size = ranks;
  context.clock = &parts.runtime->clock();
  // Names of sockets that no other process has, which the interleaving does not depend on.
  static SystemRandom identities;
  context.random = &identities;
  context.config = &parts.runtime->config();
  context.data_bytes = kRingBytes;
  context.max_message_bytes = context.message_limit = message_bytes;
  context.doorbell = parts.shared->doorbell;
  context.hub = std::move(hub);
  parts.transport = parse_transports(transport).front().make(context);
  parts.prices = std::make_shared<PriceList>(MachineCosts());
  return parts;
}

// connect() waits for the other ranks in the kernel, so its threads are none of the run.
void connect(std::vector<CommunicatorParts>& all) {
  std::vector<std::string> addresses;
  for (const CommunicatorParts& parts : all) addresses.push_back(parts.transport->address());
  std::vector<std::jthread> threads;
  for (CommunicatorParts& parts : all)
    threads.emplace_back([&] { parts.transport->connect(addresses, TimePoint::max()); });
}

}  // namespace

std::string_view to_string(World world) {
  constexpr std::string_view kNames[] = {"in_process", "local", "shm", "tcp"};
  return kNames[static_cast<std::size_t>(world)];
}

CommunicatorParts make_part(Scheduler& scheduler, int rank, int ranks,
                            std::shared_ptr<local::Hub> hub) {
  return parts_of(make_runtime(scheduler, static_cast<std::uint64_t>(rank)), rank, ranks, "local",
                  kShortMessages, std::move(hub));
}

std::vector<CommunicatorParts> make_parts(Scheduler& scheduler, int ranks, World world,
                                          std::size_t message_bytes) {
  const bool has_hub = world == World::in_process || world == World::local;
  const auto hub = has_hub ? std::make_shared<local::Hub>(ranks) : nullptr;
  std::shared_ptr<Runtime> runtime;
  std::vector<CommunicatorParts> all;
  for (int rank = 0; rank < ranks; ++rank) {
    if (runtime == nullptr || world != World::in_process)
      runtime = make_runtime(scheduler, static_cast<std::uint64_t>(rank));
    all.push_back(
        parts_of(runtime, rank, ranks, has_hub ? "local" : to_string(world), message_bytes, hub));
  }
  connect(all);
  for (CommunicatorParts& parts : all)
    for (int peer = 0; peer < ranks; ++peer) {
      if (peer == parts.rank) continue;
      const LinkCapabilities& link = parts.transport->link(peer);
      parts.rings = parts.rings && link.rings;
      parts.largest_message = std::min(parts.largest_message, link.largest_message);
    }
  return all;
}

std::vector<Member> make_members(Scheduler& scheduler, int ranks, World world,
                                 std::size_t message_bytes) {
  const Scheduler::Calm calm(scheduler);
  std::vector<Member> members;
  for (CommunicatorParts& parts : make_parts(scheduler, ranks, world, message_bytes))
    members.emplace_back(CommunicatorImpl::make(std::move(parts)));
  return members;
}

void together(const std::vector<std::function<void()>>& bodies) {
  std::vector<sync::Thread> threads;
  for (const auto& body : bodies) threads.emplace_back(body);
  for (sync::Thread& thread : threads) thread.join();
}

void on_each(std::vector<Member>& members, const std::function<void(Communicator&)>& body) {
  std::vector<std::function<void()>> bodies;
  for (Member& member : members) bodies.push_back([&] { body(*member); });
  together(bodies);
}

std::vector<Member> duplicates(Scheduler& scheduler, std::vector<Member>& members) {
  const Scheduler::Calm calm(scheduler);
  std::vector<Member> made(members.size());
  on_each(members, [&](Communicator& each) { made[each.rank()] = each.dup(); });
  return made;
}

void check_sum(Scheduler& scheduler, Communicator& communicator) {
  std::array<int, 1> sum{communicator.rank() + 1};
  communicator.all_reduce(std::span<int>(sum));
  const int size = communicator.size();
  scheduler.check(sum[0] == size * (size + 1) / 2, "a sum is wrong");
}

std::optional<ErrorKind> error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.kind();
  }
  return std::nullopt;
}

}  // namespace tutti::interleaving
