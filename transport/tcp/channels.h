// The two ends of a channel over a connection, with a window of their own.
#pragma once

#include <array>
#include <atomic>
#include <cassert>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "net/tcp_socket.h"
#include "transport/channel.h"
#include "transport/tcp/frame.h"

namespace tutti::tcp {

class Connection;

/// The most messages of a channel, of any size, that the receiver has not released: with 64 KiB
/// each, what 300 Mb/s and 100 ms round trip have on their way. A receiver takes memory for as
/// many as come, so that all can be taken in: a channel that nobody reads stops no other one of its
/// connection.
inline constexpr std::uint32_t kWindow = 64;
/// Of these a sender uses so many where the way round trip takes so long. 8 of 64 KiB are
/// enough for 4 Gb/s and 1 ms, and stay in the caches: between two machines in a box 64 take 14 ms
/// for an all_reduce of 16 MiB, 8 take 7.4.
constexpr std::uint32_t window_for(std::chrono::microseconds round_trip_time) noexcept {
  return net::is_short(round_trip_time) ? 8 : kWindow;
}
/// Releases are told in such numbers, or with the next message the other way: so a sender always
/// has half a window at least beyond what has been released.
inline constexpr std::uint32_t kReturnAt = 4;

/// Memory for messages, each with room for a frame before it: for as many as were ever there at the
/// same time, and taken by the kernel page by page, so that channels of small ones stay small.
class Slots {
 public:
  explicit Slots(std::size_t max_message_bytes) : bytes_(max_message_bytes + 2 * kLine) {}

  /// The next one of the window, aligned to a cache line. Throws `unavailable`.
  std::byte* payload() {
    if (next_ == memory_.size()) take();
    const auto begin = reinterpret_cast<std::uintptr_t>(memory_[next_].get());
    return memory_[next_].get() + ((begin + sizeof(Frame) + kLine - 1) / kLine * kLine - begin);
  }
  void use() noexcept { next_ = (next_ + 1) % kWindow; }
  /// All are free: those are next that are still in the cache.
  void begin_again() noexcept { next_ = 0; }
  std::size_t memory_bytes() const { return memory_.size() * bytes_; }

 private:
  static constexpr std::size_t kLine = 64;
  void take();

  const std::size_t bytes_;  // of one
  std::vector<std::unique_ptr<std::byte[]>> memory_;
  std::size_t next_ = 0;  // at most memory_.size()
};

/// Own thread: its communicator's. What the reader of the connection does is said at each function:
/// it may be another thread, under the connection's lock.
class TcpRecvChannel final : public RecvChannel {
 public:
  TcpRecvChannel(Connection& connection, std::uint32_t group, int number, std::size_t max_bytes)
      : connection_(connection), group_(group), number_(number), slots_(max_bytes) {}

  std::optional<Message> peek() override;
  const std::byte* fetch(std::byte* to) override;
  void release() override;

  /// For the next frame to the sender.
  std::uint16_t take_unreturned() noexcept {
    return static_cast<std::uint16_t>(std::exchange(unreturned_, 0));
  }
  std::size_t memory_bytes() const { return slots_.memory_bytes(); }

  /// Reader: the next message's header is here; false: the sender had no credit for it. Until
  /// complete() the message is away.
  [[nodiscard]] bool announce(const Header& header) {
    const std::uint32_t announced = announced_.load(std::memory_order_relaxed);
    if (announced - released_.load(std::memory_order_acquire) == kWindow) return false;
    headers_[announced % kWindow] = header;
    announced_.store(announced + 1, std::memory_order_release);
    return true;
  }
  /// Reader: the channel's own memory for the payload of the message announced last.
  std::byte* own_payload() {
    if (announced_.load(std::memory_order_relaxed) - 1 == released_.load(std::memory_order_acquire))
      slots_.begin_again();
    std::byte* const payload = slots_.payload();
    slots_.use();
    return payload;
  }
  /// Reader: all of its payload is at `payload`.
  void complete(std::byte* payload) {
    const std::uint32_t message = announced_.load(std::memory_order_relaxed);
    payloads_[(message - 1) % kWindow] = payload;
    completed_.store(message, std::memory_order_release);
  }
  /// Of the oldest message, which is announced: its payload; null: it is away.
  const std::byte* payload() const noexcept {
    const std::uint32_t oldest = released_.load(std::memory_order_relaxed);
    if (completed_.load(std::memory_order_acquire) == oldest) return nullptr;
    return payloads_[oldest % kWindow];
  }

 private:
  bool has_message() const noexcept {
    return announced_.load(std::memory_order_acquire) != released_.load(std::memory_order_relaxed);
  }

  Connection& connection_;
  const std::uint32_t group_;
  const int number_;
  Slots slots_;  // reader
  std::array<Header, kWindow> headers_{};
  std::array<std::byte*, kWindow> payloads_{};  // of messages that are complete
  std::atomic<std::uint32_t> announced_{0};     // messages; the reader's
  std::atomic<std::uint32_t> completed_{0};     // of them, all but the last at least; the reader's
  std::atomic<std::uint32_t> released_{0};      // of them; own
  std::uint32_t unreturned_ = 0;                // of them: not told the sender
};

/// As TcpRecvChannel. A message is staged here, and written from here.
class TcpSendChannel final : public SendChannel {
 public:
  /// `answers`: the channel of the same number the other way.
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

  /// Reader: the peer has released so many; false: more than it was sent.
  [[nodiscard]] bool credit(std::uint32_t count) {
    const std::uint32_t released = released_.load(std::memory_order_relaxed);
    if (count > posted_.load(std::memory_order_acquire) - released) return false;
    released_.store(released + count, std::memory_order_release);
    return true;
  }
  /// Whoever writes, under the connection's lock: the oldest message that was not is written.
  void wrote_one() noexcept { written_.fetch_add(1, std::memory_order_release); }

 private:
  bool has_room(std::size_t bytes);
  bool full() const noexcept;

  Connection& connection_;
  const std::uint32_t group_;
  const int number_;
  const std::size_t max_bytes_;
  TcpRecvChannel& answers_;
  Slots slots_;
  bool in_hand_ = false;                 // acquired, and not posted
  const std::byte* in_place_ = nullptr;  // where the message in hand lies, if not here
  std::uint32_t last_zero_copy_ = 0;     // message, counted from 1
  std::size_t acquired_bytes_ = 0;
  std::atomic<std::uint32_t> posted_{0};    // messages; own
  std::atomic<std::uint32_t> released_{0};  // by the peer; the reader's
  std::atomic<std::uint32_t> written_{0};   // to the kernel
};

}  // namespace tutti::tcp
