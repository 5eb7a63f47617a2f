#include "test_ranks.h"

#include <cstdlib>
#include <exception>
#include <thread>

#include <tutti/error.hpp>

#include "fake_verbs.h"
#include "mail_transport.h"
#include "stream_transport.h"
#include "transport/faulty/faulty.h"
#include "transport/local/local.h"
#include "transport/queue_pair/ports.h"
#include "transport/rdma/rdma.h"
#include "transport/shm/shm.h"
#include "transport/tcp/tcp.h"
#include "transport/ucx/open.h"
#include "transport/ucx/ucx.h"

namespace tutti {
namespace {

using Transports = std::vector<std::unique_ptr<Transport>>;

Transports all_local(std::span<const TransportContext> contexts, std::uint64_t) {
  const auto hub = std::make_shared<local::Hub>(static_cast<int>(contexts.size()));
  Transports all;
  for (TransportContext context : contexts) {
    context.hub = hub;
    all.push_back(local::entry().make(context));
  }
  return all;
}

// Queue pairs of fake devices, whose completions are late. Each rank has `kPorts` of them, and
// connects them to `kAtOnce` peers at the start.
template <int kPorts, int kAtOnce = rdma::kPeersAtOnce>
Transports all_rdma(std::span<const TransportContext> contexts, std::uint64_t seed) {
  static const Config config;
  qp::fake::Network network(seed);
  Transports all;
  for (TransportContext context : contexts) {
    context.config = &config;
    std::vector<std::shared_ptr<qp::Device>> ports;
    while (ports.size() < kPorts) ports.push_back(network.make_device());
    all.push_back(rdma::make_over(context, std::move(ports), kAtOnce));
  }
  return all;
}

// Makes transports that need nothing but a context, with one switch of the configuration on.
template <auto kEntry, bool Config::*kSwitch = nullptr>
Transports all(std::span<const TransportContext> contexts, std::uint64_t) {
  static const Config config = [] {
    Config switched;
    if constexpr (kSwitch != nullptr) switched.*kSwitch = true;
    return switched;
  }();
  Transports all;
  for (TransportContext context : contexts) {
    context.config = &config;
    all.push_back(kEntry().make(context));
  }
  return all;
}

// UCX over loopback, whatever devices there are.
Transports all_ucx(std::span<const TransportContext> contexts, std::uint64_t seed) {
  setenv("UCX_TLS", "tcp,self", 0);
  return all<ucx::entry>(contexts, seed);
}

Transports all_stream(std::span<const TransportContext> contexts, std::uint64_t seed) {
  auto mesh = stream::make_mesh(static_cast<int>(contexts.size()));
  stream::Faults faults;
  faults.seed = seed;
  Transports all;
  for (const TransportContext& context : contexts)
    all.push_back(stream::make(context, std::move(mesh[context.rank]), faults));
  return all;
}

// Without faults it must do what every transport does; faulty_test.cpp adds them.
Transports all_faulty(std::span<const TransportContext> contexts, std::uint64_t seed) {
  const int size = static_cast<int>(contexts.size());
  Transports all = all_local(contexts, seed);
  for (int rank = 0; rank < size; ++rank)
    all[rank] = faulty::make(std::move(all[rank]), rank, size, *contexts[rank].clock, {});
  return all;
}

// Connects all ranks at once, since each waits for the others.
void connect_all(Transports& transports, TimePoint deadline) {
  std::vector<std::string> addresses;
  for (const auto& transport : transports) addresses.push_back(transport->address());
  std::vector<std::exception_ptr> errors(transports.size());
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < transports.size(); ++rank)
    threads.emplace_back([&, rank] {
      try {
        transports[rank]->connect(addresses, deadline);
      } catch (...) {
        errors[rank] = std::current_exception();
      }
    });
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& error : errors)
    if (error) std::rethrow_exception(error);
  for (const auto& transport : transports)
    for (std::size_t peer = 0; peer < transports.size(); ++peer)
      if (const std::string why = transport->why_unconnected(static_cast<int>(peer)); !why.empty())
        throw Error(ErrorKind::unavailable, why);
}

}  // namespace

std::vector<TransportKind> transport_kinds() {
  std::vector<TransportKind> kinds{{"local", true, all_local},
                                   {"shm", true, all<shm::entry>},
                                   {"tcp", false, all<tcp::entry>},
                                   {"tls", false, all<tcp::entry, &Config::tls>},
                                   {"checked_tcp", false, all<tcp::entry, &Config::checksum>},
                                   {"rdma", false, all_rdma<1>},
                                   {"rdma_paths", false, all_rdma<3>},
                                   {"rdma_on_demand", false, all_rdma<2, 0>},
                                   {"mail", false, all<mail::entry<mail::kAnywhere>>},
                                   {"stream", false, all_stream},
                                   {"faulty", false, all_faulty}};
  if (ucx::is_built()) kinds.push_back({"ucx", false, all_ucx});
  // It needs a device, real or soft-RoCE: see tests/rdma.
  if (!qp::active_ports("auto").empty()) kinds.push_back({"verbs", false, all<rdma::entry>});
  return kinds;
}

TestRanks::TestRanks(const TransportKind& kind, const RanksOptions& options) {
  std::vector<TransportContext> contexts;
  for (int rank = 0; rank < options.size; ++rank) {
    TransportContext context;
    context.rank = rank;
    context.size = options.size;
    context.clock = &clock_;
    context.random = &random_;
    context.data_bytes = options.data_bytes;
    context.max_message_bytes = context.message_limit = options.max_message_bytes;
    if (options.bells) {
      bells_.push_back(std::make_shared<const Doorbell>());
      context.doorbell = bells_.back();
    }
    contexts.push_back(context);
  }
  transports_ = kind.make_all(contexts, options.seed);
  connect_all(transports_, clock_.now() + std::chrono::seconds(60));
}

// Ranks end at the same time, since some wait for each other.
TestRanks::~TestRanks() {
  std::vector<std::thread> threads;
  for (auto& transport : transports_) threads.emplace_back([&] { transport.reset(); });
  for (std::thread& thread : threads) thread.join();
}

bool TestRanks::eventually(const std::function<bool()>& what) {
  for (int turn = 0; turn < 100'000; ++turn) {
    if (what()) return true;
    for (const auto& transport : transports_)
      if (transport != nullptr) transport->progress();
  }
  return false;
}

}  // namespace tutti
