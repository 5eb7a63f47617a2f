// Finds out which messages of a schedule may be sent zero-copy, from their sender's buffer.
//
// If peers can read a rank's buffers, a message can be a mere reference: the peer reads the
// sender's input or output itself, some time before the call ends. This is correct as long as no
// step writes there meanwhile.
#pragma once

#include <vector>

#include <tutti/schedule.hpp>

namespace tutti::collectives {

/// The memory from which a step's messages may be sent zero-copy.
struct ZeroCopySource {
  int operand = -1;  ///< The number of the operand that holds the content of the messages, in the
                     ///< step, inputs before outputs; -1 if none does.
  bool in_place = false;  ///< Whether this also holds for calls in place.
  /// Whether the answer to the message, if it is written in the message's place, is the final
  /// result on this rank. Then it may be written directly to its chunks of the output.
  bool answered = false;
};

/// Returns the sources by lane and step. A message may be sent from chunks that no later step
/// writes. In place, it may also be sent from a rank's only contribution to a reduction, which is
/// overwritten only by the result that comes back; by then it has been read. Schedules of more than
/// kMostZeroCopyRanks ranks have no sources.
inline constexpr int kMostZeroCopyRanks = 64;
std::vector<std::vector<ZeroCopySource>> zero_copy_sources(const Schedule& schedule);

}  // namespace tutti::collectives
