// What went wrong, from what peers' status pages show: the words of every error that involves a
// peer.
#pragma once

#include <optional>
#include <string>

#include <tutti/error.hpp>

#include "runtime/engine/execution.h"
#include "transport/channel.h"

namespace tutti {

/// The operation under way, as its own rank sees it.
struct Situation {
  Transport& transport;
  const Clock& clock;
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

/// The error for a message that belongs to another call: `mismatch` with what both ranks called
/// (`corrupt` where the calls agree and only the length differs).
Error diagnose_message(const Situation& now, const MismatchedMessage& message);

/// The error for a program's own reduction that threw.
Error diagnose_reduction(const Situation& now, const ReductionThrew& thrown);

/// Asks all peers where they are. False: some have not answered; those that compute do within half
/// a second.
bool ask_peers(const Situation& now);

/// Which rank speaks of an operation that does not end, so that not all of them do.
enum class Reporter {
  self,
  lower,     ///< A rank below this one that is in the operation, too.
  reported,  ///< Another has spoken.
};
/// After ask_peers().
Reporter reporter_of_stall(const Situation& now);

/// Of an operation that has been under way for `age`: who has not called it, who is in it and for
/// whom each waits. After ask_peers().
std::string describe_stall(const Situation& now, Nanoseconds age);

/// The error for a deadline that passed: who has not called it, who is in it, whom this rank waits
/// for.
Error diagnose_deadline(const Situation& now, const Execution& execution, Nanoseconds limit);

}  // namespace tutti
