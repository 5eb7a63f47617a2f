#include "transport/tcp/tcp.h"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cassert>
#include <chrono>
#include <limits>
#include <numeric>
#include <vector>

#include <tutti/error.hpp>

#include "rendezvous/host.h"
#include "transport/memory_channel.h"
#include "transport/mesh/mesh.h"
#include "transport/tcp/endpoint.h"

namespace tutti::tcp {
namespace {

// How long close() waits for room in the socket for its status page.
constexpr std::chrono::milliseconds kGoodbye{1000};

// Messages of this size keep a network of 300 Mb/s and 100 ms busy (see kWindow), however small the
// rings are that ranks of one machine use.
constexpr std::size_t kLeastLargestMessage = 64 << 10;
static_assert(kLeastLargestMessage % kCacheLine == 0);

LinkCapabilities link_of(bool one_machine) {
  LinkCapabilities link;
  link.latency_ps = one_machine ? 8'000'000 : 30'000'000;
  link.message_ps = 2'000'000;  // a system call
  link.bytes_per_second = one_machine ? 3'000'000'000 : 1'000'000'000;
  return link;
}

LinkCapabilities link_of(const TransportContext& context, const Subset& subset) {
  LinkCapabilities link = link_of(false);
  link.largest_message = context.message_limit != 0
                             ? subset.max_message_bytes
                             : std::max(subset.max_message_bytes, kLeastLargestMessage);
  assert(link.largest_message >= subset.max_message_bytes);
  return link;
}

/// One communicator's part of an endpoint, which consists of one group of each connection. It is
/// used only by its communicator's thread, except for what Transport permits to any thread.
class TcpTransport final : public Transport {
 public:
  /// Makes the first transport, and with it the endpoint.
  explicit TcpTransport(const TransportContext& context)
      : TcpTransport(
            context,
            std::make_shared<Endpoint>(context.size, *context.clock, context.config->checksum),
            whole(context)) {
    mesh_.emplace(context_, "TCP");
  }

  /// The members of `subset` are ranks of the endpoint.
  TcpTransport(const TransportContext& context, std::shared_ptr<Endpoint> endpoint, Subset subset)
      : context_(context),
        endpoint_(std::move(endpoint)),
        subset_(std::move(subset)),
        own_status_page_(subset_.status_page != nullptr ? nullptr : std::make_unique<StatusPage>()),
        status_page_(subset_.status_page != nullptr ? *subset_.status_page : *own_status_page_),
        link_(link_of(context_, subset_)),
        group_{link_.largest_message, &status_page_,
               context.doorbell != nullptr ? context.doorbell->fd() : -1} {}

  ~TcpTransport() override {
    close();
    for (std::size_t peer = 0; peer < groups_.size(); ++peer)
      if (groups_[peer] != nullptr) connection(static_cast<int>(peer)).remove(*groups_[peer]);
  }

  std::string address() const override { return mesh_ ? mesh_->address() : std::string(); }
  void connect(std::span<const std::string> addresses, TimePoint deadline) override;
  std::vector<int> join() override;

  SendChannel& sender(int peer, int number) override {
    return connection(peer).sender(group(peer), number);
  }
  RecvChannel& receiver(int peer, int number) override {
    return connection(peer).receiver(group(peer), number);
  }
  const LinkCapabilities& link(int) const override { return link_; }

  void progress() override { endpoint_->progress(); }
  void arm() override { endpoint_->arm(); }
  void disarm() noexcept override { endpoint_->disarm(); }
  bool leaves_at_once() const override { return false; }
  bool all_left() override {
    if (!endpoint_->has_unsent()) return true;
    endpoint_->flush();
    return !endpoint_->has_unsent() || all_left_of_groups();
  }
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
    return std::make_unique<TcpTransport>(context_, endpoint_, std::move(of_endpoint));
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
  bool all_left_of_groups() const;

  void add_groups();

  const TransportContext context_;  // the context of the endpoint's first communicator
  const std::shared_ptr<Endpoint> endpoint_;
  const Subset subset_;
  const pid_t owner_ = getpid();
  std::optional<mesh::Mesh> mesh_;  // of the endpoint's first communicator, until connected
  const std::unique_ptr<StatusPage> own_status_page_;
  StatusPage& status_page_;
  const LinkCapabilities link_;
  const GroupContext group_;
  // Indexed by peer, once connected; null where another transport reaches the peer.
  std::vector<std::unique_ptr<Group>> groups_;
  bool closed_ = false;
};

void TcpTransport::connect(std::span<const std::string> addresses, TimePoint deadline) {
  assert(subset_.numbers.empty() && mesh_);
  mesh::Connections joined = mesh_->connect(addresses, deadline);
  mesh_.reset();
  if (!joined.lifelines.empty()) endpoint_->watch_lives(std::move(joined.lifelines));
  for (std::size_t rank = 0; rank < joined.data.size(); ++rank)
    if (joined.data[rank])
      endpoint_->add_peer(static_cast<int>(rank), std::move(joined.data[rank]));
  add_groups();
}

void TcpTransport::add_groups() {
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
std::vector<int> TcpTransport::join() {
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

PeerStatus TcpTransport::status(int peer) {
  if (peer == subset_.rank) return status_on(status_page_);
  // Another thread may read the peer's goodbye and the end at this moment: where the end is seen,
  // the goodbye before it is, too.
  const Connection::End end = connection(peer).how_ended();
  PeerStatus said = status_on(group(peer).status_page);
  said.gone = end == Connection::End::lost;
  if (end == Connection::End::none || said.state != PeerStatus::State::alive) return said;
  using State = PeerStatus::State;
  said.state = said.gone                         ? State::lost
               : end == Connection::End::corrupt ? State::corrupt
                                                 : State::no_memory;
  said.why = connection(peer).why_ended();
  return said;
}

std::size_t TcpTransport::memory_bytes() const {
  std::size_t bytes = sizeof(StatusPage);
  for (std::size_t peer = 0; peer < groups_.size(); ++peer)
    if (groups_[peer] != nullptr)
      bytes += connection(static_cast<int>(peer)).memory_bytes(*groups_[peer]);
  return bytes;
}

// Whether all messages of this communicator have left. Those of other communicators may wait for a
// peer that does not read.
bool TcpTransport::all_left_of_groups() const {
  for (int peer = 0; peer < size(); ++peer)
    if (peer != subset_.rank && is_connected(peer) && connection(peer).has_unsent_of(group(peer)))
      return false;
  return true;
}

void TcpTransport::close() noexcept {
  if (closed_ || getpid() != owner_) return;
  closed_ = true;
  status_page_.close();
  const auto deadline = std::chrono::steady_clock::now() + kGoodbye;
  for (std::size_t rank = 0; rank < groups_.size(); ++rank) {
    if (groups_[rank] == nullptr) continue;
    Connection& to = connection(static_cast<int>(rank));
    to.revoke(*groups_[rank]);
    to.put_status_page(*groups_[rank]);
    while (!to.flush() && std::chrono::steady_clock::now() < deadline) {
      pollfd writable{to.socket(), POLLOUT, 0};
      ::poll(&writable, 1, 10);
    }
  }
}

std::optional<std::string> place(const TransportContext&) { return host_identity(); }

Reach reach(std::string_view place, std::string_view other) {
  return {{}, link_of(place == other)};
}

std::unique_ptr<Transport> make(const TransportContext& context) {
  return std::make_unique<TcpTransport>(context);
}

}  // namespace

TransportEntry entry() { return {"tcp", place, reach, make}; }

}  // namespace tutti::tcp
