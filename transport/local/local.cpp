#include "transport/local/local.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <cstring>
#include <new>
#include <string>
#include <utility>

#include <tutti/error.hpp>

#include "common/sync.h"
#include "transport/ring/memory_channel.h"

namespace tutti::local {

Hub::Hub(int size) : ranks_(static_cast<std::size_t>(size)) { assert(size > 0); }

Hub::Hub(const Hub& first, const Subset& subset) : ranks_(subset.members.size()) {
  assert(!subset.members.empty() && subset.members.size() <= first.ranks_.size());
  for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
    assert(subset.members[rank] >= 0 && subset.members[rank] < first.size());
    ranks_[rank].bell = first.ranks_[subset.members[rank]].bell;
  }
}

void Hub::join(const TransportContext& context) {
  assert(context.rank >= 0 && context.rank < size() && context.size == size());
  const std::lock_guard lock(mutex_);
  Rank& rank = ranks_[context.rank];
  if (rank.joined)
    throw Error(ErrorKind::usage,
                fmt::format("two ranks of this process call themselves rank {}", context.rank));
  rank.bell = context.doorbell;
  seat(rank);
}

void Hub::join(int rank) {
  assert(rank >= 0 && rank < size());
  const std::lock_guard lock(mutex_);
  seat(ranks_[rank]);
  if (joined_ < size()) return;
  for (const Rank& each : ranks_)
    if (each.bell != nullptr) each.bell->ring();
}

std::vector<int> Hub::missing() {
  const std::lock_guard lock(mutex_);
  return missing_ranks();
}

void Hub::seat(Rank& rank) {
  assert(!rank.joined);
  rank.joined = true;
  if (++joined_ == size()) all_joined_.notify_all();
  assert(joined_ <= size());
}

std::shared_ptr<Hub> Hub::of_subset(const std::shared_ptr<Hub>& first, const Subset& subset) {
  assert(subset.numbers.size() == subset.members.size());
  const std::lock_guard lock(first->mutex_);
  std::erase_if(first->subsets_, [](const auto& entry) { return entry.second.expired(); });
  auto& known = first->subsets_[{subset.members.front(), subset.numbers.front()}];
  std::shared_ptr<Hub> hub = known.lock();
  if (hub == nullptr) known = hub = std::make_shared<Hub>(*first, subset);
  assert(hub->ranks_.size() == subset.members.size() && "a name stands for one subset");
  return hub;
}

void Hub::wait_for_all(int rank, TimePoint deadline) {
  std::unique_lock lock(mutex_);
  if (all_joined_.wait_until(lock, deadline, [this] { return joined_ == size(); })) return;
  std::string missing;
  for (const int other : missing_ranks())
    missing += fmt::format("{}{}", missing.empty() ? "" : ", ", other);
  throw Error(
      ErrorKind::timeout,
      fmt::format("rank {} of {} waited in this process for ranks that never came: {}; make all "
                  "of them",
                  rank, size(), missing));
}

std::vector<int> Hub::missing_ranks() const {
  std::vector<int> missing;
  if (joined_ == size()) return missing;
  for (int rank = 0; rank < size(); ++rank)
    if (!ranks_[rank].joined) missing.push_back(rank);
  return missing;
}

PeerBell Hub::bell(int from, int to) const noexcept {
  assert(from >= 0 && from < size() && to >= 0 && to < size());
  const Rank& peer = ranks_[to];
  if (peer.bell == nullptr) return {};
  const auto has_membarrier = [&](int rank) {
    return ranks_[rank].bell != nullptr && ranks_[rank].bell->membarrier();
  };
  return {&peer.status_page->sleepers, peer.bell->fd(),
          !(has_membarrier(from) && has_membarrier(to))};
}

RingMemory* Hub::ring(int from, int to, int number, std::size_t data_bytes) {
  assert(from >= 0 && from < size() && to >= 0 && to < size() && number >= 0);
  const std::lock_guard lock(mutex_);
  auto& memory = rings_[{from, to, number}];
  if (memory == nullptr) {
    // Only the lines are written here, so that a simulation pays only for the payload memory that
    // it touches.
    void* raw = ::operator new(RingMemory::bytes(data_bytes), std::align_val_t(alignof(RingMemory)),
                               std::nothrow);
    if (raw == nullptr)
      throw Error(ErrorKind::unavailable,
                  fmt::format("no memory for a ring of {} bytes from rank {} to rank {}; lower "
                              "TUTTI_RING_BYTES or run fewer ranks",
                              RingMemory::bytes(data_bytes), from, to));
    memory.reset(new (raw) RingMemory());
  }
  return memory.get();
}

void Hub::FreeRing::operator()(RingMemory* memory) const noexcept {
  ::operator delete(memory, std::align_val_t(alignof(RingMemory)));
}

namespace {

LinkCapabilities link_of(std::size_t largest_message) {
  LinkCapabilities link;
  link.memory = MemoryKind::host | MemoryKind::shared;
  link.rings = true;
  link.get = true;
  link.largest_message = largest_message;
  link.latency_ps = 100'000;
  link.message_ps = 12'000;
  link.bytes_per_second = 20'000'000'000;
  return link;
}

class LocalTransport final : public Transport {
 public:
  explicit LocalTransport(const TransportContext& context)
      : first_(context.hub),
        hub_(context.hub),
        subset_{{}, context.rank, {}, context.data_bytes, context.max_message_bytes} {
    hub_->join(context);
  }
  /// The members of `subset` are ranks of `first`.
  LocalTransport(std::shared_ptr<Hub> first, Subset subset)
      : first_(std::move(first)), hub_(Hub::of_subset(first_, subset)), subset_(std::move(subset)) {
    hub_->join(subset_.rank);
  }
  ~LocalTransport() override { close(); }

  void connect(std::span<const std::string>, TimePoint deadline) override {
    hub_->wait_for_all(subset_.rank, deadline);
    connected_ = true;
  }
  // The constructor has told the others.
  std::vector<int> join() override {
    std::vector<int> missing = hub_->missing();
    connected_ = missing.empty();
    return missing;
  }

  SendChannel& sender(int peer, int number) override {
    auto& channel = senders_[{peer, number}];
    if (channel == nullptr) {
      channel = std::make_unique<MemorySendChannel>(
          hub_->ring(subset_.rank, peer, number, subset_.data_bytes), subset_.data_bytes,
          subset_.max_message_bytes, hub_->bell(subset_.rank, peer));
      rings_[peer][number] = channel->ring();
      rings_made_.fetch_add(1, std::memory_order_relaxed);
    }
    return *channel;
  }

  RecvChannel& receiver(int peer, int number) override {
    auto& channel = receivers_[{peer, number}];
    if (channel == nullptr) {
      RingMemory* memory = hub_->ring(peer, subset_.rank, number, subset_.data_bytes);
      channel = std::make_unique<MemoryRecvChannel>();
      channel->attach(memory, subset_.data_bytes, hub_->bell(subset_.rank, peer), number,
                      {&rings_[peer], &hub_->segments(peer), &hub_->segments(subset_.rank),
                       &hub_->status_page(peer), own_memory_readable() ? &own_memory_ : nullptr});
    }
    return *channel;
  }

  const LinkCapabilities& link(int) const override { return link_; }
  void progress() override {}

  std::optional<Registration> allocate_registered(std::size_t bytes) override;
  void unregister(std::uint32_t segment) noexcept override {
    hub_->segments(subset_.rank).remove(segment);
  }
  const Segments* registered() const noexcept override { return &hub_->segments(subset_.rank); }

  PeerStatus status(int peer) override { return status_on(hub_->status_page(peer)); }
  StatusPage& own_status_page() override { return hub_->status_page(subset_.rank); }
  const StatusPage* status_page(int peer) override { return &hub_->status_page(peer); }
  void wake(int peer) override { hub_->bell(subset_.rank, peer).after_store(); }

  std::unique_ptr<Transport> split(const Subset& subset) override {
    if (subset.has_others()) return nullptr;
    Subset of_first = subset;
    for (int& member : of_first.members) member = rank_of_first(member);
    return std::make_unique<LocalTransport>(first_, std::move(of_first));
  }
  std::size_t memory_bytes() const override {
    return sizeof(StatusPage) +
           rings_made_.load(std::memory_order_relaxed) * RingMemory::bytes(subset_.data_bytes);
  }

  void close() noexcept override {
    if (!own_status_page().close() || !connected_) return;
    for (int peer = 0; peer < hub_->size(); ++peer) wake(peer);
  }

 private:
  int rank_of_first(int rank) const {
    assert(rank >= 0 && rank < hub_->size());
    return subset_.members.empty() ? rank : subset_.members[rank];
  }
  bool own_memory_readable() const noexcept {
    int copy = 0;
    return own_memory_.read(reinterpret_cast<std::uintptr_t>(&subset_.rank), &copy, sizeof copy) ==
           PeerMemory::Read::done;
  }

  // The hub of the communicator from which all others were split.
  const std::shared_ptr<Hub> first_;
  const std::shared_ptr<Hub> hub_;
  const Subset subset_;  // no members: all ranks of the first hub
  const LinkCapabilities link_ = link_of(subset_.max_message_bytes);
  // Reads peers' memory, too, since all ranks share the process. The kernel does the copying
  // because a peer whose call has failed may have freed the memory that is read.
  const PeerMemory own_memory_{getpid(), -1};
  bool connected_ = false;          // Peers have doorbells to ring only from then on.
  std::map<int, SendRings> rings_;  // the rings of senders_, by peer
  // Both are indexed by peer and number.
  std::map<std::pair<int, int>, std::unique_ptr<MemorySendChannel>> senders_;
  std::map<std::pair<int, int>, std::unique_ptr<MemoryRecvChannel>> receivers_;
  // The number of senders_, which any thread may read; the owner of the engine makes them.
  sync::Atomic<std::size_t> rings_made_{0};
};

std::optional<Registration> LocalTransport::allocate_registered(std::size_t bytes) {
  assert(bytes > 0);
  constexpr std::align_val_t kPage{4096};
  auto* memory = static_cast<std::byte*>(::operator new(bytes, kPage, std::nothrow));
  if (memory == nullptr)
    throw Error(ErrorKind::unavailable,
                fmt::format("rank {}: no memory for a buffer of {} bytes", subset_.rank, bytes));
  std::memset(memory, 0, bytes);
  const Segment segment{{memory, [](std::byte* data) { ::operator delete(data, kPage); }}, bytes};
  return Registration{hub_->segments(subset_.rank).add(segment), segment};
}

std::optional<std::string> place(const TransportContext& context) {
  if (context.hub == nullptr) return std::nullopt;
  return fmt::format("{} {}", getpid(), static_cast<const void*>(context.hub.get()));
}

Reach reach(std::string_view place, std::string_view other) {
  if (place != other) return {"it joins ranks of one process, and these are not", {}};
  return {{}, link_of(LinkCapabilities().largest_message)};
}

std::unique_ptr<Transport> make(const TransportContext& context) {
  return std::make_unique<LocalTransport>(context);
}

}  // namespace

TransportEntry entry() { return {"local", place, reach, make}; }

}  // namespace tutti::local
