// Loans: which messages may be sent zero-copy, from their sender's buffer.
//
// If a rank has lent its buffers to its peers (Buffer), a message can be a mere reference: the peer
// reads the sender's input or output itself, some time before the call ends. This is correct as
// long as no step writes there meanwhile.
#pragma once

#include <vector>

#include <tutti/schedule.hpp>

namespace tutti::collectives {

/// The memory from which a step's messages may be lent.
struct Loan {
  int operand = -1;  ///< The number of the operand that holds the content of the messages, in the
                     ///< step, inputs before outputs; -1 if none does.
  bool in_place = false;  ///< Whether this also holds for calls in place.
  /// Whether the answer to the message, if it is written in the message's place, is the final
  /// result on this rank. Then it may be written directly to its chunks of the output.
  bool answered = false;
};

/// Returns the loans by lane and step. A message may be lent from chunks that no later step writes.
/// In place, it may also be lent from a rank's only contribution to a reduction, which is
/// overwritten only by the result that comes back; by then it has been read. Schedules of more than
/// kMostLendingRanks ranks have no loans.
inline constexpr int kMostLendingRanks = 64;
std::vector<std::vector<Loan>> loans(const Schedule& schedule);

}  // namespace tutti::collectives
