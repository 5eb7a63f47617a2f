// Makes queue pairs by libibverbs.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "transport/queue_pair/device.h"
#include "transport/queue_pair/ports.h"
#include "transport/rdma/libibverbs.h"

namespace tutti::rdma {

using qp::Completion;
using qp::Device;
using qp::Piece;
using qp::Port;
using qp::QueueLimits;
using qp::QueuePair;
using qp::ReadLimits;
using qp::Region;

/// Holds an open device, which all of its queue pairs share and keep open.
struct Context {
  Library library;
  ibv_context* device = nullptr;
  ibv_comp_channel* events = nullptr;
  Port port;
  ibv_port_attr attributes{};
  ibv_device_attr limits{};
  ibv_gid gid{};
  std::uint8_t gid_index = 0, traffic_class = 0, service_level = 0;
  std::uint16_t pkey_index = 0;

  Context() = default;
  ~Context() {
    if (events != nullptr) library.destroy_comp_channel(events);
    if (device != nullptr) library.close_device(device);
  }
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;
};

/// Makes a queue pair whose first packet has the given number. Throws `unavailable`.
std::unique_ptr<QueuePair> make_queue_pair(std::shared_ptr<Context> context,
                                           const QueueLimits& limits, void* owner,
                                           std::uint32_t first_packet);

/// The largest number of a packet.
inline constexpr std::uint32_t kMost24Bits = (1u << 24) - 1;

/// Throws `unavailable` with what the device refuses and the system's reason.
[[noreturn]] void refuse(const std::string& what, int error);

}  // namespace tutti::rdma
