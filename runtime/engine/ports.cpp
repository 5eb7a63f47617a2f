// What a port does where its channel has no ring, or has none yet.
#include "runtime/engine/execution.h"

namespace tutti {

bool RecvPort::peek_channel(Message& message) {
  ring_ = channel_->ring();  // a ring may be attached after the port was bound
  if (ring_ != nullptr) return peek(message);
  const auto found = channel_->peek();
  if (found) message = *found;
  return found.has_value();
}

}  // namespace tutti
