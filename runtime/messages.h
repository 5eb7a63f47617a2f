// The sends and receives of a communicator that are under way: their deadlines, and what keeps them
// from ending.
#pragma once

#include <atomic>

#include "runtime/communicator_parts.h"
#include "runtime/diagnosis/stall_watch.h"
#include "runtime/p2p/point_to_point.h"

namespace tutti {

/// A state machine around the protocol (PointToPoint): start(), then advance() until idle(), and
/// look() from time to time. It never waits and asks no clock: time is handed in. One thread at a
/// time (whoever owns the communicator's engine) uses it.
class Messages {
 public:
  /// `parts` outlive it.
  explicit Messages(const CommunicatorParts& parts);

  void start(Transfer& transfer) { protocol_.start(transfer); }
  void advance(const Transfer* awaited = nullptr) { protocol_.advance(awaited); }
  bool idle() const noexcept { return protocol_.idle(); }

  /// Transfers that have ended, one by one, and the one that take_ended() gives next; null: no
  /// more.
  Transfer* take_ended() noexcept { return protocol_.take_ended(); }
  const Transfer* first_ended() const noexcept { return protocol_.ended().front(); }
  /// Ends all, done or not.
  void abandon() noexcept { protocol_.abandon(); }

  /// Does what polling does not: takes news of peers, and reports messages that do not end. Throws
  /// what keeps a transfer from ever ending.
  void look(TimePoint now);
  /// When look() is due, with something under way that has until `deadline`.
  TimePoint next_look(TimePoint now, TimePoint deadline);
  /// The first deadline of those that are under way or have ended and were not taken.
  TimePoint first_deadline() const noexcept;

 private:
  const CommunicatorParts& parts_;
  PointToPoint protocol_;
  StallWatch stalls_;
};

/// Tells the program what a receive got, where it asked to be told.
void report_received(const Transfer& ended);

}  // namespace tutti
