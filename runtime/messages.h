// The sends and receives of a communicator that are under way: their progress, their deadlines, and
// the errors that end them.
#pragma once

#include <algorithm>
#include <cstddef>

#include "runtime/communicator_parts.h"
#include "runtime/diagnosis/stall_watch.h"
#include "runtime/p2p/point_to_point.h"

namespace tutti {

/// A state machine around the protocol (PointToPoint): start(), then advance() until idle(), and
/// look() from time to time. It never waits and reads no clock: its callers pass the time. One
/// thread at a time (the owner of the communicator's engine) uses it.
class Messages {
 public:
  /// `parts` outlive it.
  explicit Messages(const CommunicatorParts& parts);

  /// A short transfer is not recorded before it ends, which it mostly does soon: advance() and
  /// look() record those that wait.
  void start(Transfer& transfer);
  /// Records the transfers that have started and were not recorded. It is called before anybody is
  /// told of a failure.
  void record_waiting() noexcept;
  /// Gives a transfer that has started another deadline than it had then.
  void set_deadline(Transfer& transfer, TimePoint deadline) noexcept {
    transfer.deadline = deadline;
    first_deadline_ = std::min(first_deadline_, deadline);
  }
  void advance(const Transfer* awaited = nullptr) {
    protocol_.advance(awaited);
    if (unrecorded_ > 0 && ++polls_ == soon_polls_) record_waiting();
  }
  bool idle() const noexcept { return protocol_.idle(); }

  /// take_ended() removes and returns the next transfer that has ended, and first_ended() returns
  /// it without removing it. Both return null if there is none.
  Transfer* take_ended() noexcept {
    Transfer* const ended = protocol_.take_ended();
    if (ended != nullptr) record_end(*ended);
    return ended;
  }
  const Transfer* first_ended() const noexcept { return protocol_.ended().front(); }
  /// Ends all transfers, whether or not they are done.
  void abandon() noexcept { protocol_.abandon(); }

  /// Does what polling does not: it takes news of peers, and reports transfers that stall. Throws
  /// the error that keeps a transfer from ending.
  void look(TimePoint now);
  /// Returns the error for what start(), advance() or look() has thrown, in an exception handler.
  Error caught_error() const;
  /// Returns when look() is due, if the transfers under way have until `deadline`.
  TimePoint next_look(TimePoint now, TimePoint deadline);
  /// Returns a time before which no deadline passes of a transfer that is under way, or has ended
  /// and was not taken. Unless a deadline has passed by `now`, it is later than `now`.
  TimePoint first_deadline(TimePoint now) noexcept;

 private:
  void record(Transfer& transfer) noexcept;
  void record_end(const Transfer& transfer) noexcept;
  void record_soon(const Transfer& transfer) noexcept;

  const CommunicatorParts& parts_;
  PointToPoint protocol_;
  StallWatch stalls_;
  const int soon_polls_;        // after so many polls a transfer has not ended soon
  std::size_t unrecorded_ = 0;  // transfers that have started, and were neither recorded nor taken
  int polls_ = 0;               // since the first of them has started
  // The first deadline of all transfers since it was last computed, among them some that were taken
  // meanwhile: there may be thousands, which a look cannot go through.
  TimePoint first_deadline_ = TimePoint::max();
};

/// Stores what a receive got where the program asked for it, if it did.
void report_received(const Transfer& ended);

}  // namespace tutti
