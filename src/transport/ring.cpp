#include "transport/ring.h"

#include <unistd.h>

#include <tutti/error.hpp>

namespace tutti {

void PeerBell::ring() const noexcept {
  const std::uint64_t one = 1;
  // EAGAIN (the counter is at its top) means that the bell is ringing anyway; a peer that is gone
  // leaves a descriptor that nobody reads. Neither is this rank's business here.
  [[maybe_unused]] const ssize_t written = write(event_fd, &one, sizeof one);
}

SendRing* RecvRing::ring_of(const Origin& origin) const noexcept {
  if (back_ == nullptr) return nullptr;
  const auto found = back_->find(static_cast<int>(origin.channel));
  return found == back_->end() ? nullptr : found->second;
}

const std::byte* RecvRing::answer() const {
  const Origin origin = this->origin();
  const SendRing* ring = ring_of(origin);
  const std::byte* data = ring != nullptr ? ring->answer(origin, header().length) : nullptr;
  if (data == nullptr)
    throw Error(ErrorKind::corrupt,
                "a message claims to answer one that was never sent: the sender's memory is "
                "damaged or it runs another version");
  return data;
}

}  // namespace tutti
