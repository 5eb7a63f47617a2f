// What a hostile peer hands over in shared memory, and what it writes there later.
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <cstring>
#include <optional>

#include <tutti/error.hpp>

#include "common/bytes.h"
#include "targets.h"
#include "transport/ring/ring.h"
#include "transport/shm/packet.h"
#include "transport/shm/peer.h"

namespace tutti::fuzz {
namespace {

constexpr std::size_t kDataBytes = 64 * 6, kMostMessage = SendRing::max_message_bytes(kDataBytes);

// The fields are those of Peer::HandOver.
struct Offer {
  std::uint64_t magic = 0x7475747469726e67;
  std::uint64_t bytes = 0;
  std::uint32_t group = 0;
  std::int32_t number = 0;
  std::uint64_t segment = 0;
};

// The input is a sequence of deeds, each with this record before it.
struct Deed {
  enum class Kind : std::uint8_t { hand_over, write, receive, close, kinds } kind;
  std::uint8_t memory = 0;  // what is handed over or written: see Hostile::memory_of()
  std::uint16_t at = 0;     // where it is written, or the channel that is received
};

// A rank whose peer does what the input says.
class Hostile {
 public:
  Hostile() {
    std::array<int, 2> ends{};
    const int made = socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data());
    assert(made == 0);
    static_cast<void>(made);
    theirs_.reset(ends[1]);
    shm::Link link;
    link.socket.reset(ends[0]);
    link.status_page.reset(dup(status_page_.fd.get()));
    context_.size = 2;
    context_.data_bytes = kDataBytes;
    context_.max_message_bytes = kMostMessage;
    peer_.emplace(context_, 1, std::move(link), epoll_, own_, allowance_);
    const Subset subset{{0, 1}, 0, {7, 7}, kDataBytes, kMostMessage, {}};
    peer_->add_group(7, subset, status_page_.fd.get(), own_);
    SendChannel& channel = peer_->sender(0, 1);  // what answers may claim to answer
    if (channel.acquire(100)) channel.post({0, 0, 100, 0});
  }

  // Does what the front of `bytes` says, and takes it away. Returns false at its end.
  bool next(std::string_view& bytes) {
    Deed deed{};
    if (bytes.size() < sizeof deed) return false;
    std::memcpy(&deed, bytes.data(), sizeof deed);
    bytes.remove_prefix(sizeof deed);
    switch (
        Deed::Kind(static_cast<unsigned>(deed.kind) % static_cast<unsigned>(Deed::Kind::kinds))) {
      case Deed::Kind::hand_over: hand_over(deed, bytes); break;
      case Deed::Kind::write: write(deed, bytes); break;
      case Deed::Kind::receive: receive(deed); break;
      default: theirs_.reset(); peer_->handle_event(shm::Peer::Source::socket);
    }
    return true;
  }

 private:
  const shm::Memory* memory_of(const Deed& deed) const {
    const std::array<const shm::Memory*, 3> all{nullptr, &status_page_, &ring_};
    return all[deed.memory % all.size()];
  }

  // One packet in eight has the mark of the input, the others have the right one.
  void hand_over(const Deed& deed, std::string_view& bytes) {
    Offer offer;
    const std::size_t count = std::min(bytes.size(), sizeof offer);
    std::memcpy(&offer, bytes.data(), count);
    bytes.remove_prefix(count);
    if (deed.at % 8 != 7) offer.magic = Offer().magic;
    const shm::Memory* const memory = memory_of(deed);
    const int fd = memory == nullptr ? -1 : memory->fd.get();
    if (!theirs_) return;
    shm::send_packet(theirs_, offer, std::span(&fd, memory == nullptr ? 0 : 1));
    peer_->handle_event(shm::Peer::Source::socket);
  }

  void write(const Deed& deed, std::string_view& bytes) const {
    const shm::Memory* const memory = memory_of(deed);
    const std::size_t count = std::min<std::size_t>(bytes.size(), kCacheLine);
    if (memory != nullptr) {
      const std::size_t at = deed.at % (memory->mapping.bytes() - kCacheLine);
      std::memcpy(static_cast<std::byte*>(memory->mapping.data()) + at, bytes.data(), count);
    }
    bytes.remove_prefix(count);
  }

  // Between two calls the peer changes the line that is read.
  void receive(const Deed& deed) {
    const std::uint32_t group = deed.at % 2 == 0 ? 0 : 7;
    RecvChannel& channel = peer_->receiver(group, deed.at / 2 % 4);
    auto* const shared = static_cast<RingMemory*>(ring_.mapping.data());
    const auto message = channel.peek();
    if (peer_->status_page(group) != nullptr) static_cast<void>(peer_->status(group));
    if (!message) return;
    for (Line& line : shared->lines) line.header.length ^= deed.memory;
    std::array<std::byte, kMostMessage> place;
    const std::byte* const got = channel.get({place.data(), place.size()});
    if (got == nullptr) return;
    assert(message->header.length <= kMostMessage);
    std::memmove(place.data(), got, message->header.length);
    if (channel.ring()->still_valid()) channel.release();
  }

  const Fd epoll_{epoll_create1(EPOLL_CLOEXEC)};
  TransportContext context_;
  Segments own_;
  const shm::Memory status_page_ =
      shm::make_memory(sizeof(StatusPage), shm::Access::read, "a status page");
  const shm::Memory ring_ =
      shm::make_memory(RingMemory::bytes(kDataBytes), shm::Access::write, "a ring");
  Fd theirs_;
  shm::Allowance allowance_;
  std::optional<shm::Peer> peer_;
};

std::string deed(Deed::Kind kind, int memory, int at, std::string_view with = {}) {
  const Deed head{kind, static_cast<std::uint8_t>(memory), static_cast<std::uint16_t>(at)};
  return std::string(bytes_of(head)).append(with);
}

std::string offer(int memory, std::uint64_t bytes, std::uint32_t group, std::int32_t number,
                  std::uint64_t segment = 0) {
  const Offer body{Offer().magic, bytes, group, number, segment};
  return deed(Deed::Kind::hand_over, memory, 0, bytes_of(body));
}

// Message 0 of the ring, with a payload of the line.
std::string line(std::uint32_t length, const Origin& origin = {}) {
  std::array<char, kCacheLine> bytes{};
  const std::uint64_t sequence = 1;
  const Header header{0, 0, length, 0};
  std::memcpy(bytes.data(), &sequence, sizeof sequence);
  std::memcpy(bytes.data() + 8, &header, sizeof header);
  std::memcpy(bytes.data() + 24, &origin, sizeof origin);
  return deed(Deed::Kind::write, 2, offsetof(RingMemory, lines), {bytes.data(), bytes.size()});
}

}  // namespace

void run_packets(std::string_view bytes) {
  Hostile hostile;
  try {
    while (hostile.next(bytes)) continue;
  } catch (const Error& error) {
    assert(error.kind() == ErrorKind::corrupt);
  }
}

std::vector<std::string> packet_seeds() {
  const std::string ring = offer(2, kDataBytes, 0, 0), take = deed(Deed::Kind::receive, 255, 0);
  const std::string segment = offer(2, RingMemory::bytes(kDataBytes), 0, -2, 5);
  return {ring + line(8) + take + take,
          ring + line(100) + take,
          ring + segment + line(100, {0, 64, 0, 5, {5, 200}}) + take + offer(0, 0, 0, -3, 5),
          ring + line(100, {1, 0, 1, 0, {}}) + take,
          ring + line(100, {1, 0, 0, 9, {}}) + take,
          ring + line(100, at_address(nullptr)) + take,
          offer(1, sizeof(StatusPage), 7, -1) + offer(2, kDataBytes, 7, 3) + take,
          offer(1, sizeof(StatusPage), 9, -1) + offer(2, kDataBytes, 9, 3) + offer(0, 0, 9, -4),
          ring + deed(Deed::Kind::close, 0, 0) + take};
}

}  // namespace tutti::fuzz
