#include "ground.h"

#include <fmt/format.h>

#include <algorithm>
#include <thread>
#include <utility>

#include "../transport/stream_transport.h"
#include "transport/faulty/faulty.h"
#include "transport/local/local.h"
#include "transport/rdma/rdma.h"
#include "transport/shm/shm.h"
#include "transport/tcp/tcp.h"

namespace tutti::worlds {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t kRingBytes = 4096;

Config config_of(const Plan& plan) {
  Config config;
  config.transports = plan.transport;
  config.timeout = std::chrono::ceil<std::chrono::milliseconds>(plan.timeout);
  config.startup_timeout = config.timeout;
  config.stall = 0ms;
  config.log_level = LogLevel::error;
  return config;
}

const std::shared_ptr<PriceList>& default_prices() {
  static const auto prices = std::make_shared<PriceList>(MachineCosts());
  return prices;
}

bool is_over_sockets(const Plan& plan) {
  return plan.transport == "tcp" || plan.transport == "shm" || plan.transport == "verbs";
}

// Each rank waits for the others while it connects, so each does so in a thread.
void connect_all(std::vector<std::unique_ptr<Transport>>& transports) {
  std::vector<std::string> addresses;
  for (const auto& transport : transports) addresses.push_back(transport->address());
  const TimePoint deadline = SteadyClock().now() + 30s;
  std::vector<std::jthread> threads;
  for (auto& transport : transports)
    threads.emplace_back([&] { transport->connect(addresses, deadline); });
}

}  // namespace

TimePoint WorldClock::now() const {
  constexpr std::uint64_t kMost = 10'000'000;
  const std::uint64_t doublings = std::min<std::uint64_t>(++idle_ / patience_, 14);
  return now_ += Nanoseconds(std::min<std::uint64_t>(1000u << doublings, kMost));
}

Ground::Ground(const Plan& plan)
    : plan_(plan),
      random_(mix(plan.seed + 2)),
      network_(mix(plan.seed + 4)),
      network_events_(plan.network),
      prices_(default_prices()) {
  const bool in_memory = plan.transport == "local" || plan.transport == "shm";
  const auto ranks = static_cast<std::uint64_t>(plan.ranks);
  auto clock = std::make_unique<WorldClock>(
      (1000 + 300 * ranks * ranks + 30 * ranks * ranks * ranks) * (in_memory ? 1 : 8));
  clock_ = clock.get();
  runtime_ =
      std::make_shared<Runtime>(config_of(plan), std::move(clock),
                                std::make_unique<SeededRandom>(mix(plan.seed + 3)), Threads::none);
}

TransportContext Ground::context(int rank, int size, const Clock& clock) const {
  TransportContext context;
  context.rank = rank;
  context.size = size;
  context.clock = &clock;
  context.random = &identities_;
  context.data_bytes = kRingBytes;
  context.max_message_bytes = context.message_limit = plan_.message_bytes;
  context.config = is_over_sockets(plan_) ? &runtime_->config() : nullptr;
  return context;
}

std::vector<std::unique_ptr<Transport>> Ground::transports(int number) {
  std::vector<std::unique_ptr<Transport>> made;
  SocketClock& socket_clock = socket_clocks_.emplace_back(*clock_);
  const Clock& clock = is_over_sockets(plan_) ? static_cast<const Clock&>(socket_clock) : *clock_;
  const auto hub = std::make_shared<local::Hub>(plan_.ranks);
  auto mesh =
      plan_.transport == "stream" ? stream::make_mesh(plan_.ranks) : std::vector<std::vector<Fd>>();
  stream::Faults short_transfers;
  short_transfers.seed = plan_.seed + static_cast<std::uint64_t>(number);
  for (int rank = 0; rank < plan_.ranks; ++rank) {
    TransportContext here = context(rank, plan_.ranks, clock);
    if (plan_.transport == "local") here.hub = hub;
    std::vector<std::shared_ptr<qp::Device>> ports;
    if (plan_.transport == "verbs")
      for (int port = 0; port < plan_.ports; ++port) ports.push_back(network_.make_device());
    made.push_back(plan_.transport == "stream"
                       ? stream::make(here, std::move(mesh[rank]), short_transfers)
                   : plan_.transport == "tcp" ? tcp::entry().make(here)
                   : plan_.transport == "shm" ? shm::entry().make(here)
                   : plan_.transport == "verbs"
                       ? rdma::make_over(here, std::move(ports), plan_.at_once ? plan_.ranks : 0)
                       : local::entry().make(here));
  }
  if (is_over_sockets(plan_)) {
    connect_all(made);
    socket_clock.follow_world();
  } else {
    for (auto& transport : made) transport->connect({}, TimePoint());  // all are there
  }
  return made;
}

void Ground::advance_network() {
  if (network_events_.empty()) return;
  const TimePoint now = clock_->now();
  std::erase_if(network_events_, [&](const NetworkEvent& event) {
    if (now < event.at) return false;
    if (event.what == NetworkEvent::What::pair_fails)
      network_.fail_any();
    else
      network_.set_port(static_cast<std::size_t>(event.port),
                        event.what == NetworkEvent::What::port_up);
    return true;
  });
}

CommunicatorParts Ground::parts(std::unique_ptr<Transport> transport, int rank, int size,
                                std::string name) {
  CommunicatorParts parts;
  parts.runtime = runtime_;
  parts.store = store_;
  parts.name = std::move(name);
  parts.shared = std::make_shared<SharedEndpoint>();
  parts.machine_ranks = parts.size = size;
  parts.shared->ring_bytes = kRingBytes;
  parts.rank = rank;
  for (int peer = 0; peer < size; ++peer) {
    if (peer == rank) continue;
    const LinkCapabilities& link = transport->link(peer);
    parts.largest_message = std::min(parts.largest_message, link.largest_message);
    parts.rings = parts.rings && link.rings;
  }
  parts.message_bytes = std::min(plan_.message_bytes, parts.largest_message);
  parts.transport = std::move(transport);
  parts.prices = prices_;
  return parts;
}

std::vector<CommunicatorParts> Ground::base(int number) {
  auto made = transports(number);
  std::vector<CommunicatorParts> all;
  for (int rank = 0; rank < plan_.ranks; ++rank) {
    faulty::Faults faults = plan_.faults;
    faults.seed += static_cast<std::uint64_t>(number);
    auto transport = plan_.decorated
                         ? faulty::make(std::move(made[rank]), rank, plan_.ranks, *clock_, faults)
                         : std::move(made[rank]);
    all.push_back(
        parts(std::move(transport), rank, plan_.ranks, fmt::format("tutti/{}", number + 1)));
  }
  return all;
}

std::vector<CommunicatorParts> Ground::sound(int size, const std::string& name) {
  const auto hub = std::make_shared<local::Hub>(size);
  std::vector<CommunicatorParts> all;
  std::vector<std::unique_ptr<Transport>> made;
  for (int rank = 0; rank < size; ++rank) {
    TransportContext here = context(rank, size, *clock_);
    here.hub = hub;
    here.max_message_bytes = here.message_limit = 1024;
    made.push_back(local::entry().make(here));
  }
  for (int rank = 0; rank < size; ++rank) {
    made[rank]->connect({}, TimePoint());
    all.push_back(parts(std::move(made[rank]), rank, size, name));
  }
  return all;
}

}  // namespace tutti::worlds
