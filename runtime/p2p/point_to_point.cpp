#include "runtime/p2p/point_to_point.h"

#include <algorithm>
#include <cassert>
#include <cstddef>
#include <cstring>
#include <type_traits>
#include <utility>

#include <fmt/format.h>

#include "common/ticks.h"
#include "compute/combine.h"

namespace tutti {

enum class Kind : std::uint8_t { eager, request_to_send, clear_to_send, credit };

/// Precedes the payload of a control message. With the header and 24 bytes of payload it fits a
/// cache line.
struct PointToPoint::Envelope {
  Kind kind = Kind::credit;
  DataType type = DataType::uint8;
  std::uint16_t credit = 0;  ///< Credit that the receiver gives back.
  std::int32_t tag = 0;
  std::uint64_t count = 0;
};

namespace {

constexpr int kNobody = -2;  // the value of Transfer::watched when a channel could not be made
static_assert(kNobody < 0 && kNobody != kAnySource);

// The fingerprint in the header of every message: "p2p1".
constexpr std::uint32_t kMark = 0x31703270;

// Long messages are sent in several pieces, so that both ranks copy at the same time: 64 KiB take
// 8.2 us in one piece and 6.1 us in 8; 256 KiB take 19.8 us in 4 pieces, 17.7 us in 8, and 17.4 us
// in 16. If both ranks send, both copy in any case, and 8 pieces are slower (64 KiB take 7.7 us in
// one piece and 9.4 us in 8).
constexpr std::size_t kPieces = 8, kPiecesBothWays = 4;
constexpr std::size_t kLeastPieceBytes = 8192;
static_assert(kPiecesBothWays <= kPieces && kLeastPieceBytes % kCacheLine == 0);

std::size_t piece_bytes(std::size_t bytes, std::size_t most, bool both_ways) {
  const std::size_t pieces = both_ways ? kPiecesBothWays : kPieces;
  const std::size_t share = (bytes / pieces + kCacheLine - 1) & ~(kCacheLine - 1);
  return std::min(std::max(share, kLeastPieceBytes), most);
}

// Messages through a ring of at least this size are copied by the kernel from buffer to buffer, if
// the sender has something better to do than to copy as well (docs/performance.md, "Copies by the
// kernel"). For shorter ones, the pair measures what is faster, unless ranks share cores.
constexpr std::size_t kLeastFetchedBytes = 4u << 20;
constexpr std::size_t kLeastFetchedSharing = 512u << 10;
static_assert(kLeastFetchedSharing <= kLeastFetchedBytes);
static_assert(CopyClass::kEndBytes <= kLeastFetchedBytes);
constexpr std::size_t kRemotePieceBytes = 1u << 20;  // the deadline is checked between two pieces

unsigned cost_of(std::size_t eager_bytes) {
  constexpr std::size_t kPerCredit = PointToPoint::kBytesPerCredit;
  return static_cast<unsigned>(
      std::max<std::size_t>(1, (eager_bytes + kPerCredit - 1) / kPerCredit));
}

enum class Stores { plain, fetched, streamed };

void copy_bytes(std::byte* to, const std::byte* from, std::size_t bytes,
                Stores stores = Stores::plain) {
  const void* in = from;
  void* out = to;
  CombineArgs args{&in, 1, &out, 1, bytes};
  args.fetch_outputs = stores == Stores::fetched ? 1 : 0;
  args.stream_outputs = stores == Stores::streamed ? 1 : 0;
  combine_copy(args);
}

// Copies to memory of the port's ring, with stores of the given kind unless they are streamed.
void copy_to_ring(SendPort& port, std::byte* to, const std::byte* from, std::size_t bytes,
                  Stores otherwise) {
  SlotStores* const stores = bytes >= SlotStores::kLeastBytes ? port.stores() : nullptr;
  if (stores == nullptr) return copy_bytes(to, from, bytes, otherwise);
  stores->write(bytes, 2, [&](bool streamed) {
    copy_bytes(to, from, bytes, streamed ? Stores::streamed : otherwise);
  });
}

}  // namespace

PointToPoint::PointToPoint(Transport& transport, int rank, int size, bool shares_cores)
    : transport_(transport), rank_(rank), shares_cores_(shares_cores), size_(size) {
  static_assert(sizeof(Envelope) == 16 && std::has_unique_object_representations_v<Envelope>);
  static_assert(offsetof(Envelope, tag) == 4 && offsetof(Envelope, count) == 8);
  static_assert(sizeof(Envelope) + 24 <= kInlineBytes, "24 bytes of payload fit into its line");
  assert(rank >= 0 && rank < size);
}

// Whether the counts of watchers and of receives fit the lists.
bool PointToPoint::is_sound() const noexcept {
  return any_watchers_ >= 0 && live_receives_ >= 0 && any_watchers_ <= live_receives_ &&
         watched_.size() <= peers_.size() && (live_receives_ == 0 || !live_.empty()) &&
         (!live_.empty() || (watched_.empty() && any_watchers_ == 0));
}

PointToPoint::Peer& PointToPoint::peer(int rank) {
  std::unique_ptr<Peer>& peer = peers_[static_cast<std::size_t>(rank)];
  if (peer != nullptr) [[likely]]
    return *peer;
  assert(rank >= 0 && rank < size_);
  auto made = std::make_unique<Peer>();
  if (rank != rank_) {
    made->largest_message = transport_.link(rank).largest_message;
    assert(made->largest_message > sizeof(Envelope));
    made->eager_bytes = std::min(kEagerBytes, made->largest_message - sizeof(Envelope));
    made->control_out.emplace(rank, transport_.sender(rank, kControlChannel));
    made->control_in.emplace(rank, transport_.receiver(rank, kControlChannel));
  }
  peer = std::move(made);
  return *peer;
}

bool PointToPoint::has_arrived(int rank) const {
  assert(rank != rank_);
  if (peers_.empty() || peers_[static_cast<std::size_t>(rank)] == nullptr) return false;
  Peer& from = *peers_[static_cast<std::size_t>(rank)];
  Message message;
  return (from.control_in && from.control_in->peek(message)) ||
         (from.bulk_in && from.bulk_in->peek(message));
}

void PointToPoint::refuse(int rank, const std::string& what) const {
  throw Error(ErrorKind::corrupt,
              fmt::format("rank {}: a point-to-point message of rank {} {}: its memory is damaged "
                          "or it runs another version",
                          rank_, rank, what));
}

void PointToPoint::watch(Transfer& transfer, int rank) {
  assert(rank == kAnySource || (rank >= 0 && rank < size_));
  if (rank == kAnySource)
    ++any_watchers_;
  else if (peer(rank).watchers++ == 0)
    watched_.push_back(rank);
  transfer.watched = rank;
}

void PointToPoint::unwatch(const Transfer& transfer) {
  if (transfer.watched == kNobody) return;
  assert(transfer.watched == kAnySource ? any_watchers_ > 0 : peer(transfer.watched).watchers > 0);
  if (transfer.watched == kAnySource)
    --any_watchers_;
  else if (--peer(transfer.watched).watchers == 0)
    watched_.erase(std::find(watched_.begin(), watched_.end(), transfer.watched));
}

void PointToPoint::end(Transfer& transfer) {
  if (transfer.call.direction == Direction::recv) --live_receives_;
  unwatch(transfer);
  live_.remove(transfer);
  ended_.push_back(transfer);
  transfer.done = true;
  assert(is_sound());
}

void PointToPoint::abandon() noexcept {
  matching_.clear();
  for (const auto& peer : peers_)
    if (peer != nullptr) {
      peer->announced.clear();
      for (StagedTransfers* stage :
           {&peer->to_announce, &peer->sending, &peer->to_clear, &peer->receiving})
        stage->clear();
    }
  live_receives_ = 0;
  while (Transfer* transfer = live_.pop_front()) {
    unwatch(*transfer);
    ended_.push_back(*transfer);
  }
  assert(is_sound() && idle());
}

void PointToPoint::start(Transfer& transfer) {
  assert(transfer.live_link.next == nullptr && transfer.stage_link.next == nullptr);
  if (peers_.empty()) [[unlikely]] {
    peers_.resize(static_cast<std::size_t>(size_));
    watched_.reserve(peers_.size());
  }
  transfer.done = false;
  transfer.moved = 0;
  transfer.received = {};
  transfer.watched = kNobody;
  live_.push_back(transfer);
  if (transfer.call.direction == Direction::recv) ++live_receives_;
  watch(transfer, transfer.call.peer);
  if (transfer.call.direction == Direction::recv)
    start_recv(transfer);
  else if (transfer.call.peer == rank_)
    start_own_send(transfer);
  else
    start_send(transfer);
}

void PointToPoint::start_send(Transfer& send) {
  const int rank = send.call.peer;
  Peer& to = peer(rank);
  assert(rank != rank_ && to.credit <= kCredit);
  send.id = to.next_id++;
  to.to_announce.push_back(send);
  while (to.credit < cost_of(std::min(send.call.bytes(), to.eager_bytes)) && receive_control(rank))
    continue;
  announce(rank);
}

void PointToPoint::start_recv(Transfer& recv) {
  UnexpectedMessage* message = matching_.take_unexpected(recv.call);
  if (message == nullptr) return matching_.post(recv);
  accept(recv, *message);
  const int source = message->source;
  if (Transfer* own = message->own) {
    assert(source == rank_ && !message->eager && !own->done);
    copy_bytes(recv.call.buffer, own->call.buffer, own->call.bytes());
    end(*own);
    end(recv);
  } else if (message->eager) {
    copy_bytes(recv.call.buffer, message->payload.data(), message->payload.size());
    (source == rank_ ? peer(source).credit : peer(source).owed) += cost_of(message->payload.size());
    end(recv);
  } else {
    ask_for(recv, source);
  }
  matching_.forget(*message);
}

// A send to this rank itself is kept like an unexpected message, or copied at once to a receive
// that is posted already.
void PointToPoint::start_own_send(Transfer& send) {
  const TransferCall& call = send.call;
  assert(call.peer == rank_ && call.direction == Direction::send);
  const Envelope envelope{Kind::eager, call.type, 0, call.tag, call.count};
  if (Transfer* recv = matching_.take_posted(rank_, call.tag)) {
    accept(*recv, envelope, rank_, 0);
    copy_bytes(recv->call.buffer, call.buffer, call.bytes());
    end(*recv);
    return end(send);
  }
  UnexpectedMessage& message = matching_.keep(rank_, call.tag);
  message.type = call.type;
  message.count = call.count;
  message.eager =
      call.bytes() <= peer(rank_).eager_bytes && peer(rank_).credit >= cost_of(call.bytes());
  if (!message.eager) {
    message.own = &send;
    return;
  }
  message.payload.assign(call.buffer, call.buffer + call.bytes());
  peer(rank_).credit -= cost_of(call.bytes());
  end(send);
}

// Matches the receive with this message; throws if the two do not fit.
void PointToPoint::accept(Transfer& recv, const Envelope& envelope, int source,
                          std::uint32_t id) const {
  const TransferCall& call = recv.call;
  if (envelope.type != call.type || envelope.count > call.count) [[unlikely]] {
    const TransferCall sent{Direction::send, envelope.type, rank_, envelope.tag, envelope.count};
    throw Error(
        ErrorKind::mismatch,
        fmt::format("rank {} called {}, but rank {} called {}. {}", rank_, describe(call), source,
                    describe(sent),
                    envelope.type != call.type ? "Receive the type that is sent"
                                               : "Receive at least as many elements as are sent"));
  }
  assert(call.peer == kAnySource || call.peer == source);
  recv.received = {source, envelope.tag, static_cast<std::size_t>(envelope.count)};
  recv.id = id;
}

void PointToPoint::accept(Transfer& recv, const UnexpectedMessage& message) const {
  accept(recv, {Kind::eager, message.type, 0, message.tag, message.count}, message.source,
         message.id);
}

void PointToPoint::ask_for(Transfer& recv, int source) {
  assert(source != rank_ && recv.received.source == source && recv.moved == 0);
  if (recv.watched != source) {
    unwatch(recv);
    watch(recv, source);
  }
  peer(source).to_clear.push_back(recv);
  send_clear(source);
}

void PointToPoint::advance(const Transfer* awaited) {
  for (bool moved = true; moved;) {
    moved = false;
    const std::size_t all = any_watchers_ > 0 ? peers_.size() : watched_.size();
    for (std::size_t k = 0; k < all; ++k) {
      const int rank = next_turn();
      if (rank != rank_ && advance(rank)) moved = true;
      if (awaited != nullptr && awaited->done) return;
    }
  }
}

// Returns the ranks for which a transfer waits, one after another in turn, or this rank itself if
// there is none.
int PointToPoint::next_turn() noexcept {
  const bool any = any_watchers_ > 0;
  const std::size_t among = any ? peers_.size() : watched_.size();
  if (among == 0) return rank_;
  if (++turn_ >= among) turn_ = 0;
  return any ? static_cast<int>(turn_) : watched_[turn_];
}

// Does one step of each kind with this peer.
bool PointToPoint::advance(int rank) {
  Peer& with = peer(rank);
  bool moved = receive_control(rank);
  if (!with.to_announce.empty()) moved |= announce(rank);
  if (!with.to_clear.empty()) moved |= send_clear(rank);
  if (!with.sending.empty()) moved |= send_data(rank);
  if (!with.receiving.empty()) moved |= receive_data(rank);
  if (with.owed >= kCredit / 2) return_credit(rank);
  return moved;
}

bool PointToPoint::receive_control(int rank) {
  Peer& from = peer(rank);
  Message message;
  if (!from.control_in->peek(message)) return false;
  const Header& header = message.header;
  if (header.fingerprint != kMark || header.length < sizeof(Envelope) ||
      header.length > from.largest_message)
    refuse(rank, fmt::format("has {} bytes and mark {:#x}", header.length, header.fingerprint));
  if (message.remote) message.data = from.control_in->get({});
  if (message.data == nullptr) return false;
  Envelope envelope;
  std::memcpy(&envelope, message.data, sizeof envelope);
  if (envelope.tag < 0) refuse(rank, fmt::format("has tag {}", envelope.tag));
  from.credit += envelope.credit;
  if (from.credit > kCredit) refuse(rank, "gives back more credit than there is");
  switch (envelope.kind) {
    case Kind::eager: take_eager(rank, envelope, message); break;
    case Kind::request_to_send: take_request_to_send(rank, envelope, header.operation); break;
    case Kind::clear_to_send: start_sending(rank, header.operation); break;
    case Kind::credit: break;
    default: refuse(rank, fmt::format("is of kind {}", static_cast<int>(envelope.kind)));
  }
  from.control_in->release();
  return true;
}

void PointToPoint::take_eager(int rank, const Envelope& envelope, const Message& message) {
  const std::byte* payload = message.data + sizeof envelope;
  const std::size_t bytes = message.header.length - sizeof envelope;
  if (static_cast<int>(envelope.type) >= kDataTypes || bytes > peer(rank).eager_bytes ||
      envelope.count != bytes / size_of(envelope.type) || bytes % size_of(envelope.type) != 0)
    refuse(rank, fmt::format("claims {} elements in {} bytes", envelope.count, bytes));
  Peer& from = peer(rank);
  from.used += cost_of(bytes);
  if (from.used > kCredit) refuse(rank, "uses more credit than there is");
  if (Transfer* recv = matching_.take_posted(rank, envelope.tag)) {
    accept(*recv, envelope, rank, message.header.operation);
    copy_bytes(recv->call.buffer, payload, bytes);
    from.owed += cost_of(bytes);
    return end(*recv);
  }
  UnexpectedMessage& kept = matching_.keep(rank, envelope.tag);
  kept.type = envelope.type;
  kept.count = envelope.count;
  kept.eager = true;
  kept.payload.assign(payload, payload + bytes);
}

void PointToPoint::take_request_to_send(int rank, const Envelope& envelope, std::uint32_t id) {
  if (static_cast<int>(envelope.type) >= kDataTypes)
    refuse(rank, fmt::format("is of type {}", static_cast<int>(envelope.type)));
  if (Transfer* recv = matching_.take_posted(rank, envelope.tag)) {
    accept(*recv, envelope, rank, id);
    return ask_for(*recv, rank);
  }
  UnexpectedMessage& message = matching_.keep(rank, envelope.tag);
  message.type = envelope.type;
  message.count = envelope.count;
  message.id = id;
  message.eager = false;
}

void PointToPoint::start_sending(int rank, std::uint32_t id) {
  Peer& to = peer(rank);
  Transfer* const send = to.announced.first(id);
  if (send == nullptr) refuse(rank, fmt::format("asks for number {}, which is not on offer", id));
  assert(send->call.direction == Direction::send && send->moved == 0);
  to.announced.remove(*send);
  if (send->call.bytes() == 0) return end(*send);
  if (!to.bulk_out) to.bulk_out.emplace(rank, transport_.sender(rank, kBulkChannel));
  send->memory = zero_copy_of(*send, *to.bulk_out);
  to.sending.push_back(*send);
}

// Returns the memory of a send that is to be zero-copy, or one without an address if the buffer has
// to be copied.
Memory PointToPoint::zero_copy_of(Transfer& send, SendPort& port) {
  const TransferCall& call = send.call;
  const MemoryKinds kinds = port.zero_copy();
  const Segments* const registered = transport_.registered();
  send.copy_class = 0;
  if (kinds.has(MemoryKind::shared) && registered != nullptr && !registered->empty())
    if (const auto extent = registered->extent_of(call.buffer, call.bytes()))
      return {call.buffer, call.bytes(), MemoryKind::shared, extent->segment, extent->offset};
  if (!kinds.has(MemoryKind::host) || (port.in_memory() && !by_kernel(send, port))) return {};
  return {call.buffer, call.bytes()};
}

// Whether the receiver has the kernel copy the message, in place of a ring.
bool PointToPoint::by_kernel(Transfer& send, SendPort& port) {
  const TransferCall& call = send.call;
  if (!copies_by_kernel_pay()) return false;
  bool faster = call.bytes() >= kLeastFetchedSharing;
  if (!shares_cores_) {
    const int copy_class = CopyClass::of(call.bytes());
    const KernelCopies::Choice choice = port.choose_copies(copy_class, live_receives_ > 0);
    send.copy_class = choice.timed ? copy_class : 0;
    faster = choice.by_kernel || (call.bytes() >= kLeastFetchedBytes && live_receives_ > 0);
  }
  return faster && readable_.holds(call.buffer, call.bytes());
}

// Returns memory for an envelope and a payload behind it, or null if there is no room yet.
std::byte* PointToPoint::acquire_control(int rank, std::size_t payload_bytes) {
  return peer(rank).control_out->acquire(sizeof(Envelope) + payload_bytes);
}

void PointToPoint::post_control(int rank, std::byte* slot, Envelope envelope, std::uint32_t id,
                                std::size_t payload_bytes) {
  Peer& to = peer(rank);
  static_assert(kCredit <= 0xffff);
  assert(to.owed <= to.used && to.used <= kCredit && "no more is owed than was given");
  to.used -= to.owed;
  envelope.credit = static_cast<std::uint16_t>(std::exchange(to.owed, 0));
  std::memcpy(slot, &envelope, sizeof envelope);
  to.control_out->post({id, kMark, static_cast<std::uint32_t>(sizeof envelope + payload_bytes), 0});
}

bool PointToPoint::announce(int rank) {
  Peer& to = peer(rank);
  Transfer& send = *to.to_announce.front();
  const TransferCall& call = send.call;
  const bool eager = call.bytes() <= to.eager_bytes && to.credit >= cost_of(call.bytes());
  const std::size_t payload = eager ? call.bytes() : 0;
  std::byte* slot = acquire_control(rank, payload);
  if (slot == nullptr) return false;
  if (eager)
    copy_to_ring(*to.control_out, slot + sizeof(Envelope), call.buffer, payload, Stores::plain);
  post_control(rank, slot,
               {eager ? Kind::eager : Kind::request_to_send, call.type, 0, call.tag, call.count},
               send.id, payload);
  to.to_announce.remove(send);
  if (!eager) {
    send.key = send.id;
    to.announced.push_back(send);
    return true;
  }
  assert(to.credit >= cost_of(payload));
  to.credit -= cost_of(payload);
  end(send);
  return true;
}

bool PointToPoint::send_clear(int rank) {
  Peer& from = peer(rank);
  Transfer& recv = *from.to_clear.front();
  std::byte* slot = acquire_control(rank, 0);
  if (slot == nullptr) return false;
  if (!from.bulk_in) from.bulk_in.emplace(rank, transport_.receiver(rank, kBulkChannel));
  post_control(rank, slot, {Kind::clear_to_send}, recv.id, 0);
  from.to_clear.remove(recv);
  if (recv.received.count == 0)
    end(recv);
  else
    from.receiving.push_back(recv);
  return true;
}

void PointToPoint::return_credit(int rank) {
  if (std::byte* slot = acquire_control(rank, 0)) post_control(rank, slot, {}, 0, 0);
}

// Fills the next message of a send, or acquires it zero-copy. Returns false if there is no room
// yet.
bool PointToPoint::fill(SendPort& port, const Transfer& send, std::size_t bytes) {
  assert(bytes > 0 && send.moved + bytes <= send.call.bytes());
  port.set_copy_class(send.copy_class);
  if (send.memory && bytes > kInlineBytes)
    return port.acquire_zero_copy(send.memory.part(send.moved, bytes));
  std::byte* slot = port.acquire(bytes);
  // The cache lines of a slot are in the cache of the peer, which has read them: a round trip of 64
  // KiB takes 7 % less time if they are prefetched.
  if (slot == nullptr) return false;
  const std::uint64_t begin = port.is_timed() ? ticks() : 0;
  copy_to_ring(port, slot, send.call.buffer + send.moved, bytes, Stores::fetched);
  if (port.is_timed()) port.record_write(ticks() - begin, bytes);
  return true;
}

// Messages are sent in the order in which the receiver asked for them, each as a whole before the
// next one.
bool PointToPoint::send_data(int rank) {
  Peer& to = peer(rank);
  Transfer& send = *to.sending.front();
  const std::size_t all = send.call.bytes();
  assert(send.moved <= all && all > 0);
  if (send.moved < all) {
    const bool remote =
        to.bulk_out->in_memory() && send.memory && send.memory.kind == MemoryKind::host;
    const std::size_t piece =
        remote ? kRemotePieceBytes : piece_bytes(all, to.largest_message, live_receives_ > 0);
    const std::size_t bytes = std::min(all - send.moved, piece);
    if (!fill(*to.bulk_out, send, bytes)) return false;
    to.bulk_out->post({send.id, kMark, static_cast<std::uint32_t>(bytes), 0});
    send.moved += bytes;
    if (send.moved < all) return true;
  }
  if (send.memory && !to.bulk_out->zero_copy_done()) return false;
  to.sending.remove(send);
  end(send);
  return true;
}

bool PointToPoint::receive_data(int rank) {
  Peer& from = peer(rank);
  Transfer& recv = *from.receiving.front();
  Message message;
  const std::size_t all = recv.received.count * size_of(recv.call.type);
  assert(recv.moved < all && all <= recv.call.bytes());
  const std::size_t left = all - recv.moved;
  std::byte* const to = recv.call.buffer + recv.moved;
  if (!from.bulk_in->peek(message)) {
    if (!from.bulk_in->in_memory()) from.bulk_in->get({to, left});
    return false;
  }
  const Header& header = message.header;
  // A remote message is brought to the receive's own buffer, so what is left bounds it. Any other
  // message lies in the ring, where the largest message bounds it, too.
  const std::size_t most = message.remote ? left : std::min(left, from.largest_message);
  if (header.fingerprint != kMark || header.operation != recv.id || header.length == 0 ||
      header.length > most)
    refuse(rank, fmt::format("has {} bytes of number {} where {} of number {} are left, and a "
                             "message has {} at most",
                             header.length, header.operation, left, recv.id, most));
  if (message.remote) message.data = from.bulk_in->get({to, left});
  if (message.data == nullptr) return false;
  if (message.data != to) {
    const std::uint64_t begin = from.bulk_in->is_timed() ? ticks() : 0;
    copy_bytes(to, message.data, header.length);
    if (from.bulk_in->is_timed()) from.bulk_in->record_read(ticks() - begin);
  }
  if (message.zero_copy && !from.bulk_in->still_valid())
    return false;  // the peer has failed; its status page will say so
  from.bulk_in->release();
  recv.moved += header.length;
  if (recv.moved < all) return true;
  from.receiving.remove(recv);
  end(recv);
  return true;
}

}  // namespace tutti
