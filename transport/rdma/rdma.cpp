#include "transport/rdma/rdma.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <chrono>
#include <optional>
#include <thread>
#include <vector>

#include <tutti/error.hpp>

#include "common/text.h"
#include "transport/mesh/part.h"
#include "transport/rdma/endpoint.h"
#include "transport/rdma/ibverbs.h"
#include "transport/rdma/introduction.h"
#include "transport/rdma/ports.h"

namespace tutti::rdma {
namespace {

// close() waits for so long until the status page has left.
constexpr std::chrono::milliseconds kGoodbye{1000};
constexpr std::int64_t kBytesOfGigabit = 125'000'000;

LinkCapabilities link_of(std::int64_t gigabits) {
  LinkCapabilities link;
  link.largest_message = mesh::kLargestMessage;
  link.may_fail = true;
  link.latency_ps = 3'000'000;
  link.message_ps = 500'000;
  link.bytes_per_second = gigabits * kBytesOfGigabit;
  return link;
}

LinkCapabilities link_of(const TransportContext& context, const Subset& subset) {
  LinkCapabilities link = link_of(10);
  link.largest_message = mesh::largest_message(context, subset);
  return link;
}

using Part = mesh::Part<Endpoint, Connection, Group>;

class RdmaTransport final : public Part {
 public:
  /// Makes the first transport, and with it the endpoint.
  RdmaTransport(const TransportContext& context, std::shared_ptr<Device> device)
      : RdmaTransport(context,
                      std::make_shared<Endpoint>(context.size, *context.clock, std::move(device),
                                                 context.log),
                      whole(context)) {
    // A rank that may not lock the memory of one connection says so before it offers any.
    if (context.size > 1) endpoint_->make_connection();
    listen("RDMA");
  }

  /// The members of `subset` are ranks of the endpoint.
  RdmaTransport(const TransportContext& context, std::shared_ptr<Endpoint> endpoint,
                const Subset& subset)
      : Part(context, std::move(endpoint), subset, link_of(context, subset)) {}

  ~RdmaTransport() override {
    if (!is_owner()) return;  // another thread of the parent may have held a lock
    close();
    leave();
  }

  void connect(std::span<const std::string> addresses, TimePoint deadline) override;
  std::string why_unconnected(int peer) const override {
    return why_unconnected_.empty() ? "" : why_unconnected_[static_cast<std::size_t>(peer)];
  }

  SendChannel& sender(int peer, int number) override {
    return connection(peer).channel(group(peer), number).sender;
  }
  RecvChannel& receiver(int peer, int number) override {
    return connection(peer).channel(group(peer), number).receiver;
  }
  bool all_left() override;

  std::unique_ptr<Transport> split(const Subset& subset) override {
    return std::make_unique<RdmaTransport>(context_, endpoint_, of_endpoint(subset));
  }
  std::shared_ptr<void> register_memory(std::byte* data, std::size_t bytes) override {
    return endpoint_->registrations()->add(data, bytes, true);
  }
  std::size_t memory_bytes() const override;
  void close() noexcept override;

 private:
  std::vector<std::string> why_unconnected_;  // by peer
};

void RdmaTransport::connect(std::span<const std::string> addresses, TimePoint deadline) {
  mesh::Connections joined = connect_mesh(addresses, deadline);
  std::vector<std::optional<Introduction>> peers(joined.data.size());
  for (std::size_t rank = 0; rank < peers.size(); ++rank) {
    if (!joined.data[rank]) continue;
    std::unique_ptr<Connection> connection;
    std::string why;
    try {
      connection = endpoint_->make_connection();
    } catch (const Error& error) {
      why = error.what();
    }
    peers[rank].emplace(std::move(connection), std::move(why), std::move(joined.data[rank]));
  }
  introduce(peers, context_, deadline);
  if (!joined.lifelines.empty()) endpoint_->watch_lives(std::move(joined.lifelines));
  why_unconnected_.resize(peers.size());
  for (std::size_t rank = 0; rank < peers.size(); ++rank) {
    if (!peers[rank]) continue;
    why_unconnected_[rank] = peers[rank]->why_not();
    if (why_unconnected_[rank].empty())
      endpoint_->add_peer(static_cast<int>(rank), peers[rank]->take_connection(),
                          peers[rank]->take_control());
  }
  add_groups();
}

bool RdmaTransport::all_left() {
  bool left = true;
  for_each([&](Connection& connection, const Group& group) {
    if (!connection.has_unsent()) return;
    connection.pump();
    left = left && !connection.has_unsent_of(group);
  });
  return left;
}

// The slots are those of the endpoint's first communicator.
std::size_t RdmaTransport::memory_bytes() const {
  std::size_t bytes = Part::memory_bytes();
  if (subset_.numbers.empty())
    for_each([&](const Connection&, const Group&) { bytes += Slots::kBytes; });
  return bytes;
}

void RdmaTransport::close() noexcept {
  if (!begin_close()) return;
  const auto deadline = std::chrono::steady_clock::now() + kGoodbye;
  for_each([&](Connection& to, Group& group) {
    to.revoke(group);
    to.put_status_page(group);
    while (to.has_unsent_of(group) && std::chrono::steady_clock::now() < deadline) {
      to.pump();
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  });
}

// A place is the kind of network and its rate, as "Ethernet 100".
std::optional<std::string> place(const TransportContext& context) {
  if (context.config == nullptr) return std::nullopt;
  const std::vector<Port> ports = active_ports(context.config->rdma_devices);
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
  const std::vector<Port> ports = active_ports(context.config->rdma_devices);
  if (ports.empty())
    throw Error(ErrorKind::unavailable,
                fmt::format("no port of an RDMA device that TUTTI_RDMA_DEVICES={} allows is up",
                            context.config->rdma_devices));
  return make_over(context, open_device(ports[0], *context.config, *context.random));
}

}  // namespace

std::unique_ptr<Transport> make_over(const TransportContext& context,
                                     std::shared_ptr<Device> device) {
  return std::make_unique<RdmaTransport>(context, std::move(device));
}

TransportEntry entry() { return {"rdma", place, reach, make}; }

}  // namespace tutti::rdma
