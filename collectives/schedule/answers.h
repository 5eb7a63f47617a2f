// Answers: messages that are written over the message which they answer.
//
// A step that receives from a peer and sends to the same peer may write its message over the one
// that it has received, if the channel is memory. The message's slot is free again only when its
// writer has read the answer. The lane's other messages from that peer must be answered, too, so
// that all slots of a channel are freed in the same way. The engine answers in this way where it
// can; the verifier assumes that it always does.
#pragma once

#include <vector>

#include <tutti/schedule.hpp>

namespace tutti::collectives {

/// Returns the peers whose messages are answered in every step of `lane` that receives from them,
/// ascending.
std::vector<int> answered_peers(const Lane& lane);

}  // namespace tutti::collectives
