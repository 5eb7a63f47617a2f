// A channel in memory that two ranks share: one line a message, small payloads in the line itself,
// large ones in a ring of bytes beside it. One writer, one reader, no lock, no read-modify-write.
//
// Invariants: message n stands in line n % kLines with sequence n + 1, written last (release) and
// read first (acquire). Both ends compute the same place for a payload (see place()). The reader
// counts released messages in `released`, after every large message and every kCreditEvery small
// ones, so a writer always sees room for at least two messages of max_message_bytes() once the
// reader has released all.
//
// Answers. A reader that has something as long to say to the writer may say it in the memory of a
// large message that it has read (see Origin): each line then crosses between the cores once each
// way, where two rings would let it cross twice (two ranks, 512 KiB round trip: 119 us, with
// answers 76). The message's memory is free again when its writer has released the answer.
//
// Lent messages. A large message may lie in memory that its writer lends (segments.h) in place of
// the ring, and so may its answer: nothing is copied then. Released, it is the writer's again.
// Where the reader may have the kernel copy all of the writer's memory, it says so (`fetches`), and
// messages may lie anywhere: the reader fetches them to where they belong.
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
#include "transport/ring_memory.h"
#include "transport/ring_view.h"
#include "transport/segments.h"
#include "transport/status_page.h"

namespace tutti {

class SendRing {
 public:
  SendRing() = default;
  /// `data_bytes`: a multiple of 64, at least 3 * 64.
  SendRing(RingMemory* memory, std::size_t data_bytes, PeerBell peer)
      : memory_(memory), data_(memory->data()), data_bytes_(data_bytes), peer_(peer) {}

  static constexpr std::size_t max_message_bytes(std::size_t data_bytes) {
    return data_bytes / 3 & ~(kCacheLine - 1);
  }
  static constexpr std::size_t least_data_bytes(std::size_t max_message_bytes) {
    return 3 * padded(max_message_bytes);
  }

  /// See SendChannel::acquire; null: full. Throws `corrupt` where more has been released than sent.
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
    origin_ = {};
    return data_ + at % data_bytes_;
  }

  /// As acquire() for a large message that lies at `origin`; false: full.
  bool acquire_at(const Origin& origin) {
    if (next_ - released_ == kLines && !see_released()) return false;
    acquired_end_ = position_;
    origin_ = origin;
    return true;
  }

  void post(const Header& header) noexcept {
    Line& line = memory_->lines[next_ % kLines];
    line.header = header;
    if (header.length > kInlineBytes) std::memcpy(line.payload, &origin_, sizeof origin_);
    end_[next_ % kLines] = position_ = acquired_end_;
    line.sequence.store(++next_, std::memory_order_release);
    // A broadcast of 8 B, back to back, takes 66 ns with it and 117 without.
    fetch_to_write(&memory_->lines[next_ % kLines]);
    peer_.after_store();
  }

  /// Whether its messages may lie in kAllMemory.
  bool peer_fetches() const noexcept { return memory_->fetches.load(std::memory_order_acquire); }

  RingView view() noexcept {
    see_released();
    return {memory_->lines, &memory_->released, data_, data_bytes_, next_, position_, freed_};
  }

  /// All that payloads have taken up in the ring since it was made, gaps included.
  std::uint64_t payload_bytes() const noexcept { return position_; }
  /// The messages posted, and whether the first `count` of them have been released.
  std::uint64_t posted() const noexcept { return next_; }
  bool released(std::uint64_t count) const noexcept {
    return memory_->released.load(std::memory_order_acquire) >= count;
  }

  /// The payload of an answer of `bytes` at `origin`; null: there can be none.
  const std::byte* answer(const Origin& origin, std::size_t bytes) const noexcept {
    const bool fits = bytes <= data_bytes_ && origin.offset <= data_bytes_ - bytes;
    return fits && origin.message_plus_one <= next_ ? data_ + origin.offset : nullptr;
  }
  /// The answer at `origin` has been read: its memory is free.
  void free_answer(const Origin& origin) noexcept { answers_read_ = origin.message_plus_one; }

 private:
  // While an answer has not been read, only what came before the last one that has been is free.
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
  std::uint64_t next_ = 0;          // messages posted
  std::uint64_t released_ = 0;      // messages seen released
  std::uint64_t position_ = 0;      // payload bytes handed out, padding and skipped ends included
  std::uint64_t acquired_end_ = 0;  // position_ after the message being filled
  std::uint64_t freed_ = 0;         // payload bytes seen given back
  std::uint64_t answers_read_ = 0;  // those up to the last one whose answer has been released
  Origin origin_;                   // of the large message being filled
  std::array<std::uint64_t, kLines> end_{};
  PeerBell peer_;
};

/// The rings from one rank to a peer, by channel number: the peer's answers lie in them.
using SendRings = std::map<int, SendRing*>;

/// What a ring's messages may point to beside its own memory; null: none do.
struct Beyond {
  const SendRings* back = nullptr;     ///< The rings to the peer: its answers lie in them.
  const Segments* peers = nullptr;     ///< What the peer lends.
  const Segments* own = nullptr;       ///< What this rank lends: answers lie there, too.
  const StatusPage* lender = nullptr;  ///< The peer's.
  const PeerMemory* all = nullptr;     ///< All of the peer's memory; null: it cannot be read.
};

class RecvRing {
 public:
  RecvRing() = default;  ///< Not attached yet: peek() finds nothing.
  /// `number`: of the channel.
  RecvRing(RingMemory* memory, std::size_t data_bytes, PeerBell peer, int number = 0,
           const Beyond& beyond = {})
      : memory_(memory),
        lines_(memory->lines),
        data_(memory->data()),
        data_bytes_(data_bytes),
        number_(number),
        beyond_(beyond),
        peer_(peer) {
    if (beyond.all != nullptr) memory->fetches.store(true, std::memory_order_release);
  }

  /// True once there is a message: then header() and data() are its own until release().
  bool peek() const noexcept {
    return lines_[next_ & mask_].sequence.load(std::memory_order_acquire) == next_ + 1;
  }
  const Header& header() const noexcept { return lines_[next_ & mask_].header; }
  /// `lent` becomes true where it is the peer's memory: see still_lent(). Null: it is away(), or
  /// in memory that is not here yet. Throws `corrupt` where there can be no such message.
  const std::byte* data(bool& lent) const {
    const Line& line = lines_[next_ & mask_];
    if (line.header.length <= kInlineBytes) return line.payload;
    const Origin origin = this->origin();
    if (origin.elsewhere()) return elsewhere(origin, lent);
    return data_ + offset();
  }
  const std::byte* data() const {
    bool lent = false;
    return data(lent);
  }

  /// Whether the large message that was peeked has to be fetched.
  bool away() const noexcept { return origin().segment == kAllMemory; }
  /// Fetches it to `to`, or where that is null to memory of its own. Null: it is no longer there.
  const std::byte* fetch(std::byte* to);

  /// False where the length cannot be true; ask before data() is read, unless its length is known.
  bool plausible() const noexcept {
    return header().length <= std::max(kInlineBytes, SendRing::max_message_bytes(data_bytes_)) ||
           away();
  }

  /// Of the message peeked, once it has been used: whether it was the message until now. A peer
  /// takes back what it has lent when its call fails, and says so first.
  bool still_lent() const noexcept {
    if (header().length <= kInlineBytes || !origin().lent() || beyond_.lender == nullptr)
      return true;
    sync::fence(std::memory_order_acquire);
    return beyond_.lender->state.load(std::memory_order_acquire) == StatusPageState::open;
  }

  void release() noexcept {
    const bool large = header().length > kInlineBytes;
    if (large) {
      const Origin origin = this->origin();
      if (!origin.elsewhere())
        position_ = end();
      else if (origin.answers_ring())
        ring_of(origin)->free_answer(origin);
    }
    ++next_;
    if (large || next_ - published_ >= kCreditEvery) publish();
  }

  RingView view() const noexcept {
    return {memory_->lines, &memory_->released, memory_->data(), data_bytes_,
            next_,          position_,          position_};
  }

  /// Where the large message that was peeked may be answered; null: not in its place.
  std::byte* answer_data() const;
  /// The place for that answer.
  Origin place_for_answer() const noexcept {
    const Origin origin = this->origin();
    if (origin.lent()) return {next_ + 1, origin.answer.offset, number_, origin.answer.segment};
    return {next_ + 1, offset(), number_};
  }
  /// As release(), after the answer was posted over the message.
  void release_answered() noexcept {
    if (origin().lent()) return release();
    position_ = end();
    ++next_;
    memory_->answered.store(next_, std::memory_order_relaxed);
    publish();
  }

 private:
  // Of large messages.
  Origin origin() const noexcept {
    Origin origin;
    std::memcpy(&origin, lines_[next_ & mask_].payload, sizeof origin);
    return origin;
  }
  SendRing* ring_of(const Origin& origin) const noexcept;
  const std::byte* elsewhere(const Origin& origin, bool& lent) const;
  std::uint64_t offset() const noexcept {
    return place(position_, header().length, data_bytes_) % data_bytes_;
  }
  std::uint64_t end() const noexcept {
    return place(position_, header().length, data_bytes_) + padded(header().length);
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
  std::uint64_t next_ = 0;       // messages released
  std::uint64_t published_ = 0;  // of those, told to the writer
  std::uint64_t position_ = 0;   // as SendRing::position_, of released messages
  int number_ = 0;
  Beyond beyond_;
  // Keep what was found last: it may be taken back while it is read.
  mutable Segment lent_;
  mutable Segment answer_;
  std::vector<std::byte> fetched_;
  PeerBell peer_;
};

}  // namespace tutti
