// Implements what transports over connections to each peer have in common: a transport is one
// communicator's part of the connections, which it shares with those that are split off it.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <cassert>
#include <cstddef>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "transport/channel.h"
#include "transport/context.h"
#include "transport/mesh/group.h"
#include "transport/mesh/mesh.h"
#include "transport/ring/memory_channel.h"

namespace tutti::mesh {

/// Messages of this size keep a device busy, and a network of 300 Mb/s and 100 ms (see tcp's
/// kWindow), whatever size the rings have that ranks of one machine use.
inline constexpr std::size_t kLargestMessage = 64 << 10;
static_assert(kLargestMessage % kCacheLine == 0);

/// Returns LinkCapabilities::largest_message of connections: kLargestMessage, or a cache line for
/// each rank where that is more, since a step of a schedule may move a chunk of each rank.
inline std::size_t largest_message(const TransportContext& context, const Subset& subset) {
  return context.message_limit != 0 ? subset.max_message_bytes
                                    : std::max(kLargestMessage, subset.members.size() * kCacheLine);
}

/// Represents one communicator's part of an endpoint, which consists of one group of each
/// connection. It is used only by its communicator's thread, except for what Transport permits to
/// any thread. A derived class connects, and says how its channels are found, when all messages
/// have left, and how it closes; its destructor calls leave().
template <typename Endpoint, typename Connection, typename Group>
class Part : public Transport {
 public:
  std::string address() const override { return mesh_ ? mesh_->address() : std::string(); }
  std::vector<int> join() override;
  const LinkCapabilities& link(int) const override { return link_; }

  void progress() override { endpoint_->progress(); }
  void arm() override { endpoint_->arm(); }
  void disarm() noexcept override { endpoint_->disarm(); }
  bool leaves_at_once() const override { return false; }
  std::vector<int> wait_fds() const override { return {endpoint_->wait_fd()}; }

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
  std::size_t memory_bytes() const override;

 protected:
  /// The members of `subset` are ranks of the endpoint, or kElsewhere. `context` is that of its
  /// first communicator.
  Part(const TransportContext& context, std::shared_ptr<Endpoint> endpoint, Subset subset,
       const LinkCapabilities& link)
      : context_(context),
        endpoint_(std::move(endpoint)),
        subset_(std::move(subset)),
        own_status_page_(subset_.status_page.page != nullptr ? nullptr
                                                             : std::make_unique<StatusPage>()),
        status_page_(own_status_page_ != nullptr ? *own_status_page_ : *subset_.status_page.page),
        link_(link),
        group_{link_.largest_message, &status_page_,
               context.doorbell != nullptr ? context.doorbell->fd() : -1} {}

  /// Returns the subset of all ranks, for the endpoint's first communicator.
  static Subset whole(const TransportContext& context) {
    Subset all{
        {}, context.rank, {}, context.data_bytes, context.max_message_bytes, context.status_page};
    all.members.resize(static_cast<std::size_t>(context.size));
    std::iota(all.members.begin(), all.members.end(), 0);
    return all;
  }
  /// Begins to listen, for the endpoint's first communicator. Throws what Mesh() throws.
  void listen(std::string name) { mesh_.emplace(context_, std::move(name)); }
  /// Connects to all ranks that have an address, and closes the port.
  Connections connect_mesh(std::span<const std::string> addresses, TimePoint deadline) {
    assert(subset_.numbers.empty() && mesh_);
    Connections joined = mesh_->connect(addresses, deadline);
    mesh_.reset();
    return joined;
  }
  /// Returns the subset, whose members are ranks of this communicator, with ranks of the endpoint.
  Subset of_endpoint(Subset subset) const {
    for (int& member : subset.members)
      if (member != kElsewhere) member = subset_.members[static_cast<std::size_t>(member)];
    return subset;
  }
  /// Adds a group to each connection of the endpoint to a member.
  void add_groups();
  /// Takes the groups out of the connections.
  void leave() noexcept {
    for_each([](Connection& connection, Group& group) { connection.remove(group); });
  }

  int size() const noexcept { return static_cast<int>(subset_.members.size()); }
  bool is_connected(int peer) const { return groups_[static_cast<std::size_t>(peer)] != nullptr; }
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
  /// Calls `use` with the connection and the group of each peer that this transport reaches.
  template <typename Use>
  void for_each(Use&& use) const {
    for (std::size_t peer = 0; peer < groups_.size(); ++peer)
      if (groups_[peer] != nullptr) use(connection(static_cast<int>(peer)), *groups_[peer]);
  }
  /// Marks the part as closed, on its status page, too. Returns false where it was before, or in a
  /// forked child, whose parent goes on using it.
  bool begin_close() noexcept {
    if (closed_ || !is_owner()) return false;
    closed_ = true;
    // A page of another transport, which this one has shown to nobody, stays open.
    if (own_status_page_ != nullptr || joins_anybody()) status_page_.close();
    return true;
  }
  bool is_owner() const noexcept { return getpid() == owner_; }
  bool joins_anybody() const noexcept {
    return std::any_of(groups_.begin(), groups_.end(),
                       [](const auto& group) { return group != nullptr; });
  }

  const TransportContext context_;
  const std::shared_ptr<Endpoint> endpoint_;
  const Subset subset_;

 private:
  const pid_t owner_ = getpid();
  std::optional<Mesh> mesh_;  // of the endpoint's first communicator, until connected
  const std::unique_ptr<StatusPage> own_status_page_;
  StatusPage& status_page_;
  const LinkCapabilities link_;
  const GroupContext group_;
  // Indexed by peer, once connected; null where another transport reaches the peer.
  std::vector<std::unique_ptr<Group>> groups_;
  bool closed_ = false;
};

template <typename Endpoint, typename Connection, typename Group>
void Part<Endpoint, Connection, Group>::add_groups() {
  groups_.resize(subset_.members.size());
  for (int peer = 0; peer < size(); ++peer) {
    const int member = subset_.members[static_cast<std::size_t>(peer)];
    if (peer == subset_.rank || member == kElsewhere) continue;
    Connection* const to = endpoint_->peer(member);
    if (to == nullptr) continue;
    groups_[static_cast<std::size_t>(peer)] =
        std::make_unique<Group>(*to, group_, subset_.id_with(peer));
    to->add(group(peer));
  }
}

// Each rank sends its status page once it has made its groups, so that no message to it can arrive
// too early.
template <typename Endpoint, typename Connection, typename Group>
std::vector<int> Part<Endpoint, Connection, Group>::join() {
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

template <typename Endpoint, typename Connection, typename Group>
PeerStatus Part<Endpoint, Connection, Group>::status(int peer) {
  if (peer == subset_.rank) return status_on(status_page_);
  using End = typename Connection::End;
  using State = PeerStatus::State;
  // Another thread may receive the peer's goodbye and the end at this moment: where the end is
  // seen, the goodbye before it is, too.
  const End end = connection(peer).how_ended();
  PeerStatus said = status_on(group(peer).peer_page.page());
  said.gone = end == End::lost;
  said.deaf = end != End::none;
  if (end == End::none || said.state != State::alive) return said;
  said.state = said.gone ? State::lost : State::no_memory;
  if constexpr (requires { End::corrupt; })
    if (end == End::corrupt) said.state = State::corrupt;
  said.why = connection(peer).why_ended();
  return said;
}

template <typename Endpoint, typename Connection, typename Group>
std::size_t Part<Endpoint, Connection, Group>::memory_bytes() const {
  std::size_t bytes = sizeof(StatusPage);
  for_each([&](const Connection& connection, const Group& group) {
    bytes += connection.memory_bytes(group);
  });
  return bytes;
}

}  // namespace tutti::mesh
