// Answers: where a lane returns a message's memory with a result in it.
//
// A step that receives from a peer and sends to the same peer may write what it sends over what it
// has received, where the channel is memory: the message's slot is free again only when its writer
// has read the answer. The lane's other messages from that peer must be answered, too, so that a
// channel's slots come back in one way. The engine does so where it can; the verifier assumes that
// it always does.
#pragma once

#include <vector>

#include <tutti/schedule.hpp>

namespace tutti::collectives {

/// The peers whose messages are answered in each step of `lane` that receives from them, ascending.
std::vector<int> answered_peers(const Lane& lane);

}  // namespace tutti::collectives
