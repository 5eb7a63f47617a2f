// What a port does where its channel has no ring, or has none yet.
#include "runtime/engine/ports.h"

#include "topology/caches.h"

namespace tutti {

// On AMD's processors, a ring takes 0.75 to 1.0 of the time in a loop that rests, and a quarter in
// one that writes what it sends (docs/performance.md, "AMD's processors").
bool copies_by_kernel_pay() {
  static const bool pay = core_caches().victim_bytes == 0;
  return pay;
}

bool RecvPort::peek_channel(Message& message) {
  ring_ = channel_->ring();  // a ring may be attached after the port was bound
  if (ring_ != nullptr) return peek(message);
  const auto found = channel_->peek();
  if (found) message = *found;
  return found.has_value();
}

}  // namespace tutti
