// The messages by which a hostile peer meets this rank's sends and receives.
#include <algorithm>
#include <array>
#include <cassert>
#include <cstring>
#include <deque>
#include <memory>

#include <tutti/error.hpp>

#include "common/bytes.h"
#include "runtime/p2p/point_to_point.h"
#include "targets.h"
#include "transport/local/local.h"
#include "transport/ring/ring.h"

namespace tutti::fuzz {
namespace {

constexpr std::size_t kMostMessage = 1024, kMostBytes = 10'000;
constexpr std::uint32_t kMark = 0x31703270;

// The fields are those of PointToPoint::Envelope.
struct Envelope {
  std::uint8_t kind = 0;
  DataType type = DataType::uint8;
  std::uint16_t credit = 0;
  std::int32_t tag = 0;
  std::uint64_t count = 0;
};

// The input is a sequence of deeds, each with this record before it.
struct Deed {
  enum class Kind : std::uint8_t { control, piece, damaged, call, kinds } kind;
  std::uint8_t what = 0;     // what this rank calls, and whether a message has the right mark
  std::uint16_t number = 0;  // the number of the message, or the tag of the call
  std::uint32_t bytes = 0;   // bytes of the message or of the call
};

// Rank 1, whose peer does what the input says.
class Hostile {
 public:
  Hostile() {
    const auto hub = std::make_shared<local::Hub>(2);
    for (int rank = 0; rank < 2; ++rank) {
      TransportContext context;
      context.rank = rank;
      context.size = 2;
      context.data_bytes = SendRing::least_data_bytes(kMostMessage);
      context.max_message_bytes = kMostMessage;
      context.clock = &clock_;
      context.hub = hub;
      ranks_[rank] = local::entry().make(context);
    }
    for (const auto& rank : ranks_) rank->connect({}, clock_.now());
    rank_.emplace(*ranks_[1], 1, 2);
  }
  ~Hostile() { rank_->abandon(); }
  Hostile(const Hostile&) = delete;
  Hostile& operator=(const Hostile&) = delete;

  // Does what the front of `bytes` says, and takes it away. Returns false at its end.
  bool next(std::string_view& bytes) {
    Deed deed{};
    if (bytes.size() < sizeof deed) return false;
    std::memcpy(&deed, bytes.data(), sizeof deed);
    bytes.remove_prefix(sizeof deed);
    const auto kind =
        Deed::Kind(static_cast<unsigned>(deed.kind) % static_cast<unsigned>(Deed::Kind::kinds));
    if (kind == Deed::Kind::call)
      call(deed);
    else
      post(kind, deed, bytes);
    rank_->advance();
    while (rank_->take_ended() != nullptr) continue;
    return true;
  }

 private:
  void call(const Deed& deed) {
    Transfer& transfer = transfers_.emplace_back();
    TransferCall& call = transfer.call;
    call.direction = deed.what % 2 == 0 ? Direction::recv : Direction::send;
    call.type = DataType::uint8;
    call.count = deed.bytes % kMostBytes;
    call.buffer = buffer_.data();
    call.peer = 0;
    call.tag = deed.number;
    if (call.direction == Direction::recv) {
      if (deed.what % 4 == 2) call.peer = kAnySource;
      if (deed.what % 8 >= 4) call.tag = kAnyTag;
    }
    rank_->start(transfer);
  }

  // The length of a message that is damaged is not that of its memory, and it may lie anywhere.
  void post(Deed::Kind kind, const Deed& deed, std::string_view& bytes) const {
    const int number =
        kind == Deed::Kind::piece ? PointToPoint::kBulkChannel : PointToPoint::kControlChannel;
    SendRing& ring = *ranks_[0]->sender(1, number).ring();
    const std::size_t count = std::min<std::size_t>({bytes.size(), deed.bytes, kMostMessage});
    std::byte* const slot = ring.acquire(count);
    if (slot == nullptr) return;
    const std::string_view payload = bytes.substr(0, count);
    std::memcpy(slot, payload.data(), count);
    bytes.remove_prefix(count);
    const std::uint32_t length =
        kind == Deed::Kind::damaged ? deed.bytes : static_cast<std::uint32_t>(count);
    ring.post({deed.number, deed.what == 255 ? 0 : kMark, length, 0});
    const RingView posted = ring.view();
    if (kind == Deed::Kind::damaged)
      std::memcpy(posted.lines[(posted.next - 1) % kLines].payload, payload.data(),
                  std::min(count, kInlineBytes));
  }

  SteadyClock clock_;
  std::array<std::unique_ptr<Transport>, 2> ranks_;
  std::vector<std::byte> buffer_ = std::vector<std::byte>(kMostBytes);
  std::deque<Transfer> transfers_;
  std::optional<PointToPoint> rank_;
};

std::string deed(Deed::Kind kind, int what, int number, std::string_view with) {
  const Deed head{kind, static_cast<std::uint8_t>(what), static_cast<std::uint16_t>(number),
                  static_cast<std::uint32_t>(with.size())};
  return std::string(bytes_of(head)).append(with);
}
std::string call(int what, int tag, std::uint32_t bytes) {
  const Deed head{Deed::Kind::call, static_cast<std::uint8_t>(what),
                  static_cast<std::uint16_t>(tag), bytes};
  return std::string(bytes_of(head));
}
std::string control(const Envelope& envelope, int number, std::string_view payload = {}) {
  return deed(Deed::Kind::control, 0, number, std::string(bytes_of(envelope)).append(payload));
}

}  // namespace

void run_transfers(std::string_view bytes) {
  try {
    Hostile hostile;
    while (hostile.next(bytes)) continue;
  } catch (const Error& error) {
    assert(error.kind() == ErrorKind::corrupt || error.kind() == ErrorKind::mismatch);
  }
}

std::vector<std::string> transfer_seeds() {
  const auto u8 = DataType::uint8;
  const std::string request = control({1, u8, 0, 3, 700}, 5), piece(350, 'x');
  const std::string pieces =
      deed(Deed::Kind::piece, 0, 5, piece) + deed(Deed::Kind::piece, 0, 5, piece);
  return {call(0, 3, 8) + control({0, u8, 0, 3, 8}, 0, "12345678"),
          control({0, u8, 0, 3, 8}, 0, "12345678") + call(6, 0, 8),
          call(0, 3, 1000) + request + pieces,
          request + call(2, 3, 1000) + pieces,
          call(1, 3, 5000) + control({2, u8, 0, 0, 0}, 0) + call(1, 3, 8),
          call(1, 3, 8) + call(0, 4, 8) + control({3, u8, 1, 0, 0}, 0),
          call(4, 0, 8) + deed(Deed::Kind::damaged, 0, 0, std::string(40, '\0'))};
}

}  // namespace tutti::fuzz
