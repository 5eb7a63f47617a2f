// Loans: which messages may lie where their sender holds what they say, in place of a copy.
//
// Where a rank lends its buffers to its peers (Buffer), a message can be a mere reference: the peer
// reads the sender's input or output itself, some time before the call ends. That is right as long
// as nobody writes there meanwhile.
#pragma once

#include <vector>

#include <tutti/schedule.hpp>

namespace tutti::collectives {

/// What a step's messages may be lent from.
struct Loan {
  int operand = -1;  ///< Of the step, inputs before outputs: holds what they say. -1: none does.
  bool in_place = false;  ///< In calls in place, too.
  /// The answer to the message, if there is one in its place, is what this rank has in the end: its
  /// chunks of the output may take it.
  bool answered = false;
};

/// By lane and step. Lent is what no step writes later, and in place a rank's only contribution to
/// a reduction, which comes back as the result: then it has been read. None in schedules of more
/// than kMostLendingRanks.
inline constexpr int kMostLendingRanks = 64;
std::vector<std::vector<Loan>> loans(const Schedule& schedule);

}  // namespace tutti::collectives
