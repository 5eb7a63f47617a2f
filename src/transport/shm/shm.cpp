#include "transport/shm/shm.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <array>
#include <cassert>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <new>
#include <vector>

#include <tutti/error.hpp>

#include "transport/shm/peer.h"

namespace tutti::shm {
namespace {

// How long close() waits for a peer to take rings that were promised to it.
constexpr std::chrono::milliseconds kGoodbye{1000};

Fd make_epoll() {
  Fd epoll(epoll_create1(EPOLL_CLOEXEC));
  if (!epoll)
    throw Error(ErrorKind::unavailable, fmt::format("no epoll: {}", std::strerror(errno)));
  return epoll;
}

class ShmTransport final : public Transport {
 public:
  explicit ShmTransport(const TransportContext& context)
      : context_(context),
        address_(own_address(*context.random)),
        epoll_(make_epoll()),
        listener_(listen_at(address_)),
        board_memory_(make_memory(sizeof(Board), Access::read,
                                  fmt::format("the board of rank {}", context.rank))),
        board_(new (board_memory_.mapping.data()) Board()),
        peers_(static_cast<std::size_t>(context.size)) {
    assert(context.clock != nullptr);
    assert(context.max_message_bytes <= SendRing::max_message_bytes(context.data_bytes));
  }

  // In a forked child this frees the child's copies of descriptors and mappings, no more: boards,
  // bells and sockets stay the parent's (see close()).
  ~ShmTransport() override { close(); }

  std::string_view name() const override { return "shm"; }
  std::string address() const override { return address_.to_string(); }
  void connect(std::span<const std::string> addresses, TimePoint deadline) override;

  SendChannel& sender(int peer, int number) override { return at(peer).sender(number); }
  RecvChannel& receiver(int peer, int number) override { return at(peer).receiver(number); }
  std::size_t max_message_bytes() const override { return context_.max_message_bytes; }

  void progress() override;
  int wait_fd() const override { return epoll_.get(); }

  PeerStatus status(int peer) override {
    return peer == context_.rank ? status_on(*board_) : at(peer).status();
  }
  Board& own_board() override { return *board_; }
  const Board* board(int peer) override {
    return peer == context_.rank ? board_ : &at(peer).board();
  }
  void wake(int peer) override { at(peer).wake(); }
  void close() noexcept override;

 private:
  Peer& at(int rank) {
    assert(rank >= 0 && rank < context_.size && peers_[rank] != nullptr);
    return *peers_[rank];
  }
  std::vector<Address> parse(std::span<const std::string> addresses) const;

  const TransportContext context_;
  const Address address_;
  const pid_t owner_ = getpid();
  Fd epoll_;
  Fd listener_;  // until connected
  Memory board_memory_;
  Board* const board_;
  std::vector<std::unique_ptr<Peer>> peers_;  // by rank; the own one, and all until connected: null
};

std::vector<Address> ShmTransport::parse(std::span<const std::string> addresses) const {
  assert(addresses.size() == peers_.size());
  std::vector<Address> parsed;
  for (int rank = 0; rank < context_.size; ++rank) {
    const auto address = Address::parse(addresses[rank]);
    if (!address)
      throw Error(ErrorKind::mismatch,
                  fmt::format("rank {} does not offer shared memory as rank {} knows it: do all "
                              "ranks run the same version with the same TUTTI_TRANSPORTS?",
                              rank, context_.rank));
    if (const std::string why = why_unreachable(address_, *address); !why.empty())
      throw Error(
          ErrorKind::unavailable,
          fmt::format("rank {} cannot share memory with rank {}: {}", context_.rank, rank, why));
    parsed.push_back(*address);
  }
  if (parsed[context_.rank] != address_)
    throw Error(ErrorKind::usage,
                fmt::format("processes {} and {} both call themselves rank {}; give each its own "
                            "RANK",
                            address_.process, parsed[context_.rank].process, context_.rank));
  return parsed;
}

void ShmTransport::connect(std::span<const std::string> addresses, TimePoint deadline) {
  assert(listener_);
  const std::vector<Address> parsed = parse(addresses);
  std::vector<Link> links = Join(context_, parsed, listener_, board_memory_.fd).run(deadline);
  listener_.reset();
  board_memory_.fd.reset();
  for (int rank = 0; rank < context_.size; ++rank)
    if (rank != context_.rank)
      peers_[rank] = std::make_unique<Peer>(context_, rank, std::move(links[rank]), epoll_);
}

void ShmTransport::progress() {
  std::array<epoll_event, 16> events{};
  for (;;) {
    const int count = epoll_wait(epoll_.get(), events.data(), events.size(), 0);
    for (int i = 0; i < count; ++i) {
      const std::uint64_t tag = events[i].data.u64;
      at(static_cast<int>(tag / 2))
          .hear(tag % 2 == 0 ? Peer::Source::socket : Peer::Source::process);
    }
    if (count < static_cast<int>(events.size())) return;
  }
}

void ShmTransport::close() noexcept {
  if (getpid() != owner_ || !board_->close()) return;
  const auto deadline = std::chrono::steady_clock::now() + kGoodbye;
  for (const auto& peer : peers_) {
    if (peer == nullptr) continue;
    peer->wake();
    while (!peer->flush() && std::chrono::steady_clock::now() < deadline) {
      pollfd writable{peer->socket().get(), POLLOUT, 0};
      poll(&writable, 1, 10);
    }
  }
}

}  // namespace

std::string why_not(const TransportContext&) {
  try {
    make_memory(sizeof(Board), Access::read, "a first try");
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

std::unique_ptr<Transport> make(const TransportContext& context) {
  return std::make_unique<ShmTransport>(context);
}

}  // namespace tutti::shm
