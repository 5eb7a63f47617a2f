// The messages of all errors that involve a peer, which are written from what the peers' status
// pages show.
#pragma once

#include <algorithm>
#include <cassert>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <tutti/error.hpp>

#include "runtime/engine/engine.h"
#include "transport/channel.h"

namespace tutti {

/// Describes the operation under way, as this rank sees it.
struct Situation {
  Transport& transport;
  int rank;
  int size;
  std::uint64_t number;
  const CallSignature& call;
  /// A program's own reduction, if the operation uses one.
  const UserReduction* reduction = nullptr;
};

/// Returns the message about a peer whose bytes were changed in transit, with advice.
std::string describe_corrupt(int peer, std::string_view why);

/// Returns for example "rank 3 has failed and reports: ...", which names the rank that failed
/// first, no matter how many ranks have passed its error on.
std::string reported_failure(int peer, const StatusPage& status_page);

/// Returns the error that is being handled, with which a communicator fails: a lack of memory is
/// `unavailable`, and `heading` begins its message. Called in an exception handler for what the
/// transport and the protocols throw.
Error caught_error(std::string_view heading);

/// Returns the error for a peer whose `status` says that it has failed or is lost, or that its
/// bytes were changed in transit; `heading` begins its message. None in any other state, and while
/// the peer's reason is still in transit.
std::optional<Error> diagnose_state(std::string_view heading, Transport& transport, int peer,
                                    const PeerStatus& status);

/// Returns the error for any peer that has failed or aborted the communicator, whether or not this
/// rank waits for it; none if there is no such peer. `what` follows the rank in the message.
std::optional<Error> diagnose_failed(Transport& transport, int rank, int size,
                                     std::string_view what = {});

/// Returns the error for a peer that has failed, has ended or has made a different call, so that
/// the operation cannot end; none if there is no such peer. The caller advances the operation once
/// more before it throws the error, because the last messages of a peer that has ended may just
/// have arrived.
std::optional<Error> diagnose_peers(const Situation& now);

/// How long peers may take to answer how far they are: for the report of a stall (kStallPatience),
/// for the error about a message (kExplanationPatience), and for a call with the timeout `limit`
/// that has passed its deadline (patience_at_deadline()). Peers that compute answer within half a
/// second.
constexpr std::chrono::milliseconds kStallPatience{50}, kExplanationPatience{700};
/// The pause until a peer is asked again. A copy of a status page may be too old for an answer and
/// yet count as fresh for some time, in which no other copy is requested, so that nothing arrives
/// that would wake this rank.
constexpr std::chrono::milliseconds kAskAgainAfter{5};
static_assert(kAskAgainAfter < kStallPatience && kStallPatience < kExplanationPatience);
constexpr Nanoseconds patience_at_deadline(Nanoseconds limit) {
  return std::clamp<Nanoseconds>(limit, kStallPatience, kExplanationPatience);
}

/// Asks all peers how far they are in an operation, by as many calls of look() as they need to
/// answer. One thread at a time uses it.
class Inquiry {
 public:
  enum class Reason { stall, deadline };

  /// Begins an inquiry, which peers may answer until `until`.
  void begin(Reason reason, std::uint64_t operation, int rank, int size, TimePoint until);
  /// Asks those that have not answered; returns true once all have, or the time is over.
  bool look(Transport& transport, TimePoint now);
  void end() noexcept {
    assert(asking_);
    asking_ = false;
  }

  bool is_about(std::uint64_t operation) const noexcept {
    return asking_ && operation == operation_;
  }
  bool is_about(Reason reason, std::uint64_t operation) const noexcept {
    return is_about(operation) && reason == reason_;
  }
  bool all_answered() const noexcept { return silent_.empty(); }
  TimePoint until() const noexcept { return until_; }

 private:
  bool asking_ = false;
  Reason reason_ = Reason::stall;
  std::uint64_t operation_ = 0;
  TimePoint until_{};
  std::vector<int> silent_;
};

/// Returns whether the peer's status page shows what diagnose_message() needs; otherwise the page
/// is still in transit, or the peer does not answer.
bool can_explain(const Situation& now, const MismatchedMessage& message);

/// Returns the error for a message that belongs to another call: `mismatch` with what both ranks
/// called (`corrupt` if the calls agree and only the length differs).
Error diagnose_message(const Situation& now, const MismatchedMessage& message);

/// Returns the error for a program's own reduction that threw an exception.
Error diagnose_reduction(const Situation& now, const ReductionThrew& thrown);

/// Says which rank reports a stalled operation, so that not all of them do.
enum class Reporter {
  self,
  lower,     ///< A lower rank that is in the operation, too.
  reported,  ///< Another rank has reported it.
};
/// Is called after an Inquiry.
Reporter reporter_of_stall(const Situation& now);

/// Describes a stalled operation that has been under way for `age`: which ranks have not called it,
/// which are in it, and for which rank each of them waits. Is called after an Inquiry.
std::string describe_stall(const Situation& now, Nanoseconds age);

/// Returns the error for a deadline that has passed: which ranks have not called the operation,
/// which are in it, and for which ranks this one waits.
/// `configured` is the limit that the settings give to calls.
Error diagnose_deadline(const Situation& now, const Engine& engine, Nanoseconds limit,
                        Nanoseconds configured);
/// Returns what a message about a passed deadline advises.
std::string_view advice_at_deadline(Nanoseconds limit, Nanoseconds configured) noexcept;

}  // namespace tutti
