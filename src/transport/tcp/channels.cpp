#include "transport/tcp/channels.h"

#include <fmt/format.h>

#include <cstring>
#include <new>

#include <tutti/error.hpp>

#include "transport/tcp/connection.h"

namespace tutti::tcp {

void Slots::take() {
  try {
    memory_ = std::make_unique_for_overwrite<std::byte[]>(bytes());
  } catch (const std::bad_alloc&) {
    throw Error(ErrorKind::unavailable,
                fmt::format("no memory for a channel ({} bytes): make TUTTI_MESSAGE_BYTES smaller",
                            bytes()));
  }
  const auto begin = reinterpret_cast<std::uintptr_t>(memory_.get());
  const std::uintptr_t payload = (begin + sizeof(Frame) + kLine - 1) / kLine * kLine;
  first_ = memory_.get() + (payload - begin);
}

std::optional<Message> TcpRecvChannel::peek() {
  if (!has_message()) {
    connection_.poll();
    if (!has_message()) return std::nullopt;
  }
  const std::uint32_t oldest = released_.load(std::memory_order_relaxed);
  return Message{slots_.payload(oldest), headers_[oldest % kWindow]};
}

void TcpRecvChannel::release() {
  assert(has_message());
  released_.store(released_.load(std::memory_order_relaxed) + 1, std::memory_order_release);
  if (++unreturned_ < kReturnAt) return;
  Frame frame;
  frame.kind = FrameKind::credit;
  frame.group = group_;
  frame.channel = number_;
  frame.credits = take_unreturned();
  connection_.put(frame);
}

std::optional<Span> TcpSendChannel::acquire(std::size_t bytes) {
  if (bytes > max_bytes_)
    throw Error(ErrorKind::internal,
                fmt::format("a message of {} bytes was asked of a channel whose largest is {}",
                            bytes, max_bytes_));
  if (full()) {
    connection_.poll();
    if (full()) return std::nullopt;
  }
  // With nothing on its way to the kernel any memory will do: the one that is still in the cache.
  if (!in_hand_ &&
      written_.load(std::memory_order_acquire) == posted_.load(std::memory_order_relaxed))
    next_slot_ = 0;
  in_hand_ = true;
  acquired_bytes_ = bytes;
  return Span{slots_.payload(next_slot_), bytes};
}

void TcpSendChannel::post(const Header& header) {
  assert(in_hand_ && header.length == acquired_bytes_);
  in_hand_ = false;
  Frame frame;
  frame.credits = answers_.take_unreturned();
  frame.group = group_;
  frame.channel = number_;
  frame.header = header;
  std::byte* const payload = slots_.payload(next_slot_);
  std::memcpy(payload - sizeof frame, &frame, sizeof frame);
  next_slot_ = (next_slot_ + 1) % kWindow;
  posted_.store(posted_.load(std::memory_order_relaxed) + 1, std::memory_order_release);
  connection_.put_message({payload - sizeof frame, sizeof frame + header.length}, *this);
}

}  // namespace tutti::tcp
