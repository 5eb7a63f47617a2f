#include "transport/tcp/channels.h"

#include <fmt/format.h>

#include <cstring>
#include <new>

#include <tutti/error.hpp>

#include "transport/tcp/connection.h"

namespace tutti::tcp {

void Slots::take() {
  assert(memory_.size() < kWindow);
  // A sanitizer ends the process where an allocation that throws fails.
  std::unique_ptr<std::byte[]> memory(new (std::nothrow) std::byte[bytes_]);
  if (memory == nullptr)
    throw Error(ErrorKind::unavailable,
                fmt::format("no memory for a channel's message ({} bytes): make "
                            "TUTTI_MESSAGE_BYTES smaller",
                            bytes_));
  memory_.push_back(std::move(memory));
}

std::optional<Message> TcpRecvChannel::peek() {
  if (!has_message()) {
    connection_.poll();
    if (!has_message()) return std::nullopt;
  }
  const std::uint32_t oldest = released_.load(std::memory_order_relaxed);
  const std::byte* const data = payload();
  return Message{data, headers_[oldest % kWindow], false, data == nullptr};
}

const std::byte* TcpRecvChannel::get(const Memory& place) {
  const std::uint32_t oldest = released_.load(std::memory_order_relaxed);
  if (!has_message()) {
    // A caller that waits asks again and again; the connection is told once for each message.
    if (std::exchange(told_, oldest + 1) != oldest + 1) connection_.expect(*this, place);
    return nullptr;
  }
  // Another thread may have announced the message since the caller looked, so that nobody has
  // compared its length.
  const std::size_t bytes = headers_[oldest % kWindow].length;
  if (place.address != nullptr && bytes > place.bytes) return nullptr;
  if (payload() == nullptr) connection_.get(*this, place);
  const std::byte* const data = payload();
  if (data == nullptr || place.address == nullptr || data == place.address) return data;
  std::memcpy(place.address, data, bytes);
  return place.address;
}

void TcpRecvChannel::release() {
  assert(has_message());
  released_.store(released_.load(std::memory_order_relaxed) + 1, std::memory_order_release);
  assert(unreturned_ < kWindow);
  if (++unreturned_ < kReturnAt) return;
  Frame frame;
  frame.kind = FrameKind::credit;
  frame.group = group_;
  frame.channel = number_;
  frame.credits = take_unreturned();
  connection_.put(frame);
}

bool TcpSendChannel::full() const noexcept {
  return posted_.load(std::memory_order_relaxed) - released_.load(std::memory_order_acquire) >=
         connection_.window();
}

bool TcpSendChannel::has_room(std::size_t bytes) {
  if (bytes > max_bytes_)
    throw Error(ErrorKind::internal,
                fmt::format("a message of {} bytes was asked of a channel whose largest is {}",
                            bytes, max_bytes_));
  if (full()) connection_.poll();
  return !full();
}

bool TcpSendChannel::acquire_zero_copy(const Memory& message) {
  if (!has_room(message.bytes)) return false;
  assert(message.address != nullptr || message.bytes == 0);
  in_place_ = message.address;
  in_hand_ = true;
  acquired_bytes_ = message.bytes;
  return true;
}

std::optional<Span> TcpSendChannel::acquire(std::size_t bytes) {
  if (!has_room(bytes)) return std::nullopt;
  in_place_ = nullptr;
  // Where no message waits to be written, all slots are free, and the first one is still in the
  // cache.
  if (!in_hand_ &&
      written_.load(std::memory_order_acquire) == posted_.load(std::memory_order_relaxed))
    slots_.begin_again();
  in_hand_ = true;
  acquired_bytes_ = bytes;
  return Span{slots_.payload(), bytes};
}

void TcpSendChannel::post(const Header& header) {
  assert(in_hand_ && header.length == acquired_bytes_);
  in_hand_ = false;
  Frame frame;
  frame.credits = answers_.take_unreturned();
  frame.group = group_;
  frame.channel = number_;
  frame.header = header;
  connection_.seal(frame, in_place_ != nullptr ? in_place_ : slots_.payload());
  const std::uint32_t message = posted_.load(std::memory_order_relaxed) + 1;
  assert(message - released_.load(std::memory_order_relaxed) <= kWindow);
  posted_.store(message, std::memory_order_release);
  if (in_place_ != nullptr) {
    last_zero_copy_ = message;
    return connection_.put_zero_copy(frame, in_place_, *this);
  }
  std::byte* const payload = slots_.payload();
  std::memcpy(payload - sizeof frame, &frame, sizeof frame);
  slots_.use();
  connection_.put_message({payload - sizeof frame, sizeof frame + header.length}, *this);
}

}  // namespace tutti::tcp
