#include "transport/rdma/rdma.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <vector>

#include <tutti/error.hpp>

#include "common/text.h"
#include "transport/mesh/part.h"
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

// A place is the kind of network and its rate, as "Ethernet 100".
std::optional<std::string> place(const TransportContext& context) {
  if (context.config == nullptr) return std::nullopt;
  const std::vector<qp::Port> ports = qp::active_ports(context.config->rdma_devices);
  if (ports.empty()) return std::nullopt;
  return fmt::format("{} {}", ports[0].ethernet ? "Ethernet" : "InfiniBand", ports[0].gigabits);
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

std::unique_ptr<Transport> make(const TransportContext& context) {
  if (context.config->tls)
    throw Error(ErrorKind::unavailable,
                "TUTTI_TLS asks for encryption, which RDMA devices do not offer");
  const std::vector<qp::Port> ports = qp::active_ports(context.config->rdma_devices);
  if (ports.empty())
    throw Error(ErrorKind::unavailable,
                fmt::format("no port of an RDMA device that TUTTI_RDMA_DEVICES={} allows is up",
                            context.config->rdma_devices));
  return make_over(context, open_device(ports[0], *context.config, *context.random));
}

}  // namespace

std::unique_ptr<Transport> make_over(const TransportContext& context,
                                     const std::shared_ptr<qp::Device>& device) {
  return qp::make_over(context, device, link_of(10));
}

TransportEntry entry() { return {"rdma", place, reach, make}; }

}  // namespace tutti::rdma
