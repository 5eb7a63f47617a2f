#include "transport/rdma/rdma.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include <tutti/error.hpp>

#include "common/text.h"
#include "transport/mesh/part.h"
#include "transport/queue_pair/frame.h"
#include "transport/queue_pair/ports.h"
#include "transport/queue_pair/slots.h"
#include "transport/queue_pair/transport.h"
#include "transport/rdma/ibverbs.h"

namespace tutti::rdma {
namespace {

constexpr std::int64_t kBytesOfGigabit = 125'000'000;

LinkCapabilities link_of(std::int64_t gigabits) {
  LinkCapabilities link;
  link.largest_message = mesh::kLargestMessage;
  link.may_fail = true;
  link.registered_bytes = qp::Slots::kBytes;
  link.latency_ps = 3'000'000;
  link.message_ps = 500'000;
  link.bytes_per_second = gigabits * kBytesOfGigabit;
  return link;
}

// Returns the first of the ports, and those others that are on the same kind of network.
std::vector<qp::Port> suitable(std::vector<qp::Port> ports) {
  std::erase_if(ports, [ethernet = ports[0].ethernet](const qp::Port& port) {
    return port.ethernet != ethernet;
  });
  if (ports.size() > qp::kMostPaths) ports.resize(qp::kMostPaths);
  return ports;
}

// A place is the kind of network and its rate, of all ports that are used, as "Ethernet 100".
std::optional<std::string> place(const TransportContext& context) {
  if (context.config == nullptr) return std::nullopt;
  const std::vector<qp::Port> ports = qp::active_ports(context.config->rdma_devices);
  if (ports.empty()) return std::nullopt;
  const int set = context.config->rdma_paths;
  auto paths = static_cast<std::size_t>(set == 0 ? qp::kMostPathsUnasked : set);
  std::int64_t gigabits = 0;
  for (const qp::Port& port : suitable(ports))
    if (paths > 0) gigabits += port.gigabits, --paths;
  return fmt::format("{} {}", ports[0].ethernet ? "Ethernet" : "InfiniBand", gigabits);
}

Reach reach(std::string_view place, std::string_view other) {
  const std::string_view network = place.substr(0, place.find(' '));
  const std::string_view its = other.substr(0, other.find(' '));
  if (network != its) return {fmt::format("one is on {}, the other on {}", network, its), {}};
  const auto rate = [](std::string_view text) {
    return parse_number<std::int64_t>(text.substr(text.find(' ') + 1)).value_or(1);
  };
  return {{}, link_of(std::clamp<std::int64_t>(std::min(rate(place), rate(other)), 1, 10'000))};
}

// Opens the first port, and those others of the same kind of network that can be opened.
std::vector<std::shared_ptr<qp::Device>> open_all(const std::vector<qp::Port>& ports,
                                                  const TransportContext& context) {
  std::vector<std::shared_ptr<qp::Device>> devices;
  for (const qp::Port& port : suitable(ports)) {
    try {
      devices.push_back(open_device(port, *context.config, *context.random));
    } catch (const Error& error) {
      if (devices.empty()) throw;
      if (context.log != nullptr)
        context.log->write(LogLevel::info, "RDMA: port {} of {} is not used: {}", port.number,
                           port.device, error.what());
    }
  }
  return devices;
}

std::unique_ptr<Transport> make(const TransportContext& context) {
  if (context.config->tls)
    throw Error(ErrorKind::unavailable,
                "TUTTI_TLS asks for encryption, which RDMA devices do not offer");
  const std::vector<qp::Port> ports = qp::active_ports(context.config->rdma_devices);
  if (ports.empty())
    throw Error(ErrorKind::unavailable,
                fmt::format("no port of an RDMA device that TUTTI_RDMA_DEVICES={} allows is up",
                            context.config->rdma_devices));
  return make_over(context, open_all(ports, context));
}

}  // namespace

std::unique_ptr<Transport> make_over(const TransportContext& context,
                                     std::vector<std::shared_ptr<qp::Device>> ports) {
  const int paths = context.config != nullptr ? context.config->rdma_paths : 0;
  return qp::make_over(context, std::move(ports), link_of(10), paths);
}

TransportEntry entry() { return {"rdma", place, reach, make}; }

}  // namespace tutti::rdma
