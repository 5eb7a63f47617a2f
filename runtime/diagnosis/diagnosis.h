// What went wrong, from what peers' status pages show: the words of every error that involves a
// peer.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <tutti/error.hpp>

#include "runtime/engine/execution.h"
#include "transport/channel.h"

namespace tutti {

/// The operation under way, as its own rank sees it.
struct Situation {
  Transport& transport;
  int rank;
  int size;
  std::uint64_t number;
  const CallSignature& call;
  const UserReduction* reduction = nullptr;  ///< The program's own that the operation does.
};

/// Of a peer whose bytes were changed on their way, and what to do.
std::string describe_corrupt(int peer, std::string_view why);

/// "rank 3 has failed and reports: ...": of the rank that failed first, however many passed it on.
std::string reported_failure(int peer, const StatusPage& status_page);

/// A peer that has failed, gone or called something else, so that the operation cannot end; none:
/// only time will tell. The caller advances once more before it believes it: the last messages of
/// the gone may just have come.
std::optional<Error> diagnose_peers(const Situation& now);

/// How long peers may take to say where they are, when a call that does not end is reported; when
/// the error for a message needs their words; and when a call has passed its deadline, which had
/// `limit` until then. Those that compute answer within half a second.
constexpr std::chrono::milliseconds kStallPatience{50}, kExplanationPatience{700};
/// While they do: a copy of a status page that is too old for an answer is fresh for some time, in
/// which no other one is on its way, and so nothing comes that would wake this rank.
constexpr std::chrono::milliseconds kAskAgainAfter{5};
constexpr Nanoseconds patience_at_deadline(Nanoseconds limit) {
  return std::clamp<Nanoseconds>(limit, kStallPatience, kExplanationPatience);
}

/// A question to all peers of an operation: where are they? It takes as many looks as they need to
/// answer. One thread at a time.
class Inquiry {
 public:
  enum class Reason { stall, deadline };

  /// Peers may answer until `until`.
  void begin(Reason reason, std::uint64_t operation, int rank, int size, TimePoint until);
  /// Asks those that have not answered; returns true once all have, or the time is over.
  bool look(Transport& transport, TimePoint now);
  void end() noexcept { asking_ = false; }

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

/// Whether the peer's status page shows what diagnose_message() needs; else it is on its way, or
/// the peer does not answer.
bool can_explain(const Situation& now, const MismatchedMessage& message);

/// The error for a message that belongs to another call: `mismatch` with what both ranks called
/// (`corrupt` where the calls agree and only the length differs).
Error diagnose_message(const Situation& now, const MismatchedMessage& message);

/// The error for a program's own reduction that threw.
Error diagnose_reduction(const Situation& now, const ReductionThrew& thrown);

/// Which rank speaks of an operation that does not end, so that not all of them do.
enum class Reporter {
  self,
  lower,     ///< A rank below this one that is in the operation, too.
  reported,  ///< Another has spoken.
};
/// After an Inquiry.
Reporter reporter_of_stall(const Situation& now);

/// Of an operation that has been under way for `age`: who has not called it, who is in it and for
/// whom each waits. After an Inquiry.
std::string describe_stall(const Situation& now, Nanoseconds age);

/// The error for a deadline that passed: who has not called it, who is in it, whom this rank waits
/// for.
Error diagnose_deadline(const Situation& now, const Execution& execution, Nanoseconds limit);

}  // namespace tutti
