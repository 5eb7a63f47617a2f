// The collective call of a communicator that is under way: begun, advanced, looked at, explained.
#pragma once

#include <atomic>
#include <functional>
#include <optional>

#include <tutti/error.hpp>

#include "runtime/communicator_parts.h"
#include "runtime/diagnosis/diagnosis.h"
#include "runtime/diagnosis/stall_watch.h"
#include "runtime/engine/execution.h"
#include "runtime/engine/worker_pool.h"

namespace tutti {

/// A state machine of one call at a time: begin(), then advance() until it is true, then
/// complete(). It never waits and asks no clock: time is handed in. One thread at a time (whoever
/// owns the communicator's engine) uses it.
///
/// The first error ends it. What advance() throws goes to explain(), whose words may need an answer
/// of a peer: while explaining() is true, look() asks, and throws the error when it is known.
class Collectives {
 public:
  /// `parts` outlive it. `worker_done` is called by a thread that has ended its part of a call.
  Collectives(const CommunicatorParts& parts, std::function<void()> worker_done);

  /// Takes the next operation number, shows the call to peers and starts it. `in_threads`: other
  /// threads may move parts of it.
  void begin(BoundProgram& bound, CallBuffers& buffers, std::size_t result_bytes, bool in_threads);

  /// Does what can be done now, and returns true when the call is done. Throws what explain()
  /// takes.
  bool advance() {
    return execution_.advance() && (!workers_.busy() || workers_.advance()) && all_left();
  }
  bool all_left() { return leaves_at_once_ || transport_.all_left(); }

  /// The call is done: peers may know.
  void complete() noexcept {
    status_page_.completed.store(next_number_, std::memory_order_release);
  }
  /// The call has failed: when this returns, nobody touches its buffers any more.
  void stop() noexcept { workers_.stop(); }
  /// In a forked child, which has none of the threads.
  void forget_threads() noexcept { workers_.forget(); }

  /// Does what polling does not: takes news of peers, and reports a call that does not end. Throws
  /// what keeps the call from ending; `limit` is the time that it had until `deadline`.
  void look(TimePoint now, TimePoint deadline, Nanoseconds limit);
  /// When look() is due. Peers' news come earlier, by the doorbell or the transport's descriptor.
  TimePoint next_look(TimePoint now, TimePoint deadline);

  /// In a handler of what advance() or look() threw: the error for it; none: explaining().
  std::optional<Error> explain();
  bool explaining() const noexcept { return mismatched_.has_value(); }

 private:
  std::uint64_t number() const noexcept { return next_number_ - 1; }
  Situation situation() const;
  void look_for_explanation(TimePoint now);
  void report_stall(TimePoint now);
  bool asked(Inquiry::Reason reason, TimePoint now, Nanoseconds patience);

  const CommunicatorParts& parts_;
  Transport& transport_;
  StatusPage& status_page_;    // the transport's own
  const bool leaves_at_once_;  // what is posted; see Transport::all_left()
  Execution execution_;
  std::uint64_t next_number_ = 0;
  WorkerPool workers_;  // for the other stripes of what execution_ runs
  StallWatch stalls_;
  Inquiry inquiry_;
  std::optional<MismatchedMessage> mismatched_;  // while explaining()
  std::optional<TimePoint> explained_by_;        // set by the first look() while explaining()
};

}  // namespace tutti
