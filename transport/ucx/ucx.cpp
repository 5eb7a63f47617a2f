#include "transport/ucx/ucx.h"

#include <fmt/format.h>
#include <net/if.h>

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include <tutti/error.hpp>

#include "common/environment.h"
#include "common/text.h"
#include "transport/mesh/address.h"
#include "transport/mesh/part.h"
#include "transport/queue_pair/frame.h"
#include "transport/queue_pair/ports.h"
#include "transport/queue_pair/transport.h"
#include "transport/ucx/open.h"

namespace tutti::ucx {
namespace {

constexpr std::int64_t kBytesOfGigabit = 125'000'000;
constexpr std::int64_t kTcpGigabits = 8;
constexpr const char* kNoTls = "TUTTI_TLS asks for encryption, which UCX does not offer";

// These are the places of ranks that do not use it, with their reasons.
struct Obstacle {
  std::string_view place;
  std::string_view why;
};
constexpr Obstacle kObstacles[] = {
    {"unbuilt", "its build was made without UCX's headers (libucx-dev)"},
    {"encrypted", kNoTls},
    {"plain",
     "its machine has no RDMA device that is up, and over plain TCP `tcp` does the same, "
     "authenticated; TUTTI_TRANSPORTS=ucx takes it all the same"}};

LinkCapabilities link_of(std::int64_t gigabits, bool device) {
  LinkCapabilities link;
  link.largest_message = mesh::kLargestMessage;
  link.may_fail = true;
  link.registered_bytes = qp::slot_bytes_of(1);
  link.latency_ps = device ? 4'000'000 : 35'000'000;
  link.message_ps = device ? 800'000 : 3'000'000;
  link.bytes_per_second = gigabits * kBytesOfGigabit;
  return link;
}

bool is_named(const Config& config) {
  const auto names = split(config.transports, ',');
  return std::find(names.begin(), names.end(), "ucx") != names.end();
}

// A place is "device" or "tcp" with a rate in Gb/s, or that of an obstacle.
std::optional<std::string> place(const TransportContext& context) {
  if (context.config == nullptr) return std::nullopt;
  const Config& config = *context.config;
  if (!is_built()) return std::string(kObstacles[0].place);
  if (config.tls) return std::string(kObstacles[1].place);
  const std::vector<qp::Port> ports = qp::active_ports(config.rdma_devices);
  if (!ports.empty()) return fmt::format("device {}", ports[0].gigabits);
  if (is_named(config)) return fmt::format("tcp {}", kTcpGigabits);
  return std::string(kObstacles[2].place);
}

Reach reach(std::string_view place, std::string_view other) {
  std::int64_t gigabits = 10'000;
  bool devices = true;
  for (const std::string_view its : {place, other}) {
    for (const Obstacle& obstacle : kObstacles)
      if (its == obstacle.place) return {std::string(obstacle.why), {}};
    devices = devices && its.starts_with("device ");
    const auto rate =
        parse_number<std::int64_t>(its.substr(std::min(its.size(), its.find(' ') + 1)));
    gigabits = std::min(gigabits, std::max<std::int64_t>(rate.value_or(1), 1));
  }
  return {{}, link_of(gigabits, devices)};
}

// Returns the devices that TUTTI_INTERFACES and TUTTI_RDMA_DEVICES allow, as UCX_NET_DEVICES lists
// them.
std::string net_devices(const Config& config) {
  std::vector<std::string> names;
  if (struct if_nameindex* const all = if_nameindex(); all != nullptr) {
    for (const struct if_nameindex* each = all; each->if_index != 0; ++each)
      if (mesh::allows(config.interfaces, each->if_name)) names.emplace_back(each->if_name);
    if_freenameindex(all);
  }
  for (const qp::Port& port : qp::active_ports(config.rdma_devices))
    names.push_back(fmt::format("{}:{}", port.device, port.number));
  return join(names, ",");
}

// Returns the settings that UCX is given; the user's own settings of UCX come before them. UCX's
// TCP lets whoever reaches its port write to memory of this process, so it is left out if there is
// a device.
Settings settings_of(const Config& config, bool device) {
  const std::vector<std::string_view> environment = process_environment();
  Settings settings;
  const bool limited = config.interfaces != "auto" || config.rdma_devices != "auto";
  if (limited && !find(environment, "UCX_NET_DEVICES"))
    settings.emplace_back("NET_DEVICES", net_devices(config));
  if (device && !find(environment, "UCX_TLS")) settings.emplace_back("TLS", "^tcp");
  return settings;
}

std::unique_ptr<Transport> make(const TransportContext& context) {
  const Config& config = *context.config;
  if (config.tls) throw Error(ErrorKind::unavailable, kNoTls);
  const bool device = !qp::active_ports(config.rdma_devices).empty();
  if (!device && !config.trust_network && context.log != nullptr)
    context.log->write(LogLevel::warn,
                       "UCX goes over TCP: whoever reaches its port can change memory of this "
                       "process. Set TUTTI_TRUST_NETWORK=yes where nobody else does, or use `tcp`");
  return qp::make_over(context,
                       {open_device(settings_of(config, device), *context.random, context.log)},
                       link_of(device ? 10 : kTcpGigabits, device), 1, context.size);
}

}  // namespace

TransportEntry entry() { return {"ucx", place, reach, make}; }

}  // namespace tutti::ucx
