// The two ends of a channel over a connection. Each channel has a window of its own.
#pragma once

#include <array>
#include <bit>
#include <cassert>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "common/sync.h"
#include "net/tcp_socket.h"
#include "transport/channel.h"
#include "transport/tcp/frame.h"

namespace tutti::tcp {

class Connection;

/// The most messages of a channel, of any size, that the receiver has not released. With 64 KiB
/// each, that is as much as is in flight at 300 Mb/s and a round-trip time of 100 ms. A receiver
/// allocates memory for all that arrive, so that a channel that nobody reads does not block other
/// channels of its connection.
inline constexpr std::uint32_t kWindow = 64;
/// Returns how many messages of this window a sender uses at a given round-trip time. 8 messages of
/// 64 KiB are enough for 4 Gb/s and 1 ms, and stay in the caches: between two machines in a box, an
/// all_reduce of 16 MiB takes 14 ms with 64 messages and 7.4 ms with 8.
constexpr std::uint32_t window_for(std::chrono::microseconds round_trip_time) noexcept {
  return net::is_short(round_trip_time) ? 8 : kWindow;
}
/// A receiver returns credits when it has released this many messages, or earlier with the next
/// message in the other direction. A sender therefore always has at least half a window beyond the
/// messages that have been released.
inline constexpr std::uint32_t kReturnAt = 4;
static_assert(2 * kReturnAt <= window_for(std::chrono::microseconds{0}) &&
              2 * kReturnAt <= window_for(std::chrono::seconds{1}));
static_assert(std::has_single_bit(kWindow), "32-bit counts of messages may wrap around");
static_assert(kWindow <= 0xffff, "a frame has 16 bits for credits");

/// Memory for messages, each with room for a frame before it. There are as many slots as messages
/// were ever in use at the same time, and the kernel provides their pages only when they are
/// touched, so that channels of small messages stay small.
class Slots {
 public:
  explicit Slots(std::size_t max_message_bytes) : bytes_(max_message_bytes + 2 * kLine) {}

  /// Returns the payload of the window's next slot, aligned to a cache line. Throws `unavailable`.
  std::byte* payload() {
    assert(next_ <= memory_.size() && memory_.size() <= kWindow);
    if (next_ == memory_.size()) take();
    const auto begin = reinterpret_cast<std::uintptr_t>(memory_[next_].get());
    return memory_[next_].get() + ((begin + sizeof(Frame) + kLine - 1) / kLine * kLine - begin);
  }
  void use() noexcept { next_ = (next_ + 1) % kWindow; }
  /// Restarts at the first slot, which is still in the cache. Called when all slots are free.
  void begin_again() noexcept { next_ = 0; }
  std::size_t memory_bytes() const { return memory_.size() * bytes_; }

 private:
  static constexpr std::size_t kLine = 64;
  void take();

  const std::size_t bytes_;  // bytes of one slot
  std::vector<std::unique_ptr<std::byte[]>> memory_;
  std::size_t next_ = 0;  // index of the next slot, at most memory_.size()
};

/// The receiving end of a channel. Its communicator's thread uses it, except for the functions
/// marked "Reader". The thread that reads the connection calls those; it may be another thread, and
/// holds the connection's lock.
class TcpRecvChannel final : public RecvChannel {
 public:
  TcpRecvChannel(Connection& connection, std::uint32_t group, int number, std::size_t max_bytes)
      : connection_(connection), group_(group), number_(number), slots_(max_bytes) {}

  std::optional<Message> peek() override;
  const std::byte* get(const Memory& place) override;
  void release() override;

  /// Returns the credits that the next frame to the sender carries.
  std::uint16_t take_unreturned() noexcept {
    return static_cast<std::uint16_t>(std::exchange(unreturned_, 0));
  }
  std::size_t memory_bytes() const { return slots_.memory_bytes(); }

  /// Reader: records that the next message's header has arrived. Returns false where the sender had
  /// no credit for it. The message is remote until complete().
  [[nodiscard]] bool announce(const Header& header) {
    const std::uint32_t announced = announced_.load(std::memory_order_relaxed);
    if (announced - released_.load(std::memory_order_acquire) == kWindow) return false;
    headers_[announced % kWindow] = header;
    announced_.store(announced + 1, std::memory_order_release);
    return true;
  }
  /// Reader: returns the channel's own memory for the payload of the message announced last.
  std::byte* own_payload() {
    if (announced_.load(std::memory_order_relaxed) - 1 == released_.load(std::memory_order_acquire))
      slots_.begin_again();
    assert(has_message());
    std::byte* const payload = slots_.payload();
    slots_.use();
    return payload;
  }
  /// Reader: records where the payload of the next message that is announced may go, or, with none,
  /// that it may go nowhere but to the channel's own memory once get() asks for it.
  void expect(std::optional<Memory> place) noexcept { expected_ = place; }
  /// Reader: returns that place for the message announced last, if there is one and the message
  /// fits. It serves one message.
  std::optional<Memory> take_expected() noexcept {
    const std::optional<Memory> place = std::exchange(expected_, std::nullopt);
    const std::uint32_t last = announced_.load(std::memory_order_relaxed) - 1;
    assert(completed_.load(std::memory_order_relaxed) == last);
    const bool fits =
        place && (place->address == nullptr || headers_[last % kWindow].length <= place->bytes);
    return fits ? place : std::nullopt;
  }
  /// Reader: records that all of that payload is at `payload`.
  void complete(std::byte* payload) {
    const std::uint32_t message = announced_.load(std::memory_order_relaxed);
    assert(completed_.load(std::memory_order_relaxed) + 1 == message);
    payloads_[(message - 1) % kWindow] = payload;
    completed_.store(message, std::memory_order_release);
  }
  /// Whether a message has been announced that is not released. For the communicator's thread.
  bool has_message() const noexcept {
    return announced_.load(std::memory_order_acquire) != released_.load(std::memory_order_relaxed);
  }
  /// Returns the payload of the oldest message, which has been announced, or null while it is
  /// remote.
  const std::byte* payload() const noexcept {
    const std::uint32_t oldest = released_.load(std::memory_order_relaxed);
    if (completed_.load(std::memory_order_acquire) == oldest) return nullptr;
    return payloads_[oldest % kWindow];
  }

 private:
  Connection& connection_;
  const std::uint32_t group_;
  const int number_;
  Slots slots_;  // reader
  std::array<Header, kWindow> headers_{};
  std::array<std::byte*, kWindow> payloads_{};  // payloads of the complete messages
  sync::Atomic<std::uint32_t> announced_{0};  // number of messages announced; written by the reader
  // The number of them that are complete, which is all but the last at least; written by the
  // reader.
  sync::Atomic<std::uint32_t> completed_{0};
  sync::Atomic<std::uint32_t> released_{
      0};                         // number of them released; written by the communicator's thread
  std::uint32_t unreturned_ = 0;  // number of them of which the sender has not been told
  std::uint32_t told_ = 0;  // number of the last message, from 1, that get() asked for too early
  std::optional<Memory> expected_;  // reader
};

/// The sending end of a channel, with the same threads as TcpRecvChannel. Messages are staged in
/// its slots and written from there.
class TcpSendChannel final : public SendChannel {
 public:
  /// `answers` is the channel of the same number in the other direction.
  TcpSendChannel(Connection& connection, std::uint32_t group, int number, std::size_t max_bytes,
                 TcpRecvChannel& answers)
      : connection_(connection),
        group_(group),
        number_(number),
        max_bytes_(max_bytes),
        answers_(answers),
        slots_(max_bytes) {}

  std::optional<Span> acquire(std::size_t bytes) override;
  MemoryKinds zero_copy() const noexcept override {
    return MemoryKind::host | MemoryKind::shared | MemoryKind::registered;
  }
  bool acquire_zero_copy(const Memory& message) override;
  bool zero_copy_done() const noexcept override {
    return static_cast<std::int32_t>(written_.load(std::memory_order_acquire) - last_zero_copy_) >=
           0;
  }
  void post(const Header& header) override;
  std::size_t memory_bytes() const { return slots_.memory_bytes(); }

  /// Reader: records that the peer has released `count` messages; returns false where that is more
  /// than it was sent.
  [[nodiscard]] bool credit(std::uint32_t count) {
    const std::uint32_t released = released_.load(std::memory_order_relaxed);
    if (count > posted_.load(std::memory_order_acquire) - released) return false;
    released_.store(released + count, std::memory_order_release);
    return true;
  }
  /// Records that the oldest unwritten message has been written. Called by the thread that writes,
  /// which holds the connection's lock.
  void wrote_one() noexcept {
    assert(written_.load(std::memory_order_relaxed) != posted_.load(std::memory_order_relaxed));
    written_.fetch_add(1, std::memory_order_release);
  }

 private:
  bool has_room(std::size_t bytes);
  bool full() const noexcept;

  Connection& connection_;
  const std::uint32_t group_;
  const int number_;
  const std::size_t max_bytes_;
  TcpRecvChannel& answers_;
  Slots slots_;
  bool in_hand_ = false;                 // whether a message is acquired and not posted
  const std::byte* in_place_ = nullptr;  // address of the acquired message, if not in a slot
  std::uint32_t last_zero_copy_ = 0;     // number of the last zero-copy message, counted from 1
  std::size_t acquired_bytes_ = 0;
  sync::Atomic<std::uint32_t> posted_{
      0};  // number of messages posted, by the communicator's thread
  sync::Atomic<std::uint32_t> released_{0};  // number released by the peer; written by the reader
  sync::Atomic<std::uint32_t> written_{0};   // number of messages written to the kernel
};

}  // namespace tutti::tcp
