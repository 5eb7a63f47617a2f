// The collective call of a communicator that is under way: how it begins, advances, and is
// diagnosed when it fails or stalls.
#pragma once

#include <cassert>
#include <optional>

#include <tutti/error.hpp>

#include "runtime/communicator_parts.h"
#include "runtime/diagnosis/diagnosis.h"
#include "runtime/diagnosis/stall_watch.h"
#include "runtime/engine/engine.h"
#include "runtime/zero_copy.h"

namespace tutti {

/// A state machine that runs one call at a time: begin(), then advance() until one of them returns
/// true. It never waits and reads no clock: its callers pass the time. One thread at a time (the
/// owner of the communicator's engine) uses it.
///
/// The first error ends the call. An exception of advance() is turned into an error by explain(),
/// which may need an answer of a peer for its message: while explaining() is true, look() asks the
/// peer, and throws the error once it is known.
class Collectives {
 public:
  /// `parts` and `engine` outlive it.
  Collectives(const CommunicatorParts& parts, Engine& engine);

  /// Starts a call and advances it, see Engine::start().
  bool begin(BoundProgram& bound, CallBuffers& buffers, bool in_threads, int attempts) {
    assert(!explaining());
    if (bound.program.zero_copy) [[unlikely]]
      buffers.zero_copy = zero_copy_of(parts_, bound.program.call, buffers);
    return engine_.start(bound, buffers, in_threads, attempts);
  }

  /// Does what can be done now, `attempts` times at most, and returns true when the call is done.
  /// Throws exceptions that explain() understands.
  bool advance(int attempts) { return engine_.advance(attempts); }
  /// Returns whether the transport has sent everything that was posted.
  bool all_left() { return leaves_at_once_ || transport_.all_left(); }

  /// Stops a call that has failed: once this returns, no thread touches the call's buffers any
  /// more.
  void stop() noexcept { engine_.stop(); }

  /// Does what polling does not: it takes news of peers, and reports a call that stalls. Throws the
  /// error that keeps the call from ending. `limit` is the call's timeout, which ends at
  /// `deadline`.
  void look(TimePoint now, TimePoint deadline, Nanoseconds limit);
  /// Returns when look() is due. News of peers may come earlier, by the doorbell or the transport's
  /// descriptor.
  TimePoint next_look(TimePoint now, TimePoint deadline);

  /// Returns the error for the exception that is being handled, which advance() or look() threw.
  /// Returns none if the error needs a peer's answer; explaining() is then true.
  std::optional<Error> explain();
  bool explaining() const noexcept { return mismatched_.has_value(); }

 private:
  std::uint64_t number() const noexcept { return engine_.number(); }
  Situation situation() const;
  std::optional<Error> explain_thrown();
  void look_for_explanation(TimePoint now);
  void report_stall(TimePoint now);
  bool asked(Inquiry::Reason reason, TimePoint now, Nanoseconds patience);

  const CommunicatorParts& parts_;
  Transport& transport_;
  StatusPage& status_page_;    // this rank's own, which the transport shows to peers
  const bool leaves_at_once_;  // whether posted messages leave at once; see Transport::all_left()
  Engine& engine_;
  StallWatch stalls_;
  Inquiry inquiry_;
  std::optional<MismatchedMessage> mismatched_;  // set while explaining()
  std::optional<TimePoint> explained_by_;        // set by the first look() while explaining()
};

}  // namespace tutti
