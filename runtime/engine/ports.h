// The two ends of channels as the host engine and the protocol of sends and receives use them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "transport/channel.h"
#include "transport/ring/ring.h"

namespace tutti {

/// Returns whether copies by the kernel from one process to another ever pay on this processor.
bool copies_by_kernel_pay();

class SendPort;

/// The receiving end of a channel as the engine uses it: it calls the ring directly if the channel
/// has one, else the channel's virtual functions.
class RecvPort {
 public:
  RecvPort(int peer, RecvChannel& channel)
      : ring_(channel.ring()), channel_(&channel), peer_(peer) {}

  int peer() const noexcept { return peer_; }
  bool peek(Message& message) {
    if (ring_ == nullptr) return peek_channel(message);
    if (!ring_->peek()) return false;
    message.header = ring_->header();
    message.data = ring_->data(message.zero_copy);
    return message.data != nullptr || (message.remote = ring_->remote());
  }
  /// See RecvChannel::get().
  const std::byte* get(const Memory& place) { return channel_->get(place); }
  /// Returns where in the memory of the large message that was peeked `to` may write its answer, or
  /// null if the answer cannot be written there.
  std::byte* answer_data(const SendPort& to) const;
  bool in_memory() const noexcept { return ring_ != nullptr; }
  /// See RecvRing::still_valid().
  bool still_valid() const noexcept { return ring_ == nullptr || ring_->still_valid(); }
  void release() {
    if (ring_ != nullptr)
      ring_->release();
    else
      channel_->release();
  }
  /// Whether the sender wants the time in which the peeked message is copied to be recorded.
  bool is_timed() const noexcept { return ring_ != nullptr && ring_->is_timed(); }
  void record_read(std::uint64_t elapsed) noexcept { ring_->record_read(elapsed); }
  /// Does what release() does, for a message over which a posted answer was written.
  void release_answered() { ring_->release_answered(); }

 private:
  friend class SendPort;
  bool peek_channel(Message& message);

  RecvRing* ring_;
  RecvChannel* channel_;
  int peer_;
};

class SendPort {
 public:
  SendPort(int peer, SendChannel& channel)
      : ring_(channel.ring()), channel_(&channel), peer_(peer) {}

  int peer() const noexcept { return peer_; }
  std::byte* acquire(std::size_t bytes) {
    if (ring_ != nullptr) return ring_->acquire(bytes);
    const auto span = channel_->acquire(bytes);
    return span ? span->data : nullptr;
  }
  /// Acquires the message that was peeked at `from` as the memory of the answer to it; returns
  /// false if the window is full.
  bool acquire_answer(const RecvPort& from) {
    return ring_->acquire_at(from.ring_->place_for_answer());
  }
  /// Acquires a slot for a large message that is sent zero-copy, whose answer is to be written to
  /// `answer`; returns false if the window is full.
  bool acquire_zero_copy(const Memory& message, const Extent& answer = {}) {
    if (ring_ != nullptr ? !ring_->acquire_at(origin_of(message, answer))
                         : !channel_->acquire_zero_copy(message))
      return false;
    zero_copy_ = ring_ != nullptr ? ring_->posted() + 1 : 1;
    return true;
  }
  /// Returns the kinds of memory from which it sends without a copy.
  MemoryKinds zero_copy() const noexcept { return channel_->zero_copy(); }
  bool in_memory() const noexcept { return ring_ != nullptr; }
  /// Returns how the ring's payloads are written, or null if the port has no ring.
  SlotStores* stores() noexcept { return ring_ != nullptr ? &ring_->stores() : nullptr; }
  /// Decides for a call of the class how its messages in ordinary memory travel; see
  /// SendRing::choose_copies().
  KernelCopies::Choice choose_copies(int copy_class, bool both_ways) noexcept {
    const auto choice =
        ring_ != nullptr ? ring_->choose_copies(copy_class, both_ways) : KernelCopies::Choice();
    set_by_kernel(choice.by_kernel);
    set_copy_class(choice.timed ? copy_class : 0);
    return choice;
  }
  /// Whether the kernel copies the messages of the call for which that was decided last.
  bool by_kernel() const noexcept { return by_kernel_; }
  void set_by_kernel(bool by_kernel) noexcept { by_kernel_ = by_kernel; }
  /// See SendRing::set_copy_class() and record_write().
  void set_copy_class(int copy_class) noexcept {
    if (ring_ != nullptr) ring_->set_copy_class(copy_class);
  }
  bool is_timed() const noexcept { return ring_ != nullptr && ring_->copy_class() != 0; }
  void record_write(std::uint64_t elapsed, std::size_t bytes) noexcept {
    ring_->record_write(elapsed, bytes);
  }
  /// Returns whether the receiver has read all zero-copy messages.
  bool zero_copy_done() const noexcept {
    if (zero_copy_ == 0) return true;
    const bool done = ring_ != nullptr ? ring_->released(zero_copy_) : channel_->zero_copy_done();
    if (done) zero_copy_ = 0;  // the next look takes no cache line from the receiver's core
    return done;
  }
  void post(const Header& header) {
    if (ring_ != nullptr)
      ring_->post(header);
    else
      channel_->post(header);
  }

 private:
  SendRing* ring_;
  SendChannel* channel_;
  // The number of the last zero-copy message, counted from 1, until it has been read; outside of a
  // ring 1 if there was one.
  mutable std::uint64_t zero_copy_ = 0;
  int peer_;
  bool by_kernel_ = false;  // whether the reader has the kernel copy messages in ordinary memory
};

inline std::byte* RecvPort::answer_data(const SendPort& to) const {
  return ring_ != nullptr && to.in_memory() ? ring_->answer_data() : nullptr;
}

}  // namespace tutti
