// The two ends of a channel over which messages are late, damaged or lost.
#pragma once

#include <optional>
#include <vector>

#include "common/random.h"
#include "transport/faulty/faulty.h"

namespace tutti::faulty {

/// Records what has happened to the connection to one peer. Used by one thread at a time.
class Link {
 public:
  /// `self` and `peer` are numbered as in Event.
  Link(const Faults& faults, const Clock& clock, Random& random, int self, int peer);

  /// Whether nothing arrives now.
  bool silent(TimePoint now) const;
  /// Whether both ends have noticed by now that the connection was cut.
  bool lost(TimePoint now) const;
  bool corrupt(TimePoint now) const;
  /// Returns true once for each event by which a message from the peer has a bit changed.
  bool take_flip(TimePoint now);

  /// The peer's end has become known: what it has sent is there, so nothing is delayed any more,
  /// nor lost with the connection.
  void stop_delays() noexcept { delays_ = false; }
  bool delays() const noexcept { return delays_; }
  /// Whether messages can be received now.
  bool arrives(TimePoint now) const { return !delays_ || !silent(now); }
  Nanoseconds draw_delay() { return draw(faults_.delayed_percent, faults_.longest_delay); }
  Nanoseconds draw_full() { return draw(faults_.full_percent, faults_.longest_full); }
  Nanoseconds draw_age() { return draw(100, faults_.oldest_news); }
  std::uint64_t draw_number() { return random_.next(); }
  TimePoint now() const { return clock_.now(); }

 private:
  Nanoseconds draw(int percent, Nanoseconds longest);

  const Faults& faults_;
  const Clock& clock_;
  Random& random_;
  std::vector<Event> events_;  // those of this connection
  bool delays_ = true;
};

class FaultySend final : public SendChannel {
 public:
  FaultySend(SendChannel& inner, Link& link) : inner_(inner), link_(link) {}

  std::optional<Span> acquire(std::size_t bytes) override;
  MemoryKinds zero_copy() const noexcept override {
    return inner_.ring() != nullptr ? MemoryKinds() : inner_.zero_copy();
  }
  bool acquire_zero_copy(const Memory& message) override;
  bool zero_copy_done() const noexcept override { return inner_.zero_copy_done(); }
  void post(const Header& header) override;

 private:
  bool full();

  SendChannel& inner_;
  Link& link_;
  bool begun_ = false;  // whether it is drawn how long the channel is full before the next message
  TimePoint full_until_{};
};

class FaultyRecv final : public RecvChannel {
 public:
  FaultyRecv(RecvChannel& inner, Link& link, std::size_t largest_message)
      : inner_(inner), link_(link), largest_message_(largest_message) {}

  std::optional<Message> peek() override;
  const std::byte* get(const Memory& place) override;
  void release() override;

 private:
  std::optional<Message> visible();
  void flip(Message& message);
  const std::byte* flipped(const std::byte* data, std::size_t bytes);

  RecvChannel& inner_;
  Link& link_;
  const std::size_t largest_message_;
  bool seen_ = false;  // whether the oldest message has been seen, and its time drawn
  TimePoint visible_at_{};
  std::optional<std::uint64_t> flip_;  // which bit of the oldest message changes
  std::vector<std::byte> damaged_;     // the payload of such a message
};

}  // namespace tutti::faulty
