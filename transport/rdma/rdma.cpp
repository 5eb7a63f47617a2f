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
#include "transport/queue_pair/transport.h"
#include "transport/rdma/ibverbs.h"

namespace tutti::rdma {
namespace {

constexpr std::int64_t kBytesOfGigabit = 125'000'000;

LinkCapabilities link_of(std::int64_t gigabits, std::uint32_t paths) {
  LinkCapabilities link;
  link.largest_message = mesh::kLargestMessage;
  link.may_fail = true;
  link.registered_bytes = qp::slot_bytes_of(paths);
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

// The places of a rank without a port, and of one that asks for encryption.
constexpr std::string_view kNoPort = "none", kEncrypted = "encrypted";
constexpr const char* kNoTls = "TUTTI_TLS asks for encryption, which RDMA devices do not offer";

// A place is the kind of network, the rate of all ports that are used, and the number of paths that
// the rank would make, as "Ethernet 200 2", or one of the above.
std::optional<std::string> place(const TransportContext& context) {
  if (context.config == nullptr) return std::nullopt;
  if (context.config->tls) return std::string(kEncrypted);
  const std::vector<qp::Port> ports = qp::active_ports(context.config->rdma_devices);
  if (ports.empty()) return std::string(kNoPort);
  const auto set = static_cast<std::size_t>(context.config->rdma_paths);
  std::vector<qp::Port> used = suitable(ports);
  used.resize(std::min<std::size_t>(used.size(), set == 0 ? qp::kMostPathsUnasked : set));
  std::int64_t gigabits = 0;
  for (const qp::Port& port : used) gigabits += port.gigabits;
  return fmt::format("{} {} {}", ports[0].ethernet ? "Ethernet" : "InfiniBand", gigabits,
                     set == 0 ? used.size() : set);
}

Reach reach(std::string_view place, std::string_view other) {
  if (place == kEncrypted || other == kEncrypted) return {kNoTls, {}};
  if (place == kNoPort || other == kNoPort)
    return {"no port of an RDMA device that TUTTI_RDMA_DEVICES allows is up at one of the two", {}};
  const auto own = split(place, ' '), its = split(other, ' ');
  if (own[0] != its[0]) return {fmt::format("one is on {}, the other on {}", own[0], its[0]), {}};
  const auto number = [](const std::vector<std::string_view>& parts, std::size_t which) {
    if (which >= parts.size()) return std::int64_t{1};
    return parse_number<std::int64_t>(parts[which]).value_or(1);
  };
  const std::int64_t gigabits = std::min(number(own, 1), number(its, 1));
  const auto paths =
      std::clamp<std::int64_t>(std::max(number(own, 2), number(its, 2)), 1, qp::kMostPaths);
  return {
      {},
      link_of(std::clamp<std::int64_t>(gigabits, 1, 10'000), static_cast<std::uint32_t>(paths))};
}

// Opens the ports of one kind of network that can be opened. Throws the first error where there is
// none.
std::vector<std::shared_ptr<qp::Device>> open_all(const std::vector<qp::Port>& ports,
                                                  const TransportContext& context) {
  std::vector<std::shared_ptr<qp::Device>> devices;
  std::optional<Error> first;
  for (const qp::Port& port : suitable(ports)) {
    try {
      devices.push_back(open_device(port, *context.config, *context.random));
    } catch (const Error& error) {
      if (!first) first = error;
      if (context.log != nullptr)
        context.log->write(LogLevel::info, "RDMA: port {} of {} is not used: {}", port.number,
                           port.device, error.what());
    }
  }
  if (devices.empty()) throw *first;
  return devices;
}

std::unique_ptr<Transport> make(const TransportContext& context) {
  if (context.config->tls) throw Error(ErrorKind::unavailable, kNoTls);
  const std::vector<qp::Port> ports = qp::active_ports(context.config->rdma_devices);
  if (ports.empty())
    throw Error(ErrorKind::unavailable,
                fmt::format("no port of an RDMA device that TUTTI_RDMA_DEVICES={} allows is up",
                            context.config->rdma_devices));
  return make_over(context, open_all(ports, context));
}

}  // namespace

std::unique_ptr<Transport> make_over(const TransportContext& context,
                                     std::vector<std::shared_ptr<qp::Device>> ports, int at_once) {
  const int paths = context.config != nullptr ? context.config->rdma_paths : 0;
  return qp::make_over(context, std::move(ports), link_of(10, 1), paths, at_once);
}

TransportEntry entry() { return {"rdma", place, reach, make}; }

}  // namespace tutti::rdma
