#include "transport/faulty/faulty.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <map>
#include <mutex>
#include <numeric>
#include <string>
#include <utility>

#include "common/random.h"
#include "common/sync.h"
#include "transport/faulty/channels.h"
#include "transport/ring/memory_channel.h"

namespace tutti::faulty {
namespace {

template <typename T>
void copy(const sync::Atomic<T>& from, sync::Atomic<T>& to) {
  to.store(from.load(std::memory_order_acquire), std::memory_order_relaxed);
}

// Copies a page that its owner may be writing. The state comes first, since the failure's text is
// constant once it is `failed`.
void copy_page(const StatusPage& from, StatusPage& to) {
  copy(from.state, to.state);
  if (to.state.load(std::memory_order_relaxed) == StatusPageState::failed) {
    copy(from.failure_kind, to.failure_kind);
    copy(from.failure_bytes, to.failure_bytes);
    to.failure = from.failure;
  }
  copy(from.completed, to.completed);
  copy(from.reported, to.reported);
  copy(from.waits, to.waits);
  copy(from.entered, to.entered);
  for (std::size_t k = 0; k < StatusPage::kCalls; ++k) {
    const StatusPage::Call& call = from.calls[k];
    StatusPage::Call& copied = to.calls[k];
    const std::uint64_t number = call.number_plus_one.load(std::memory_order_acquire);
    if (number == 0 || number == copied.number_plus_one.load(std::memory_order_relaxed)) continue;
    copy(call.kinds, copied.kinds);
    copy(call.root, copied.root);
    copy(call.count, copied.count);
    copy(call.reduction, copied.reduction);
    const bool whole = call.number_plus_one.load(std::memory_order_acquire) == number;
    copied.number_plus_one.store(whole ? number : 0, std::memory_order_relaxed);
  }
}

class FaultyTransport final : public Transport {
 public:
  /// `origin` holds the members' ranks in the communicator that made the connections.
  FaultyTransport(std::unique_ptr<Transport> inner, int rank, std::vector<int> origin,
                  const Clock& clock, std::shared_ptr<const Faults> faults, std::uint64_t seed)
      : inner_(std::move(inner)),
        rank_(rank),
        origin_(std::move(origin)),
        clock_(clock),
        faults_(std::move(faults)),
        random_(seed) {
    assert(inner_ != nullptr && rank >= 0 && static_cast<std::size_t>(rank) < origin_.size());
    for (const int peer : origin_) {
      peers_.push_back(std::make_unique<Peer>());
      peers_.back()->link = std::make_unique<Link>(*faults_, clock_, random_, origin_[rank_], peer);
    }
  }
  ~FaultyTransport() override { close(); }

  std::string address() const override { return inner_->address(); }
  void connect(std::span<const std::string> addresses, TimePoint deadline) override {
    inner_->connect(addresses, deadline);
  }
  std::string why_unconnected(int peer) const override { return inner_->why_unconnected(peer); }
  const LinkCapabilities& link(int peer) const override;
  SendChannel& sender(int peer, int number) override;
  RecvChannel& receiver(int peer, int number) override;

  void progress() override {
    inner_->progress();
    send_wakes(clock_.now());
  }
  bool all_left() override { return inner_->all_left(); }
  bool leaves_at_once() const override { return inner_->leaves_at_once(); }
  std::vector<int> wait_fds() const override { return inner_->wait_fds(); }
  void arm() override { inner_->arm(); }
  void disarm() noexcept override { inner_->disarm(); }

  PeerStatus status(int peer) override;
  StatusPage& own_status_page() override { return inner_->own_status_page(); }
  const StatusPage* status_page(int peer) override { return page_of(peer, true); }
  const StatusPage* recent_status_page(int peer) override { return page_of(peer, false); }
  bool background_progress() override {
    send_wakes(clock_.now());
    return inner_->background_progress() || faults_->oldest_news.count() > 0;
  }
  void wake(int peer) override;

  std::unique_ptr<Transport> split(const Subset& subset) override;
  std::vector<int> join() override;

  std::optional<Registration> allocate_registered(std::size_t bytes) override {
    return inner_->allocate_registered(bytes);
  }
  void unregister(std::uint32_t segment) noexcept override { inner_->unregister(segment); }
  const Segments* registered() const noexcept override { return inner_->registered(); }
  std::shared_ptr<void> register_memory(std::byte* data, std::size_t bytes) override {
    return inner_->register_memory(data, bytes);
  }
  void revoke(int peer) noexcept override { inner_->revoke(peer); }
  bool prefers_zero_copy() const noexcept override { return inner_->prefers_zero_copy(); }
  std::size_t memory_bytes() const override { return inner_->memory_bytes(); }
  void close() noexcept override {
    send_wakes(TimePoint::max());
    inner_->close();
  }

 private:
  struct Peer {
    std::unique_ptr<Link> link;
    std::optional<LinkCapabilities> can;
    // The copy of its status page that this rank is shown, and until when.
    StatusPage page{};
    bool known = false;
    TimePoint renewed_at{}, shown_until{};
    // This is the time when this rank hears that the peer has made its part of a split.
    bool joined = false;
    std::optional<TimePoint> joined_at;
    std::map<int, std::unique_ptr<FaultySend>> senders;
    std::map<int, std::unique_ptr<FaultyRecv>> receivers;
  };
  struct Wake {
    TimePoint at;
    int peer;
  };

  Peer& peer_of(int rank) const {
    assert(rank >= 0 && static_cast<std::size_t>(rank) < peers_.size());
    return *peers_[static_cast<std::size_t>(rank)];
  }
  void renew(Peer& peer, const StatusPage& page, TimePoint now);
  const StatusPage* page_of(int rank, bool request);
  void send_wakes(TimePoint now) noexcept;

  const std::unique_ptr<Transport> inner_;
  const int rank_;
  const std::vector<int> origin_;
  const Clock& clock_;
  const std::shared_ptr<const Faults> faults_;
  SeededRandom random_;
  std::vector<std::unique_ptr<Peer>> peers_;  // indexed by rank
  sync::Mutex mutex_;
  std::vector<Wake> wakes_;  // those that are late; guarded by mutex_, since any thread may wake
};

const LinkCapabilities& FaultyTransport::link(int rank) const {
  Peer& peer = peer_of(rank);
  if (!peer.can) {
    peer.can = inner_->link(rank);
    peer.can->rings = peer.can->get = false;
  }
  return *peer.can;
}

SendChannel& FaultyTransport::sender(int rank, int number) {
  Peer& peer = peer_of(rank);
  auto& channel = peer.senders[number];
  if (channel == nullptr)
    channel = std::make_unique<FaultySend>(inner_->sender(rank, number), *peer.link);
  return *channel;
}

RecvChannel& FaultyTransport::receiver(int rank, int number) {
  Peer& peer = peer_of(rank);
  auto& channel = peer.receivers[number];
  if (channel == nullptr)
    channel = std::make_unique<FaultyRecv>(inner_->receiver(rank, number), *peer.link,
                                           link(rank).largest_message);
  return *channel;
}

// What a peer sent before it ended can be received once its end is known, see Transport::status().
void FaultyTransport::renew(Peer& peer, const StatusPage& page, TimePoint now) {
  copy_page(page, peer.page);
  peer.known = true;
  peer.renewed_at = now;
  peer.shown_until = now + peer.link->draw_age();
  if (peer.page.state.load(std::memory_order_relaxed) != StatusPageState::open)
    peer.link->stop_delays();
}

const StatusPage* FaultyTransport::page_of(int rank, bool request) {
  if (rank == rank_) return &inner_->own_status_page();
  Peer& peer = peer_of(rank);
  const TimePoint now = clock_.now();
  constexpr std::chrono::milliseconds kRecent{1500};  // see Transport::recent_status_page()
  if (peer.link->silent(now)) {
    // A page that shows the peer's end is its last one.
    const bool ended = peer.known && status_on(peer.page).state != PeerStatus::State::alive;
    const bool recent = peer.known && !request && now < peer.renewed_at + kRecent;
    return ended || recent ? &peer.page : nullptr;
  }
  if (peer.known && now < peer.shown_until) return &peer.page;
  const StatusPage* const page =
      request ? inner_->status_page(rank) : inner_->recent_status_page(rank);
  if (page == nullptr) return nullptr;
  renew(peer, *page, now);
  return &peer.page;
}

PeerStatus FaultyTransport::status(int rank) {
  if (rank == rank_) return inner_->status(rank);
  Peer& peer = peer_of(rank);
  const TimePoint now = clock_.now();
  const int origin = origin_[static_cast<std::size_t>(rank)];
  if (peer.link->corrupt(now))
    return {PeerStatus::State::corrupt, fmt::format("a checksum of rank {} is wrong", origin)};
  const bool lost = peer.link->lost(now);
  PeerStatus status;
  if (!peer.link->silent(now)) {
    status = inner_->status(rank);
    using State = PeerStatus::State;
    if (status.state == State::lost || status.state == State::corrupt ||
        status.state == State::no_memory) {
      peer.link->stop_delays();
      return status;
    }
    if (page_of(rank, false) == nullptr) return {PeerStatus::State::alive, {}, status.gone};
  }
  const PeerStatus said = peer.known ? status_on(peer.page) : PeerStatus();
  status = {said.state, {}, status.gone || lost};
  if (lost && said.state == PeerStatus::State::alive)
    status = {PeerStatus::State::lost, fmt::format("the connection to rank {} was cut", origin),
              true};
  return status;
}

void FaultyTransport::wake(int rank) {
  if (faults_->oldest_news.count() == 0) return inner_->wake(rank);
  const std::lock_guard lock(mutex_);
  wakes_.push_back({clock_.now() + faults_->oldest_news / 2, rank});
}

void FaultyTransport::send_wakes(TimePoint now) noexcept {
  if (faults_->oldest_news.count() == 0) return;
  const std::lock_guard lock(mutex_);
  std::erase_if(wakes_, [&](const Wake& wake) {
    if (now < wake.at) return false;
    inner_->wake(wake.peer);
    return true;
  });
}

std::unique_ptr<Transport> FaultyTransport::split(const Subset& subset) {
  if (subset.has_others()) return nullptr;
  auto part = inner_->split(subset);
  if (part == nullptr) return nullptr;
  std::vector<int> origin;
  for (const int member : subset.members)
    origin.push_back(origin_[static_cast<std::size_t>(member)]);
  return std::make_unique<FaultyTransport>(std::move(part), subset.rank, std::move(origin), clock_,
                                           faults_, random_.next());
}

// The news that a member has made its part may be late, and does not arrive over a connection that
// is silent.
std::vector<int> FaultyTransport::join() {
  std::vector<int> missing = inner_->join();
  const TimePoint now = clock_.now();
  for (std::size_t rank = 0; rank < peers_.size(); ++rank) {
    Peer& peer = *peers_[rank];
    const int member = static_cast<int>(rank);
    const auto at = std::lower_bound(missing.begin(), missing.end(), member);
    if (peer.joined || member == rank_ || (at != missing.end() && *at == member)) continue;
    if (!peer.joined_at) peer.joined_at = now + peer.link->draw_delay();
    // Nothing of a member that has ended is still on its way.
    const bool arrived = now >= *peer.joined_at || inner_->status(member).gone;
    peer.joined = arrived && !peer.link->silent(now);
    if (!peer.joined) missing.insert(at, member);
  }
  return missing;
}

}  // namespace

std::unique_ptr<Transport> make(std::unique_ptr<Transport> inner, int rank, int size,
                                const Clock& clock, const Faults& faults) {
  std::vector<int> all(static_cast<std::size_t>(size));
  std::iota(all.begin(), all.end(), 0);
  return std::make_unique<FaultyTransport>(
      std::move(inner), rank, std::move(all), clock, std::make_shared<const Faults>(faults),
      mix(faults.seed ^ static_cast<std::uint64_t>(rank) << 32));
}

}  // namespace tutti::faulty
