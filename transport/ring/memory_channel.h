// The channel interface over a ring in memory, for every transport whose channels are plain memory.
#pragma once

#include <fmt/format.h>

#include <optional>

#include <tutti/error.hpp>

#include "common/sync.h"
#include "transport/channel.h"
#include "transport/ring/ring.h"

namespace tutti {

/// Returns the state that a peer's status page shows.
inline PeerStatus status_on(const StatusPage& status_page) {
  switch (status_page.state.load(std::memory_order_acquire)) {
    case StatusPageState::open: return {PeerStatus::State::alive, {}};
    case StatusPageState::failed: return {PeerStatus::State::failed, {}};
    case StatusPageState::closed: return {PeerStatus::State::closed, {}};
  }
  return {PeerStatus::State::lost, "its status page is damaged"};
}

class MemorySendChannel final : public SendChannel {
 public:
  MemorySendChannel(RingMemory* memory, std::size_t data_bytes, std::size_t max_message_bytes,
                    PeerBell peer)
      : ring_(memory, data_bytes, peer), max_message_bytes_(max_message_bytes) {
    assert(max_message_bytes <= SendRing::max_message_bytes(data_bytes));
  }

  std::optional<Span> acquire(std::size_t bytes) override {
    if (bytes > max_message_bytes_)
      throw Error(ErrorKind::internal,
                  fmt::format("a message of {} bytes was asked of a channel whose largest is {}",
                              bytes, max_message_bytes_));
    std::byte* data = ring_.acquire(bytes);
    if (data == nullptr) return std::nullopt;
    acquired_bytes_ = bytes;
    return Span{data, bytes};
  }

  MemoryKinds zero_copy() const noexcept override {
    return ring_.peer_gets() ? MemoryKind::shared | MemoryKind::host : MemoryKind::shared;
  }
  bool acquire_zero_copy(const Memory& message) override {
    if (message.bytes <= kInlineBytes || !zero_copy().has(message.kind) ||
        !ring_.acquire_at(origin_of(message)))
      return false;
    assert(message.kind != MemoryKind::shared || message.segment != 0);
    acquired_bytes_ = message.bytes;
    last_zero_copy_ = ring_.posted() + 1;
    return true;
  }
  bool zero_copy_done() const noexcept override { return ring_.released(last_zero_copy_); }

  void post(const Header& header) override {
    assert(header.length == acquired_bytes_);
    ring_.post(header);
  }

  SendRing* ring() noexcept override { return &ring_; }

 private:
  SendRing ring_;
  const std::size_t max_message_bytes_;
  std::size_t acquired_bytes_ = 0;
  std::uint64_t last_zero_copy_ = 0;  // number of the last zero-copy message, counted from 1
};

class MemoryRecvChannel final : public RecvChannel {
 public:
  /// Makes a channel on which nothing arrives, and which has no ring(), until attach().
  MemoryRecvChannel() = default;

  void attach(RingMemory* memory, std::size_t data_bytes, PeerBell peer, int number = 0,
              const OutsideMemory& outside = {}) {
    assert(!attached() && memory != nullptr && number >= 0);
    ring_ = RecvRing(memory, data_bytes, peer, number, outside);
    attached_.store(true, std::memory_order_release);
  }
  /// May be called by any thread, since another communicator's progress() may attach the ring.
  bool attached() const noexcept { return attached_.load(std::memory_order_acquire); }

  std::optional<Message> peek() override {
    if (!attached() || !ring_.peek()) return std::nullopt;
    if (!ring_.plausible())
      throw Error(ErrorKind::corrupt,
                  fmt::format("a message claims {} bytes, more than its channel can carry: the "
                              "sender's memory is damaged or it runs another version",
                              ring_.header().length));
    Message message{nullptr, ring_.header()};
    message.data = ring_.data(message.zero_copy);
    if (message.data == nullptr && !(message.remote = ring_.remote())) return std::nullopt;
    return message;
  }

  const std::byte* get(const Memory& place) override {
    if (!attached() || !ring_.peek() || !ring_.plausible()) return nullptr;
    if (place.address != nullptr && ring_.header().length > place.bytes) return nullptr;
    return ring_.remote() ? ring_.get(place.address, place.bytes) : ring_.data();
  }

  void release() override { ring_.release(); }

  RecvRing* ring() noexcept override { return attached() ? &ring_ : nullptr; }

 private:
  RecvRing ring_;
  sync::Atomic<bool> attached_{false};
};

}  // namespace tutti
