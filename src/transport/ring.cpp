#include "transport/ring.h"

#include <unistd.h>

namespace tutti {

void PeerBell::ring() const noexcept {
  const std::uint64_t one = 1;
  // EAGAIN (the counter is at its top) means that the bell is ringing anyway; a peer that is gone
  // leaves a descriptor that nobody reads. Neither is this rank's business here.
  [[maybe_unused]] const ssize_t written = write(event_fd, &one, sizeof one);
}

}  // namespace tutti
