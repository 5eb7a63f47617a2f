#include "transport/rdma/ibverbs.h"

#include <fmt/format.h>

#include <tutti/error.hpp>

#ifdef TUTTI_HAS_VERBS
#include <fcntl.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <optional>
#include <utility>

#include "transport/rdma/ib_queue_pair.h"

namespace tutti::rdma {
namespace {

// Asks the device for its port. The functions of a device are at the end of its record, which an
// older provider fills less far. Returns false with errno where it does not say.
bool ask_port(const Context& its, ibv_port_attr& attributes) noexcept {
  const verbs_context* const verbs = verbs_get_ctx(its.device);
  return verbs != nullptr && verbs->sz >= sizeof *verbs - offsetof(verbs_context, query_port) &&
         verbs->query_port != nullptr &&
         verbs->query_port(its.device, its.port.number, &attributes, sizeof attributes) == 0;
}

class IbDevice final : public Device {
 public:
  IbDevice(std::shared_ptr<Context> context, Random& random)
      : context_(std::move(context)), random_(random) {}

  std::unique_ptr<QueuePair> make(const QueueLimits& limits, void* owner) override {
    const auto packet = static_cast<std::uint32_t>(random_.next()) & kMost24Bits;
    return make_queue_pair(context_, limits, owner, packet);
  }
  const char* name() const noexcept override { return "RDMA"; }
  std::string port() const override {
    return fmt::format("{}/{}", context_->port.device, context_->port.number);
  }
  bool is_up() const noexcept override {
    ibv_port_attr now{};
    return !ask_port(*context_, now) || now.state == IBV_PORT_ACTIVE;
  }
  int event_fd() const noexcept override { return context_->events->fd; }
  void take_events(std::vector<void*>& owners) override {
    ibv_cq* queue = nullptr;
    for (void* owner = nullptr;
         context_->library.get_cq_event(context_->events, &queue, &owner) == 0;) {
      context_->library.ack_cq_events(queue, 1);
      owners.push_back(owner);
    }
  }

 private:
  const std::shared_ptr<Context> context_;
  Random& random_;
};

// Returns how well a GID of RoCE serves: version 2 is routed and passes through ordinary networks,
// and an address of IPv4 is the one that administrators give.
int worth_of(const ibv_gid_entry& entry) {
  constexpr std::array<std::uint8_t, 12> kIpv4{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  const bool ipv4 = std::equal(kIpv4.begin(), kIpv4.end(), entry.gid.raw);
  const bool link_local = ipv4 ? entry.gid.raw[12] == 169 && entry.gid.raw[13] == 254
                               : entry.gid.raw[0] == 0xfe && (entry.gid.raw[1] & 0xc0) == 0x80;
  return (entry.gid_type == IBV_GID_TYPE_ROCE_V2 ? 4 : 0) + (link_local ? 0 : 2) + (ipv4 ? 1 : 0);
}

void choose_gid(Context& its, int wanted) {
  std::optional<int> best;
  for (int index = 0; index < std::min(its.attributes.gid_tbl_len, 256); ++index) {
    ibv_gid_entry entry{};
    if ((wanted >= 0 && index != wanted) ||
        its.library.query_gid_ex(its.device, its.port.number, static_cast<std::uint32_t>(index),
                                 &entry, 0, sizeof entry) != 0)
      continue;
    const int worth = its.port.ethernet ? worth_of(entry) : -index;
    if (best && *best >= worth) continue;
    best = worth;
    its.gid = entry.gid;
    its.gid_index = static_cast<std::uint8_t>(index);
  }
  if (best) return;
  if (wanted >= 0)
    throw Error(ErrorKind::usage,
                fmt::format("port {} of {} has no GID {}, which TUTTI_RDMA_GID_INDEX asks for",
                            its.port.number, its.port.device, wanted));
  throw Error(ErrorKind::unavailable,
              fmt::format("port {} of {} has no GID: give its network interface an address",
                          its.port.number, its.port.device));
}

ibv_context* open_by_name(const Library& library, const std::string& name) {
  int count = 0;
  ibv_device** const list = library.get_device_list(&count);
  if (list == nullptr) refuse("libibverbs lists no devices", errno);
  ibv_context* opened = nullptr;
  int error = ENODEV;
  for (int i = 0; i < count && opened == nullptr; ++i)
    if (name == library.get_device_name(list[i])) {
      opened = library.open_device(list[i]);
      error = errno;
    }
  library.free_device_list(list);
  if (opened == nullptr)
    refuse(
        fmt::format("cannot open the RDMA device {} (does this process have the right to, and is "
                    "the device's provider installed?)",
                    name),
        error);
  return opened;
}

}  // namespace

std::shared_ptr<Device> open_device(const Port& port, const Config& config, Random& random) {
  auto context = std::make_shared<Context>();
  context->library = load_libibverbs();
  context->port = port;
  context->device = open_by_name(context->library, port.device);
  if (!ask_port(*context, context->attributes))
    refuse(fmt::format("cannot ask for port {} of {}", port.number, port.device), errno);
  const int error = context->library.query_device(context->device, &context->limits);
  if (error != 0) refuse(fmt::format("cannot ask for the limits of {}", port.device), error);
  context->traffic_class = static_cast<std::uint8_t>(config.rdma_traffic_class);
  context->service_level = static_cast<std::uint8_t>(config.rdma_service_level);
  context->pkey_index = static_cast<std::uint16_t>(config.rdma_pkey_index);
  choose_gid(*context, config.rdma_gid_index);
  context->events = context->library.create_comp_channel(context->device);
  if (context->events == nullptr) refuse("no event channel", errno);
  const int flags = fcntl(context->events->fd, F_GETFL);
  if (flags < 0 || fcntl(context->events->fd, F_SETFL, flags | O_NONBLOCK) != 0)
    refuse("the event channel cannot be polled", errno);
  return std::make_shared<IbDevice>(std::move(context), random);
}

}  // namespace tutti::rdma

#else

namespace tutti::rdma {

std::shared_ptr<qp::Device> open_device(const qp::Port& port, const Config&, Random&) {
  throw Error(ErrorKind::unavailable,
              fmt::format("this build cannot use the RDMA device {}: it was made without "
                          "libibverbs's headers (libibverbs-dev)",
                          port.device));
}

}  // namespace tutti::rdma

#endif
