#include "transport/rdma/rdma.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cassert>
#include <chrono>
#include <numeric>
#include <optional>
#include <thread>
#include <vector>

#include <tutti/error.hpp>

#include "common/text.h"
#include "transport/memory_channel.h"
#include "transport/mesh/mesh.h"
#include "transport/rdma/endpoint.h"
#include "transport/rdma/ibverbs.h"
#include "transport/rdma/introduction.h"
#include "transport/rdma/ports.h"

namespace tutti::rdma {
namespace {

// close() waits for so long until the status page has left.
constexpr std::chrono::milliseconds kGoodbye{1000};
// Messages of this size keep a device busy, however small the rings are that ranks of one machine
// use.
constexpr std::size_t kLeastLargestMessage = 64 << 10;
constexpr std::int64_t kBytesOfGigabit = 125'000'000;

LinkCapabilities link_of(std::int64_t gigabits) {
  LinkCapabilities link;
  link.may_fail = true;
  link.latency_ps = 3'000'000;
  link.message_ps = 500'000;
  link.bytes_per_second = gigabits * kBytesOfGigabit;
  return link;
}

LinkCapabilities link_of(const TransportContext& context, const Subset& subset) {
  LinkCapabilities link = link_of(10);
  link.largest_message = context.message_limit != 0
                             ? subset.max_message_bytes
                             : std::max(subset.max_message_bytes, kLeastLargestMessage);
  return link;
}

/// Represents one communicator's part of an endpoint, which consists of one group of each
/// connection. It is used only by its communicator's thread, except for what Transport permits to
/// any thread.
class RdmaTransport final : public Transport {
 public:
  /// Makes the first transport, and with it the endpoint.
  RdmaTransport(const TransportContext& context, std::shared_ptr<Device> device)
      : RdmaTransport(context,
                      std::make_shared<Endpoint>(context.size, *context.clock, std::move(device)),
                      whole(context)) {
    // A rank that may not lock the memory of one connection says so before it offers any.
    if (context.size > 1) endpoint_->make_connection();
    mesh_.emplace(context_, "RDMA");
  }

  /// The members of `subset` are ranks of the endpoint.
  RdmaTransport(const TransportContext& context, std::shared_ptr<Endpoint> endpoint, Subset subset)
      : context_(context),
        endpoint_(std::move(endpoint)),
        subset_(std::move(subset)),
        own_status_page_(subset_.status_page != nullptr ? nullptr : std::make_unique<StatusPage>()),
        status_page_(subset_.status_page != nullptr ? *subset_.status_page : *own_status_page_),
        link_(link_of(context_, subset_)),
        group_{link_.largest_message, &status_page_,
               context.doorbell != nullptr ? context.doorbell->fd() : -1} {}

  ~RdmaTransport() override {
    if (getpid() != owner_) return;  // another thread of the parent may have held a lock
    close();
    for (std::size_t peer = 0; peer < groups_.size(); ++peer)
      if (groups_[peer] != nullptr) connection(static_cast<int>(peer)).remove(*groups_[peer]);
  }

  std::string address() const override { return mesh_ ? mesh_->address() : std::string(); }
  void connect(std::span<const std::string> addresses, TimePoint deadline) override;
  std::string why_unconnected(int peer) const override {
    return why_unconnected_.empty() ? "" : why_unconnected_[static_cast<std::size_t>(peer)];
  }
  std::vector<int> join() override;

  SendChannel& sender(int peer, int number) override {
    return connection(peer).channel(group(peer), number).sender;
  }
  RecvChannel& receiver(int peer, int number) override {
    return connection(peer).channel(group(peer), number).receiver;
  }
  const LinkCapabilities& link(int) const override { return link_; }

  void progress() override { endpoint_->progress(); }
  void arm() override { endpoint_->arm(); }
  void disarm() noexcept override { endpoint_->disarm(); }
  bool leaves_at_once() const override { return false; }
  bool all_left() override;
  int wait_fd() const override { return endpoint_->wait_fd(); }

  PeerStatus status(int peer) override;
  StatusPage& own_status_page() override { return status_page_; }
  const StatusPage* status_page(int peer) override {
    return peer == subset_.rank ? &status_page_ : connection(peer).status_page(group(peer));
  }
  const StatusPage* recent_status_page(int peer) override {
    return peer == subset_.rank ? &status_page_ : connection(peer).recent_status_page(group(peer));
  }
  bool background_progress() override {
    endpoint_->background_progress();
    return true;
  }
  void wake(int peer) override { connection(peer).put_status_page(group(peer)); }
  void revoke(int peer) noexcept override { connection(peer).revoke(group(peer)); }
  bool prefers_zero_copy() const noexcept override { return true; }

  std::unique_ptr<Transport> split(const Subset& subset) override {
    Subset of_endpoint = subset;
    for (int& member : of_endpoint.members)
      member = subset_.members[static_cast<std::size_t>(member)];
    return std::make_unique<RdmaTransport>(context_, endpoint_, std::move(of_endpoint));
  }
  std::size_t memory_bytes() const override;
  void close() noexcept override;

 private:
  static Subset whole(const TransportContext& context) {
    Subset all{
        {}, context.rank, {}, context.data_bytes, context.max_message_bytes, context.status_page};
    all.members.resize(static_cast<std::size_t>(context.size));
    std::iota(all.members.begin(), all.members.end(), 0);
    return all;
  }

  int size() const noexcept { return static_cast<int>(subset_.members.size()); }
  Connection& connection(int peer) const {
    assert(peer >= 0 && peer < size() && peer != subset_.rank);
    Connection* const found = endpoint_->peer(subset_.members[static_cast<std::size_t>(peer)]);
    assert(found != nullptr);
    return *found;
  }
  Group& group(int peer) const {
    assert(is_connected(peer));
    return *groups_[static_cast<std::size_t>(peer)];
  }
  bool is_connected(int peer) const { return groups_[static_cast<std::size_t>(peer)] != nullptr; }
  void add_groups();

  const TransportContext context_;  // the context of the endpoint's first communicator
  const std::shared_ptr<Endpoint> endpoint_;
  const Subset subset_;
  const pid_t owner_ = getpid();
  std::optional<mesh::Mesh> mesh_;  // of the endpoint's first communicator, until connected
  std::vector<std::string> why_unconnected_;  // by peer
  const std::unique_ptr<StatusPage> own_status_page_;
  StatusPage& status_page_;
  const LinkCapabilities link_;
  const GroupContext group_;
  // Indexed by peer, once connected; null where another transport reaches the peer.
  std::vector<std::unique_ptr<Group>> groups_;
  bool closed_ = false;
};

void RdmaTransport::connect(std::span<const std::string> addresses, TimePoint deadline) {
  assert(subset_.numbers.empty() && mesh_);
  mesh::Connections joined = mesh_->connect(addresses, deadline);
  mesh_.reset();
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

void RdmaTransport::add_groups() {
  groups_.resize(subset_.members.size());
  for (int peer = 0; peer < size(); ++peer) {
    if (peer == subset_.rank) continue;
    Connection* const to = endpoint_->peer(subset_.members[static_cast<std::size_t>(peer)]);
    if (to == nullptr) continue;
    groups_[static_cast<std::size_t>(peer)] =
        std::make_unique<Group>(*to, group_, subset_.id_with(peer));
    to->add(group(peer));
  }
}

// Each rank sends its status page once it has made its groups, so that no message to it can arrive
// too early.
std::vector<int> RdmaTransport::join() {
  assert(!subset_.numbers.empty());
  const bool first = groups_.empty();
  if (first) add_groups();
  std::vector<int> missing;
  for (int peer = 0; peer < size(); ++peer) {
    if (peer == subset_.rank || !is_connected(peer)) continue;
    if (first) {
      connection(peer).put_status_page(group(peer));
      connection(peer).status_page(group(peer));
    }
    if (!connection(peer).has_status_page(group(peer))) missing.push_back(peer);
  }
  return missing;
}

PeerStatus RdmaTransport::status(int peer) {
  if (peer == subset_.rank) return status_on(status_page_);
  // Another thread may receive the peer's goodbye and the end at this moment: where the end is
  // seen, the goodbye before it is, too.
  const Connection::End end = connection(peer).how_ended();
  PeerStatus said = status_on(group(peer).status_page);
  said.gone = end == Connection::End::lost;
  if (end == Connection::End::none || said.state != PeerStatus::State::alive) return said;
  said.state = said.gone ? PeerStatus::State::lost : PeerStatus::State::no_memory;
  said.why = connection(peer).why_ended();
  return said;
}

bool RdmaTransport::all_left() {
  bool left = true;
  for (int peer = 0; peer < size(); ++peer) {
    if (peer == subset_.rank || !is_connected(peer) || !connection(peer).has_unsent()) continue;
    connection(peer).pump();
    left = left && !connection(peer).has_unsent_of(group(peer));
  }
  return left;
}

std::size_t RdmaTransport::memory_bytes() const {
  std::size_t bytes = sizeof(StatusPage);
  for (std::size_t peer = 0; peer < groups_.size(); ++peer)
    if (groups_[peer] != nullptr)
      bytes += connection(static_cast<int>(peer)).memory_bytes(*groups_[peer]);
  // The slots are those of the endpoint's first communicator.
  if (subset_.numbers.empty())
    bytes += Slots::kBytes * static_cast<std::size_t>(
                                 std::count_if(groups_.begin(), groups_.end(),
                                               [](const auto& group) { return group != nullptr; }));
  return bytes;
}

void RdmaTransport::close() noexcept {
  if (closed_ || getpid() != owner_) return;
  closed_ = true;
  status_page_.close();
  const auto deadline = std::chrono::steady_clock::now() + kGoodbye;
  for (std::size_t rank = 0; rank < groups_.size(); ++rank) {
    if (groups_[rank] == nullptr) continue;
    Connection& to = connection(static_cast<int>(rank));
    to.revoke(*groups_[rank]);
    to.put_status_page(*groups_[rank]);
    while (to.has_unsent_of(*groups_[rank]) && std::chrono::steady_clock::now() < deadline) {
      to.pump();
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  }
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
