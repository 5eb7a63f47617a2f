#include "stream_transport.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <cerrno>
#include <cstring>
#include <deque>
#include <map>
#include <optional>
#include <utility>

#include <tutti/error.hpp>

#include "transport/ring/memory_channel.h"

namespace tutti::stream {
namespace {

constexpr std::size_t kWindow = 3;  // messages of a channel in flight, of any size
constexpr std::size_t kReadBytes = 64 << 10;
constexpr int kCallsToAnswer = 200;  // of progress(), after which a peer has its answer

enum class Kind : std::uint32_t { message, credit, status_page_request, status_page };

struct Frame {
  Kind kind = Kind::message;
  std::int32_t channel = 0;
  Header header;  // a message's header; other frames use only its length
};

// A status page travels without its first word, which counts the owner's sleeping threads and does
// not concern peers.
constexpr std::size_t kStatusPageSkip = sizeof(StatusPage::sleepers);
constexpr std::size_t kStatusPageBytes = sizeof(StatusPage) - kStatusPageSkip;

std::span<const std::byte> bytes_of(const StatusPage& status_page) {
  return std::as_bytes(std::span(&status_page, 1)).subspan(kStatusPageSkip);
}

// The connection to one peer, which sends and receives frames.
class Wire {
 public:
  Wire(Fd socket, const Faults& faults, std::uint64_t salt)
      : socket_(std::move(socket)), faults_(faults), random_(faults.seed * 1000 + salt) {}

  const Fd& socket() const noexcept { return socket_; }
  // Returns whether the connection has ended and everything that arrived has been read.
  bool ended() const noexcept { return ended_; }
  bool idle() const noexcept { return out_.empty(); }

  // The payload of a zero-copy message is read when it leaves.
  void put(const Frame& frame, std::span<const std::byte> payload, bool zero_copy,
           std::uint64_t now) {
    assert(payload.size() == frame.header.length);
    Outgoing out;
    out.bytes.resize(sizeof frame);
    std::memcpy(out.bytes.data(), &frame, sizeof frame);
    if (zero_copy)
      out.zero_copy = payload;
    else
      out.bytes.insert(out.bytes.end(), payload.begin(), payload.end());
    out.leaves_at = now + random_.next() % (faults_.max_delay + 1);
    out_.push_back(std::move(out));
  }

  // Copies the zero-copy payloads that have not left, so that the program has its memory back.
  void keep_payloads() {
    for (Outgoing& out : out_) out.take_payload();
  }

  // Writes what is due at `now` and fits.
  void write(std::uint64_t now) {
    while (!out_.empty() && out_.front().leaves_at <= now) {
      Outgoing& out = out_.front();
      out.take_payload();
      const std::size_t left = out.bytes.size() - out.written;
      const std::size_t most = std::min(shortened(left), faults_.cut_after_bytes - written_);
      const ssize_t sent =
          send(socket_.get(), out.bytes.data() + out.written, most, MSG_NOSIGNAL | MSG_DONTWAIT);
      if (sent < 0 && errno == EAGAIN) return;
      if (sent < 0) return out_.clear();  // the peer is gone; read() finds the end
      if (sent == 0) break;
      out.written += static_cast<std::size_t>(sent);
      written_ += static_cast<std::uint64_t>(sent);
      if (out.written == out.bytes.size()) out_.pop_front();
      if (static_cast<std::size_t>(sent) < left) break;  // the rest is sent later
    }
    if (written_ == faults_.cut_after_bytes) {
      shutdown(socket_.get(), SHUT_RDWR);
      out_.clear();
    }
  }

  // Reads what has arrived, in small pieces.
  void read() {
    std::array<std::byte, kReadBytes> news;
    for (;;) {
      const ssize_t got = recv(socket_.get(), news.data(), shortened(kReadBytes), MSG_DONTWAIT);
      in_.insert(in_.end(), news.begin(), news.begin() + std::max<ssize_t>(got, 0));
      if (got == 0 || (got < 0 && errno != EAGAIN)) ended_ = true;
      if (got <= 0 || faults_.short_transfers) return;
    }
  }

  // Returns the next complete frame, whose payload is in `payload` until the next call.
  std::optional<Frame> take(std::vector<std::byte>& payload) {
    Frame frame;
    if (in_.size() < sizeof frame) return std::nullopt;
    std::memcpy(&frame, in_.data(), sizeof frame);
    const std::size_t whole = sizeof frame + frame.header.length;
    if (in_.size() < whole) return std::nullopt;
    payload.assign(in_.begin() + sizeof frame, in_.begin() + static_cast<std::ptrdiff_t>(whole));
    in_.erase(in_.begin(), in_.begin() + static_cast<std::ptrdiff_t>(whole));
    return frame;
  }

 private:
  struct Outgoing {
    std::vector<std::byte> bytes;
    std::span<const std::byte> zero_copy;
    std::size_t written = 0;
    std::uint64_t leaves_at = 0;

    void take_payload() {
      bytes.insert(bytes.end(), zero_copy.begin(), zero_copy.end());
      zero_copy = {};
    }
  };

  std::size_t shortened(std::size_t bytes) {
    return faults_.short_transfers ? 1 + random_.next() % bytes : bytes;
  }

  Fd socket_;
  const Faults faults_;
  SeededRandom random_;
  std::deque<Outgoing> out_;
  std::vector<std::byte> in_;
  std::uint64_t written_ = 0;
  bool ended_ = false;
};

class StreamTransport;

class StreamSend final : public SendChannel {
 public:
  StreamSend(StreamTransport& transport, int peer, int number)
      : transport_(transport), peer_(peer), number_(number) {}
  std::optional<Span> acquire(std::size_t bytes) override;
  bool acquire_zero_copy(const Memory& message) override;
  MemoryKinds zero_copy() const noexcept override { return MemoryKind::host; }
  bool zero_copy_done() const noexcept override {
    return posted_ - on_their_way_ >= last_zero_copy_;
  }
  void post(const Header& header) override;
  void credit() {
    assert(on_their_way_ > 0);
    --on_their_way_;
  }

 private:
  StreamTransport& transport_;
  const int peer_;
  const int number_;
  std::vector<std::byte> staging_;
  std::span<const std::byte> zero_copy_;  // The payload of the next message, if it is zero-copy.
  std::size_t posted_ = 0;
  std::size_t last_zero_copy_ = 0;  // Number of the last zero-copy message, counted from 1.
  std::size_t on_their_way_ = 0;
};

class StreamRecv final : public RecvChannel {
 public:
  StreamRecv(StreamTransport& transport, int peer, int number)
      : transport_(transport), peer_(peer), number_(number) {}
  std::optional<Message> peek() override {
    if (arrived_.empty()) return std::nullopt;
    const Arrived& next = arrived_.front();
    const bool remote = next.asked < kAsks;
    const std::byte* const data = next.place != nullptr ? next.place : next.payload.data();
    return Message{remote ? nullptr : data, next.header, false, remote};
  }
  const std::byte* get(const Memory& place) override;
  void release() override;
  void arrive(const Header& header, std::vector<std::byte> payload) {
    assert(arrived_.size() < kWindow);
    const Memory expected = std::exchange(expected_, {});
    if (expected && payload.size() <= expected.bytes) {
      std::copy(payload.begin(), payload.end(), expected.address);
      return arrived_.push_back({header, {}, kAsks, expected.address});
    }
    if (payload.empty()) payload.reserve(1);  // so that it has an address
    const bool remote = ++arrivals_ % 2 == 0;
    arrived_.push_back({header, std::move(payload), remote ? 0 : kAsks});
  }
  void revoke() noexcept { expected_ = {}; }

 private:
  static constexpr int kAsks = 2;  // the calls of get() that a remote message takes
  struct Arrived {
    Header header;
    std::vector<std::byte> payload;
    int asked;
    std::byte* place = nullptr;  // where the receiver wanted it, or null
  };

  StreamTransport& transport_;
  const int peer_;
  const int number_;
  std::uint64_t arrivals_ = 0;  // number of messages with a payload
  std::deque<Arrived> arrived_;
  Memory expected_;  // where the next message may go
};

class StreamTransport final : public Transport {
 public:
  StreamTransport(const TransportContext& context, std::vector<Fd> wires, const Faults& faults)
      : context_(context),
        epoll_(epoll_create1(EPOLL_CLOEXEC)),
        unsent_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
        peers_(wires.size()),
        ready_(wires.size()) {
    link_.largest_message = context.max_message_bytes;
    watch(unsent_, context.rank);
    for (int rank = 0; rank < context.size; ++rank) {
      if (rank == context.rank) continue;
      watch(wires[rank], rank);
      const auto salt = static_cast<std::uint64_t>(context.rank * context.size + rank);
      peers_[rank].wire = std::make_unique<Wire>(std::move(wires[rank]), faults, salt);
    }
  }
  ~StreamTransport() override { close(); }

  void connect(std::span<const std::string>, TimePoint) override {}

  SendChannel& sender(int peer, int number) override { return send_channel(peer, number); }
  RecvChannel& receiver(int peer, int number) override { return recv_channel(peer, number); }
  const LinkCapabilities& link(int) const override { return link_; }
  bool prefers_zero_copy() const noexcept override { return true; }

  void progress() override;
  // Frames leave in progress(), some calls later.
  bool all_left() override {
    progress();
    return idle();
  }
  bool leaves_at_once() const override { return false; }
  // Only tests that run all ranks in one thread have a runtime that calls this.
  bool background_progress() override {
    for (int calls = 0; calls == 0 || (calls < kCallsToAnswer && !idle()); ++calls) progress();
    return true;
  }
  std::vector<int> wait_fds() const override { return {epoll_.get()}; }
  PeerStatus status(int peer) override;

  StatusPage& own_status_page() override { return own_status_page_; }
  const StatusPage* status_page(int peer) override;
  // Nobody may call this rank's progress() for long, so the page leaves now if it fits the socket.
  void wake(int peer) override {
    put_status_page(peer);
    for (int calls = 0;
         calls < kCallsToAnswer && peers_[peer].watched && !peers_[peer].wire->idle(); ++calls)
      progress();
  }
  void revoke(int peer) noexcept override {
    for (const auto& [number, channel] : peers_[peer].receivers) channel->revoke();
    if (peers_[peer].wire != nullptr) peers_[peer].wire->keep_payloads();
  }
  void close() noexcept override;

  void put(int peer, const Frame& frame, std::span<const std::byte> payload = {},
           bool zero_copy = false) {
    peers_[peer].wire->put(frame, payload, zero_copy, now_);
    show_unsent();
  }

 private:
  struct Peer {
    std::unique_ptr<Wire> wire;  // null for this rank itself
    bool watched = true;
    bool asked = false;  // whether its status page has been requested
    bool known = false;  // whether its status page has arrived
    StatusPage status_page{};
    std::map<int, std::unique_ptr<StreamSend>> senders;
    std::map<int, std::unique_ptr<StreamRecv>> receivers;
  };

  StreamSend& send_channel(int peer, int number) {
    auto& channel = peers_[peer].senders[number];
    if (channel == nullptr) channel = std::make_unique<StreamSend>(*this, peer, number);
    return *channel;
  }
  StreamRecv& recv_channel(int peer, int number) {
    auto& channel = peers_[peer].receivers[number];
    if (channel == nullptr) channel = std::make_unique<StreamRecv>(*this, peer, number);
    return *channel;
  }

  void watch(const Fd& fd, int rank) {
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.u32 = static_cast<std::uint32_t>(rank);
    epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd.get(), &event);
  }
  void put_status_page(int peer) {
    Frame frame;
    frame.kind = Kind::status_page;
    frame.header.length = static_cast<std::uint32_t>(kStatusPageBytes);
    put(peer, frame, bytes_of(own_status_page_));
  }
  void read_arrived();
  void hear(int rank);
  void show_unsent();
  bool idle() const {
    return std::none_of(peers_.begin(), peers_.end(), [](const Peer& peer) {
      return peer.wire != nullptr && peer.watched && !peer.wire->idle();
    });
  }

  const TransportContext context_;
  LinkCapabilities link_;
  Fd epoll_;
  Fd unsent_;  // readable while frames wait: they leave in progress(), so somebody must call it
  bool shown_ = false;
  std::vector<Peer> peers_;
  std::vector<epoll_event> ready_;
  StatusPage own_status_page_{};
  std::uint64_t now_ = 0;  // number of calls of progress()
};

std::optional<Span> StreamSend::acquire(std::size_t bytes) {
  if (bytes > transport_.link(peer_).largest_message)
    throw Error(ErrorKind::internal, "a message larger than the largest");
  if (on_their_way_ == kWindow) return std::nullopt;
  staging_.reserve(1);  // There must be memory even for no bytes.
  staging_.resize(bytes);
  return Span{staging_.data(), bytes};
}

bool StreamSend::acquire_zero_copy(const Memory& message) {
  if (on_their_way_ == kWindow) return false;
  zero_copy_ = {message.address, message.bytes};
  return true;
}

void StreamSend::post(const Header& header) {
  const bool zero_copy = zero_copy_.data() != nullptr;
  const std::span<const std::byte> payload = zero_copy ? std::exchange(zero_copy_, {}) : staging_;
  assert(header.length == payload.size());
  ++on_their_way_;
  ++posted_;
  if (zero_copy) last_zero_copy_ = posted_;
  transport_.put(peer_, Frame{Kind::message, number_, header}, payload, zero_copy);
}

const std::byte* StreamRecv::get(const Memory& place) {
  if (arrived_.empty()) {
    expected_ = place;
    return nullptr;
  }
  Arrived& next = arrived_.front();
  if (place && next.header.length > place.bytes) return nullptr;
  if (++next.asked < kAsks) return nullptr;
  if (next.place != nullptr) return next.place;
  if (!place) return next.payload.data();
  std::memcpy(place.address, next.payload.data(), next.payload.size());
  return place.address;
}

void StreamRecv::release() {
  assert(!arrived_.empty());
  arrived_.pop_front();
  transport_.put(peer_, Frame{Kind::credit, number_, {}});
}

void StreamTransport::hear(int rank) {
  Peer& peer = peers_[rank];
  std::vector<std::byte> payload;
  while (const auto frame = peer.wire->take(payload)) {
    switch (frame->kind) {
      case Kind::message:
        recv_channel(rank, frame->channel).arrive(frame->header, std::move(payload));
        break;
      case Kind::credit: send_channel(rank, frame->channel).credit(); break;
      case Kind::status_page_request: put_status_page(rank); break;
      case Kind::status_page:
        assert(payload.size() == kStatusPageBytes);
        std::memcpy(
            static_cast<std::byte*>(static_cast<void*>(&peer.status_page)) + kStatusPageSkip,
            payload.data(), kStatusPageBytes);
        peer.known = true;
        peer.asked = false;
        break;
    }
  }
}

// Asks once which wires have something to read, since most have nothing in most calls.
void StreamTransport::read_arrived() {
  const int count = epoll_wait(epoll_.get(), ready_.data(), static_cast<int>(ready_.size()), 0);
  for (int i = 0; i < count; ++i) {
    const Peer& peer = peers_[ready_[i].data.u32];
    if (peer.wire != nullptr) peer.wire->read();  // null where this rank's unsent_ is readable
  }
}

void StreamTransport::progress() {
  ++now_;
  read_arrived();
  for (int rank = 0; rank < context_.size; ++rank) {
    Peer& peer = peers_[rank];
    if (peer.wire == nullptr || !peer.watched) continue;
    hear(rank);
    peer.wire->write(now_);
    if (peer.wire->ended()) {
      epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, peer.wire->socket().get(), nullptr);
      peer.watched = false;
    }
  }
  show_unsent();
}

void StreamTransport::show_unsent() {
  const bool unsent = !idle();
  if (unsent == shown_) return;
  std::uint64_t count = 1;
  [[maybe_unused]] const ssize_t moved = unsent ? write(unsent_.get(), &count, sizeof count)
                                                : read(unsent_.get(), &count, sizeof count);
  shown_ = unsent;
}

PeerStatus StreamTransport::status(int peer) {
  const PeerStatus said =
      status_on(peer == context_.rank ? own_status_page_ : peers_[peer].status_page);
  if (said.state == PeerStatus::State::alive && peer != context_.rank && peers_[peer].wire->ended())
    return {PeerStatus::State::lost, fmt::format("the wire to rank {} has ended", peer)};
  return said;
}

const StatusPage* StreamTransport::status_page(int peer) {
  if (peer == context_.rank) return &own_status_page_;
  if (!peers_[peer].asked) {
    put(peer, Frame{Kind::status_page_request, 0, {}});
    peers_[peer].asked = true;
  }
  return peers_[peer].known ? &peers_[peer].status_page : nullptr;
}

void StreamTransport::close() noexcept {
  if (!own_status_page_.close()) return;
  for (int rank = 0; rank < context_.size; ++rank) {
    if (peers_[rank].wire == nullptr) continue;
    put_status_page(rank);
    Wire& wire = *peers_[rank].wire;
    for (int tries = 0; !wire.idle() && tries < 10'000; ++tries) {
      wire.write(std::numeric_limits<std::uint64_t>::max());
      pollfd writable{wire.socket().get(), POLLOUT, 0};
      if (!wire.idle()) poll(&writable, 1, 1);
    }
  }
}

}  // namespace

std::vector<std::vector<Fd>> make_mesh(int size) {
  std::vector<std::vector<Fd>> mesh(static_cast<std::size_t>(size));
  for (auto& row : mesh) row.resize(static_cast<std::size_t>(size));
  for (int a = 0; a < size; ++a)
    for (int b = a + 1; b < size; ++b) {
      std::array<int, 2> ends{};
      if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0)
        throw Error(ErrorKind::unavailable, std::strerror(errno));
      mesh[a][b].reset(ends[0]);
      mesh[b][a].reset(ends[1]);
    }
  return mesh;
}

std::unique_ptr<Transport> make(const TransportContext& context, std::vector<Fd> wires,
                                const Faults& faults) {
  return std::make_unique<StreamTransport>(context, std::move(wires), faults);
}

}  // namespace tutti::stream
