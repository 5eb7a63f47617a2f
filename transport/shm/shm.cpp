#include "transport/shm/shm.h"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cassert>
#include <chrono>
#include <new>
#include <numeric>
#include <type_traits>
#include <vector>

#include <tutti/error.hpp>

#include "common/descriptors.h"
#include "transport/own_page.h"
#include "transport/shm/endpoint.h"

namespace tutti::shm {
namespace {

// How long close() waits for a peer to take what is queued for it.
constexpr std::chrono::milliseconds kGoodbye{1000};
// The number of descriptors beside those for peers: the program's own, and those of unauthenticated
// callers while ranks join.
constexpr std::size_t kOtherDescriptors = 256;

LinkCapabilities link_of(std::size_t largest_message) {
  LinkCapabilities link;
  link.memory = MemoryKind::host | MemoryKind::shared;
  link.rings = true;
  link.get = true;  // done by the kernel, where it lets processes read each other
  link.largest_message = largest_message;
  link.latency_ps = 150'000;
  link.message_ps = 12'000;
  link.bytes_per_second = 15'000'000'000;
  return link;
}

/// One communicator's part of an endpoint, which consists of one group of each peer. It is used
/// only by its communicator's thread.
class ShmTransport final : public Transport {
 public:
  /// Makes the first transport, and with it the endpoint.
  explicit ShmTransport(const TransportContext& context)
      : ShmTransport(context, std::make_shared<Endpoint>(context.size), whole(context)) {
    address_ = own_address(*context.random);
    listener_ = listen_at(address_);
  }

  /// The members of `subset` are ranks of the endpoint, or kElsewhere.
  ShmTransport(const TransportContext& context, std::shared_ptr<Endpoint> endpoint, Subset subset)
      : context_(context),
        endpoint_(std::move(endpoint)),
        subset_(std::move(subset)),
        own_page_(subset_.status_page.page == nullptr ? std::make_shared<OwnPage>(true) : nullptr),
        page_(own_page_ != nullptr ? shown(own_page_) : subset_.status_page) {
    assert(context.clock != nullptr);
    assert(subset_.max_message_bytes <= SendRing::max_message_bytes(subset_.data_bytes));
    assert(page_.memory >= 0 && "peers map the page");
  }

  // In a forked child this frees only the child's copies of descriptors and mappings; status pages,
  // doorbells and sockets stay the parent's (see close()).
  ~ShmTransport() override {
    close();
    if (!connected_) return;
    const bool forked = getpid() != owner_;
    for_each_peer([&](int rank, Peer& peer) {
      const std::uint32_t id = subset_.id_with(rank);
      forked ? peer.remove_group(id) : peer.leave_group(id);
    });
  }

  std::string address() const override { return address_.to_string(); }
  void connect(std::span<const std::string> addresses, TimePoint deadline) override;
  std::vector<int> join() override;

  SendChannel& sender(int peer, int number) override {
    return with(peer,
                [&](Peer& p) -> SendChannel& { return p.sender(subset_.id_with(peer), number); });
  }
  RecvChannel& receiver(int peer, int number) override {
    return with(peer,
                [&](Peer& p) -> RecvChannel& { return p.receiver(subset_.id_with(peer), number); });
  }
  const LinkCapabilities& link(int) const override { return link_; }

  std::optional<Registration> allocate_registered(std::size_t bytes) override;
  void share_registered(const Registration& memory) override;
  void unregister(std::uint32_t segment) noexcept override {
    if (getpid() != owner_) return;  // In a forked child the memory is the parent's.
    segments_.remove(segment);
    for_each_peer([&](int rank, Peer& peer) { peer.unregister(subset_.id_with(rank), segment); });
  }
  const Segments* registered() const noexcept override { return &segments_; }

  void progress() override { endpoint_->progress(); }
  std::vector<int> wait_fds() const override { return {endpoint_->wait_fd()}; }

  PeerStatus status(int peer) override;
  StatusPage& own_status_page() override { return *page_.page; }
  const StatusPage* status_page(int peer) override {
    return peer == subset_.rank ? page_.page.get() : status_pages_[static_cast<std::size_t>(peer)];
  }
  void wake(int peer) override {
    assert(peer >= 0 && static_cast<std::size_t>(peer) < bells_.size());
    // Any thread may wake a peer, so none writes to the bell that others use.
    PeerBell bell = bells_[static_cast<std::size_t>(peer)];
    bell.after_store();
  }

  std::unique_ptr<Transport> split(const Subset& subset) override {
    Subset of_endpoint = subset;
    for (int& member : of_endpoint.members)
      if (member != kElsewhere) member = subset_.members[member];
    return std::make_unique<ShmTransport>(context_, endpoint_, std::move(of_endpoint));
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

  template <typename Use>
  std::invoke_result_t<Use, Peer&> with(int peer, Use&& use) const {
    assert(peer >= 0 && peer < size() && is_connected(peer));
    return endpoint_->with(subset_.members[peer], std::forward<Use>(use));
  }
  template <typename Use>
  void for_each_peer(Use&& use) const {
    for (int peer = 0; peer < size(); ++peer)
      if (is_connected(peer)) with(peer, [&](Peer& p) { use(peer, p); });
  }

  bool is_connected(int peer) const {
    const int member = subset_.members[peer];
    return peer != subset_.rank && member != kElsewhere && endpoint_->has(member);
  }
  int size() const noexcept { return static_cast<int>(subset_.members.size()); }
  void join_endpoint(std::span<const std::string> addresses, TimePoint deadline);
  void take_status_pages();
  void hand_over(const Registration& memory) const;
  std::vector<Address> parse(std::span<const std::string> addresses) const;

  const TransportContext context_;  // the context of the endpoint's first communicator
  const std::shared_ptr<Endpoint> endpoint_;
  const Subset subset_;
  const LinkCapabilities link_ = link_of(subset_.max_message_bytes);
  const pid_t owner_ = getpid();
  Address address_;
  Fd listener_;                              // open until connected
  const std::shared_ptr<OwnPage> own_page_;  // null where another transport has made the page
  const ShownPage page_;
  Segments segments_;
  bool connected_ = false, closed_ = false;
  std::vector<const StatusPage*> status_pages_;  // indexed by peer, once connected
  std::vector<PeerBell> bells_;                  // indexed by peer, once connected
};

std::vector<Address> ShmTransport::parse(std::span<const std::string> addresses) const {
  assert(addresses.size() == subset_.members.size());
  std::vector<Address> parsed(addresses.size());
  for (int rank = 0; rank < context_.size; ++rank) {
    if (addresses[rank].empty() || context_.is_elsewhere(rank)) continue;
    const auto address = Address::parse(addresses[rank]);
    if (!address)
      throw Error(ErrorKind::mismatch,
                  fmt::format("rank {} does not offer shared memory as rank {} knows it: do all "
                              "ranks run the same version with the same TUTTI_TRANSPORTS?",
                              rank, context_.rank));
    if (const std::string why = why_unreachable(address_.place, address->place); !why.empty())
      throw Error(
          ErrorKind::unavailable,
          fmt::format("rank {} cannot share memory with rank {}: {}", context_.rank, rank, why));
    parsed[rank] = *address;
  }
  if (parsed[context_.rank] != address_)
    throw Error(ErrorKind::usage,
                fmt::format("processes {} and {} both call themselves rank {}; give each its own "
                            "RANK",
                            address_.process, parsed[context_.rank].process, context_.rank));
  return parsed;
}

void ShmTransport::connect(std::span<const std::string> addresses, TimePoint deadline) {
  assert(subset_.numbers.empty());
  join_endpoint(addresses, deadline);
  take_status_pages();
}

void ShmTransport::take_status_pages() {
  if (own_page_ != nullptr) own_page_->be_connected();
  status_pages_.resize(subset_.members.size());
  bells_.resize(subset_.members.size());
  for_each_peer([&](int rank, const Peer& peer) {
    status_pages_[rank] = peer.status_page(subset_.id_with(rank));
    bells_[rank] = peer.bell(subset_.id_with(rank));
  });
}

void ShmTransport::join_endpoint(std::span<const std::string> addresses, TimePoint deadline) {
  assert(listener_);
  const std::vector<Address> parsed = parse(addresses);
  // Each peer takes four descriptors: a socket, its doorbell, its process, and its status page
  // until all have joined.
  const auto peers = static_cast<std::size_t>(
      std::count_if(parsed.begin(), parsed.end(),
                    [](const Address& address) { return address.identity != Identity(); }) -
      1);
  need_descriptors(4 * peers + kOtherDescriptors, 4 * peers,
                   fmt::format("rank {} of {}", subset_.rank, size()),
                   "to join the others over shared memory");
  std::vector<Link> links = Join(context_, parsed, listener_, page_.memory).run(deadline);
  listener_.reset();
  for (int rank = 0; rank < size(); ++rank)
    if (links[rank].socket) endpoint_->add_peer(context_, rank, std::move(links[rank]), segments_);
  connected_ = true;
}

std::vector<int> ShmTransport::join() {
  assert(!subset_.numbers.empty());
  if (!connected_) {
    connected_ = true;
    for_each_peer([&](int rank, Peer& peer) {
      peer.add_group(subset_.id_with(rank), subset_, page_.memory, segments_);
    });
  }
  std::vector<int> missing;
  for_each_peer([&](int rank, const Peer& peer) {
    if (peer.status_page(subset_.id_with(rank)) == nullptr) missing.push_back(rank);
  });
  if (missing.empty() && status_pages_.empty()) take_status_pages();
  return missing;
}

PeerStatus ShmTransport::status(int peer) {
  if (peer == subset_.rank) return status_on(*page_.page);
  return with(peer, [&](const Peer& p) { return p.status(subset_.id_with(peer)); });
}

std::size_t ShmTransport::memory_bytes() const {
  std::size_t bytes = own_page_ != nullptr ? sizeof(StatusPage) : 0;
  if (connected_)
    for_each_peer(
        [&](int rank, const Peer& peer) { bytes += peer.memory_bytes(subset_.id_with(rank)); });
  return bytes;
}

std::optional<Registration> ShmTransport::allocate_registered(std::size_t bytes) {
  Memory memory =
      make_memory(bytes, Access::write, fmt::format("a buffer of rank {}", subset_.rank));
  const auto mapping = std::make_shared<Mapping>(std::move(memory.mapping));
  const Segment segment{{mapping, static_cast<std::byte*>(mapping->data())}, bytes};
  const std::uint32_t number = segments_.add(segment);
  assert(number != 0 && number != kAllMemory);
  const Registration made{number, segment, std::make_shared<const Fd>(std::move(memory.fd))};
  hand_over(made);
  return made;
}

void ShmTransport::share_registered(const Registration& memory) {
  assert(memory.file != nullptr);
  [[maybe_unused]] const bool added = segments_.add(memory.number, memory.segment);
  assert(added && "one transport of a rank gives all numbers");
  hand_over(memory);
}

void ShmTransport::hand_over(const Registration& memory) const {
  for_each_peer([&](int rank, Peer& peer) {
    peer.register_segment(subset_.id_with(rank), memory.number, memory.segment.bytes, *memory.file);
  });
}

void ShmTransport::close() noexcept {
  if (closed_ || getpid() != owner_) return;
  closed_ = true;
  // A page that this transport has shown to nobody may be that of others, which go on.
  if (own_page_ == nullptr && !connected_) return;
  page_.page->close();
  const bool failed = page_.page->state.load(std::memory_order_relaxed) == StatusPageState::failed;
  if (!connected_ || failed) return;
  const auto deadline = std::chrono::steady_clock::now() + kGoodbye;
  for (int peer = 0; peer < size(); ++peer) {
    if (!is_connected(peer)) continue;
    if (!bells_.empty()) wake(peer);
    int socket = -1;
    const auto handed_over = [&](Peer& p) {
      socket = p.socket().get();
      // It does not wait for what other communicators have queued for a peer that does not read.
      return p.flush(subset_.id_with(peer));
    };
    while (!with(peer, handed_over) && std::chrono::steady_clock::now() < deadline) {
      pollfd writable{socket, POLLOUT, 0};
      poll(&writable, 1, 10);
    }
  }
}

std::optional<std::string> place(const TransportContext&) { return own_place().to_string(); }

Reach reach(std::string_view place, std::string_view other) {
  const auto here = Place::parse(place), there = Place::parse(other);
  if (!here || !there) return {"what a rank says of its place cannot be read", {}};
  return {why_unreachable(*here, *there), link_of(LinkCapabilities().largest_message)};
}

std::unique_ptr<Transport> make(const TransportContext& context) {
  return std::make_unique<ShmTransport>(context);
}

}  // namespace

TransportEntry entry() { return {"shm", place, reach, make}; }

}  // namespace tutti::shm
