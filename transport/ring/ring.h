// A channel in memory that two ranks share. Each message takes one slot of the size of a cache line
// (a Line); a small payload lies in the line itself, a large one in a ring of bytes behind the
// lines. There is one writer and one reader, and neither uses a lock or a read-modify-write
// operation.
//
// Invariants: message n lies in line n % kLines. The line's sequence is n + 1; the writer stores it
// last (release) and the reader loads it first (acquire). Both ends compute the same place for a
// payload (see place()). The reader counts released messages in `released`, and stores the count
// after every large message and every kCreditEvery small ones. The writer therefore finds room for
// at least two messages of max_message_bytes() once the reader has released all.
//
// Answers. A reader that has to send the writer a message of the same length may write it into the
// memory of a large message that it has read (see Origin). Each cache line then crosses between the
// cores once in each direction, where two rings would make it cross twice (two ranks, round trip of
// 512 KiB: 119 us, with answers 76 us). The message's memory is free again when its writer has
// released the answer.
//
// Zero-copy messages. A large message, and its answer, may lie in memory that the writer has
// registered (segments.h) instead of the ring; nothing is copied then. The memory is the writer's
// again when the reader has released the message. A reader that may have the kernel copy any memory
// of the writer's process sets `gets`; messages may then lie anywhere in that process. They are
// remote, and the reader gets them to their destination.
#pragma once

#include <algorithm>
#include <array>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <vector>

#include "common/prefetch.h"
#include "common/sync.h"
#include "transport/doorbell.h"
#include "transport/peer_memory.h"
#include "transport/ring/kernel_copies.h"
#include "transport/ring/ring_memory.h"
#include "transport/ring/ring_view.h"
#include "transport/ring/slot_stores.h"
#include "transport/segments.h"
#include "transport/status_page.h"

namespace tutti {

class SendRing {
 public:
  SendRing() = default;
  /// `data_bytes` is a multiple of 64 and at least 3 * 64.
  SendRing(RingMemory* memory, std::size_t data_bytes, PeerBell peer)
      : memory_(memory), data_(memory->data()), data_bytes_(data_bytes), peer_(peer) {
    assert(data_bytes % kCacheLine == 0 && data_bytes >= 3 * kCacheLine);
  }

  static constexpr std::size_t max_message_bytes(std::size_t data_bytes) {
    return data_bytes / 3 & ~(kCacheLine - 1);
  }
  static constexpr std::size_t least_data_bytes(std::size_t max_message_bytes) {
    return 3 * padded(max_message_bytes);
  }

  /// Does what SendChannel::acquire() does; returns null while the ring is full. Throws `corrupt`
  /// where the peer has released more messages than were sent.
  std::byte* acquire(std::size_t bytes) {
    if (next_ - released_ == kLines && !see_released()) return nullptr;
    if (bytes <= kInlineBytes) {
      acquired_end_ = position_;
      return memory_->lines[next_ % kLines].payload;
    }
    const std::uint64_t at = place(position_, bytes, data_bytes_);
    acquired_end_ = at + padded(bytes);
    if (acquired_end_ - freed_ > data_bytes_ &&
        !(see_released() && acquired_end_ - freed_ <= data_bytes_))
      return nullptr;
    origin_ = {.channel = copy_class_};
    return data_ + at % data_bytes_;
  }

  /// Does what acquire() does for a large message that lies at `origin`; returns false while the
  /// ring is full.
  bool acquire_at(const Origin& origin) {
    if (next_ - released_ == kLines && !see_released()) return false;
    acquired_end_ = position_;
    origin_ = origin;
    if (origin.has_copy_class()) origin_.channel = copy_class_;
    return true;
  }

  void post(const Header& header) noexcept {
    Line& line = memory_->lines[next_ % kLines];
    line.header = header;
    if (header.length > kInlineBytes) std::memcpy(line.payload, &origin_, sizeof origin_);
    end_[next_ % kLines] = position_ = acquired_end_;
    line.sequence.store(++next_, std::memory_order_release);
    // With this prefetch a broadcast of 8 B, back to back, takes 66 ns, and 117 ns without.
    fetch_to_write(&memory_->lines[next_ % kLines]);
    peer_.after_store();
  }

  /// Whether messages may lie in kAllMemory.
  bool peer_gets() const noexcept {
    // The word lies in a line that the reader writes, so that it is looked at until it is set.
    if (!peer_gets_) peer_gets_ = memory_->gets.load(std::memory_order_acquire);
    return peer_gets_;
  }

  /// Decides for a call of the class, whose messages lie in ordinary memory, whether the kernel
  /// copies them; see KernelCopies::choose(). The class is 0 where it cannot.
  KernelCopies::Choice choose_copies(int copy_class, bool both_ways) noexcept;
  /// Says to which class the next messages belong, if the reader is to record its times, else 0.
  void set_copy_class(int copy_class) noexcept { copy_class_ = copy_class; }
  int copy_class() const noexcept { return copy_class_; }
  /// Records the time in which a message was copied into the ring, if that class is not 0.
  void record_write(std::uint64_t elapsed, std::size_t bytes) noexcept {
    if (copy_class_ != 0) kernel_copies_.record_write(copy_class_, elapsed, bytes);
  }

  RingView view() noexcept {
    see_released();
    return {memory_->lines, &memory_->released, data_,  data_bytes_,
            next_,          position_,          freed_, &memory_->gpu};
  }

  /// Returns the choice of the stores that write large payloads.
  SlotStores& stores() noexcept { return stores_; }

  /// The bytes that payloads have taken up in the ring since it was created, gaps included.
  std::uint64_t payload_bytes() const noexcept { return position_; }
  /// The number of messages posted, and whether the first `count` of them have been released.
  std::uint64_t posted() const noexcept { return next_; }
  bool released(std::uint64_t count) const noexcept {
    return memory_->released.load(std::memory_order_acquire) >= count;
  }

  /// Returns the payload of an answer of `bytes` at `origin`, or null where there can be no such
  /// answer.
  const std::byte* answer(const Origin& origin, std::size_t bytes) const noexcept {
    const bool fits = bytes <= data_bytes_ && origin.offset <= data_bytes_ - bytes;
    return fits && origin.message_plus_one <= next_ ? data_ + origin.offset : nullptr;
  }
  /// Records that the answer at `origin` has been read, so that its memory is free.
  void free_answer(const Origin& origin) noexcept { answers_read_ = origin.message_plus_one; }

 private:
  // While some answer has not been read, only the memory of messages up to the one whose answer was
  // read last is free.
  bool see_released() {
    std::uint64_t released = memory_->released.load(std::memory_order_acquire);
    if (released > next_) [[unlikely]]
      refuse_release();
    if (memory_->answered.load(std::memory_order_relaxed) > answers_read_) released = answers_read_;
    if (released <= released_) return false;
    released_ = released;
    freed_ = end_[(released - 1) % kLines];
    return true;
  }
  [[noreturn]] static void refuse_release();

  RingMemory* memory_ = nullptr;
  std::byte* data_ = nullptr;
  std::size_t data_bytes_ = 0;
  std::uint64_t next_ = 0;          // number of messages posted
  std::uint64_t released_ = 0;      // number of messages known to be released
  std::uint64_t position_ = 0;      // payload bytes handed out, with padding and skipped ends
  std::uint64_t acquired_end_ = 0;  // position_ after the message being filled
  std::uint64_t freed_ = 0;         // payload bytes known to be free again
  std::uint64_t answers_read_ = 0;  // number of messages up to the last one whose answer was read
  Origin origin_;                   // origin of the large message being filled
  int copy_class_ = 0;              // that of the large messages
  mutable bool peer_gets_ = false;  // whether the reader has said so
  std::array<std::uint64_t, kLines> end_{};
  PeerBell peer_;
  SlotStores stores_;
  KernelCopies kernel_copies_;
};

/// The rings from one rank to a peer, by channel number. The peer's answers may lie in them.
using SendRings = std::map<int, SendRing*>;

/// The memory outside a ring in which its messages may lie. A null member means that none lie
/// there.
struct OutsideMemory {
  /// The rings to the peer, in which its answers may lie.
  const SendRings* back = nullptr;
  const Segments* peers = nullptr;  ///< The memory that the peer has registered.
  /// The memory that this rank has registered; answers may lie there.
  const Segments* own = nullptr;
  const StatusPage* page = nullptr;  ///< The peer's status page.
  const PeerMemory* all = nullptr;   ///< All memory of the peer's process, if it can be read.
};

class RecvRing {
 public:
  RecvRing() = default;  ///< Makes a ring without memory, in which peek() finds nothing.
  /// `number` is the channel's.
  RecvRing(RingMemory* memory, std::size_t data_bytes, PeerBell peer, int number = 0,
           const OutsideMemory& outside = {})
      : memory_(memory),
        lines_(memory->lines),
        data_(memory->data()),
        data_bytes_(data_bytes),
        number_(number),
        outside_(outside),
        peer_(peer) {
    if (outside.all != nullptr) memory->gets.store(true, std::memory_order_release);
  }

  /// Returns true once there is a message; header() and data() are then that message's until
  /// release(). They use a copy of the line, which a hostile peer may change at any time.
  bool peek() noexcept {
    if (peeked_) return true;
    const Line& line = lines_[next_ & mask_];
    if (line.sequence.load(std::memory_order_acquire) != next_ + 1) return false;
    header_ = line.header;
    if (header_.length > kInlineBytes) std::memcpy(&origin_, line.payload, sizeof origin_);
    return peeked_ = true;
  }
  const Header& header() const noexcept { return header_; }
  /// Returns the message's payload, and sets `zero_copy` where it lies in the peer's memory: see
  /// still_valid(). Returns null where the message is remote(), or lies in memory that this rank
  /// has not mapped yet. Throws `corrupt` where there can be no such message.
  const std::byte* data(bool& zero_copy) const {
    if (header_.length <= kInlineBytes) return lines_[next_ & mask_].payload;
    if (origin_.outside_ring()) return outside_ring(zero_copy);
    return data_ + offset();
  }
  const std::byte* data() const {
    bool zero_copy = false;
    return data(zero_copy);
  }

  /// Whether the peeked message has to be brought here by get().
  bool remote() const noexcept {
    return header_.length > kInlineBytes && origin_.segment == kAllMemory;
  }
  /// Copies the remote message to `to`, or to memory of this end where `to` is null. Returns where
  /// the copy is, or null where the message is no longer there. There is `room` for so many bytes:
  /// messages behind this one that lie behind it in the writer's memory, too, are copied with it.
  const std::byte* get(std::byte* to, std::size_t room);

  /// Whether the writer wants the time in which the peeked message is copied to be recorded.
  bool is_timed() const noexcept {
    return header_.length > kInlineBytes && origin_.has_copy_class() &&
           CopyClass::is_timed(origin_.channel);
  }
  /// Records the time in which the peeked message, for which is_timed(), was copied out of the
  /// ring.
  void record_read(std::uint64_t elapsed) noexcept { record(elapsed, header_.length, false); }

  /// Whether the message's length is possible. Callers that do not know the length check this
  /// before they read data().
  bool plausible() const noexcept {
    return header_.length <= std::max(kInlineBytes, SendRing::max_message_bytes(data_bytes_)) ||
           remote();
  }

  /// Whether the payload was valid until now; asked after the peeked message has been used. A peer
  /// takes the memory of its messages back when its call fails, and its status page says so first.
  bool still_valid() const noexcept {
    if (header_.length <= kInlineBytes || !origin_.zero_copy() || outside_.page == nullptr)
      return true;
    sync::fence(std::memory_order_acquire);
    return outside_.page->state.load(std::memory_order_acquire) == StatusPageState::open;
  }

  void release() noexcept {
    assert(peeked_);
    const bool large = header_.length > kInlineBytes;
    if (large && !origin_.outside_ring()) position_ = end();
    if (large && origin_.answers_ring()) ring_of(origin_)->free_answer(origin_);
    peeked_ = false;
    ++next_;
    if (large || next_ - published_ >= kCreditEvery) publish();
  }

  RingView view() const noexcept {
    return {memory_->lines, &memory_->released, memory_->data(), data_bytes_,
            next_,          position_,          position_,       &memory_->gpu};
  }

  /// Returns where an answer to the peeked large message may be written, or null where it cannot be
  /// answered in place.
  std::byte* answer_data() const;
  /// Returns the origin of that answer.
  Origin place_for_answer() const noexcept {
    if (origin_.zero_copy())
      return {next_ + 1, origin_.answer.offset, number_, origin_.answer.segment};
    return {next_ + 1, offset(), number_};
  }
  /// Does what release() does, after an answer has been posted in the message's memory.
  void release_answered() noexcept {
    assert(peeked_);
    if (origin_.zero_copy()) return release();
    position_ = end();
    peeked_ = false;
    ++next_;
    memory_->answered.store(next_, std::memory_order_relaxed);
    publish();
  }

 private:
  SendRing* ring_of(const Origin& origin) const noexcept;
  const std::byte* outside_ring(bool& zero_copy) const;
  std::size_t bytes_in_a_row(std::size_t most) const noexcept;
  bool sender_can_be_read() const noexcept;
  void record(std::uint64_t elapsed, std::size_t bytes, bool by_kernel) noexcept;
  std::uint64_t offset() const noexcept {
    return place(position_, header_.length, data_bytes_) % data_bytes_;
  }
  std::uint64_t end() const noexcept {
    return place(position_, header_.length, data_bytes_) + padded(header_.length);
  }
  void publish() noexcept {
    published_ = next_;
    memory_->released.store(next_, std::memory_order_release);
    peer_.after_store();
  }

  static inline const Line kNoMessage{};  // sequence 0 is never awaited

  RingMemory* memory_ = nullptr;
  const Line* lines_ = &kNoMessage;
  const std::byte* data_ = nullptr;
  std::size_t data_bytes_ = 0;
  std::uint64_t mask_ = memory_ == nullptr ? 0 : kLines - 1;
  std::uint64_t next_ = 0;       // number of messages released
  std::uint64_t published_ = 0;  // the released messages that the writer knows of
  std::uint64_t position_ = 0;   // as SendRing::position_, up to the last released message
  bool peeked_ = false;          // whether the following two are those of message `next_`
  Header header_;
  Origin origin_;  // of a large message
  int number_ = 0;
  OutsideMemory outside_;
  // These keep the segments that were found last, since the peer may unregister them while they are
  // read.
  mutable Segment message_;
  mutable Segment answer_;
  std::vector<std::byte> copy_;  // memory of remote messages that have no other place
  // Says where the part of the next messages is that get() has copied, and where it comes from.
  struct {
    std::byte* to = nullptr;
    std::uint64_t from = 0;
    std::size_t bytes = 0;
  } ahead_;
  std::array<ReadTimes, CopyClass::kMost> times_{};  // by class, from class 1 on
  PeerBell peer_;
};

}  // namespace tutti
