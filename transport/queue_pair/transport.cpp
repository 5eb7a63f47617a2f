#include "transport/queue_pair/transport.h"

#include <algorithm>
#include <cassert>
#include <chrono>
#include <cstdlib>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <tutti/error.hpp>

#include "transport/mesh/part.h"
#include "transport/queue_pair/endpoint.h"
#include "transport/queue_pair/introduction.h"

namespace tutti::qp {
namespace {

// close() waits for so long until the status page has left.
constexpr std::chrono::milliseconds kGoodbye{1000};

LinkCapabilities link_for(LinkCapabilities link, const TransportContext& context,
                          const Subset& subset) {
  link.may_fail = true;
  link.largest_message = mesh::largest_message(context, subset);
  return link;
}

using Part = mesh::Part<Endpoint, Connection, Group>;

class PairTransport final : public Part {
 public:
  /// Makes the first transport, and with it the endpoint.
  PairTransport(const TransportContext& context, std::vector<std::shared_ptr<Device>> devices,
                const LinkCapabilities& link, std::uint32_t paths, int at_once)
      : PairTransport(context,
                      std::make_shared<Endpoint>(context.size, *context.clock, std::move(devices),
                                                 context.log, paths),
                      whole(context), link) {
    at_once_ = at_once;
    // A rank that may not lock the memory of one connection says so before it offers any.
    if (context.size > 1) endpoint_->make_connection();
    listen(endpoint_->device(0).name());
  }

  /// The members of `subset` are ranks of the endpoint.
  PairTransport(const TransportContext& context, std::shared_ptr<Endpoint> endpoint,
                const Subset& subset, const LinkCapabilities& link)
      : Part(context, std::move(endpoint), subset, link_for(link, context, subset)) {}

  ~PairTransport() override {
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
    return std::make_unique<PairTransport>(context_, endpoint_, of_endpoint(subset),
                                           link(subset_.rank));
  }
  std::shared_ptr<void> register_memory(std::byte* data, std::size_t bytes) override {
    return endpoint_->registrations()->add(data, bytes, true);
  }
  std::size_t memory_bytes() const override;
  void close() noexcept override;

 private:
  bool connects_at_once(int peer) const noexcept {
    const int distance = std::abs(peer - context_.rank);
    return 2 * std::min(distance, context_.size - distance) <= at_once_;
  }

  int at_once_ = 0;                           // see make_over()
  std::vector<std::string> why_unconnected_;  // by peer
};

void PairTransport::connect(std::span<const std::string> addresses, TimePoint deadline) {
  mesh::Connections joined = connect_mesh(addresses, deadline);
  std::vector<std::optional<Introduction>> peers(joined.data.size());
  for (std::size_t rank = 0; rank < peers.size(); ++rank) {
    if (!joined.data[rank]) continue;
    std::unique_ptr<Connection> connection;
    std::string why;
    try {
      connection = endpoint_->make_connection(connects_at_once(static_cast<int>(rank)));
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
      endpoint_->add_peer(static_cast<int>(rank),
                          peers[rank]->take_connection(static_cast<int>(rank),
                                                       static_cast<int>(rank) > context_.rank));
  }
  add_groups();
}

bool PairTransport::all_left() {
  bool left = true;
  for_each([&](Connection& connection, const Group& group) {
    if (!connection.has_unsent()) return;
    connection.pump();
    left = left && !connection.has_unsent_of(group);
  });
  return left;
}

// The slots are those of the endpoint's first communicator.
std::size_t PairTransport::memory_bytes() const {
  std::size_t bytes = Part::memory_bytes();
  if (subset_.numbers.empty())
    for_each([&](const Connection& to, const Group&) { bytes += to.slot_bytes(); });
  return bytes;
}

void PairTransport::close() noexcept {
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

}  // namespace

std::unique_ptr<Transport> make_over(const TransportContext& context,
                                     std::vector<std::shared_ptr<Device>> devices,
                                     const LinkCapabilities& link, int paths, int at_once) {
  return std::make_unique<PairTransport>(context, std::move(devices), link,
                                         static_cast<std::uint32_t>(paths), at_once);
}

}  // namespace tutti::qp
