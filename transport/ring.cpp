#include "transport/ring.h"

#include <string>

#include <tutti/error.hpp>

namespace tutti {

SendRing* RecvRing::ring_of(const Origin& origin) const noexcept {
  if (beyond_.back == nullptr) return nullptr;
  const auto found = beyond_.back->find(origin.channel);
  return found == beyond_.back->end() ? nullptr : found->second;
}

namespace {

[[noreturn]] void refuse(const char* claim) {
  throw Error(ErrorKind::corrupt,
              std::string("a message claims to ") + claim +
                  ": the sender's memory is damaged or it runs another version");
}

}  // namespace

void SendRing::refuse_release() {
  throw Error(
      ErrorKind::corrupt,
      "a peer has released more messages than it was sent: its memory is damaged or it runs "
      "another version");
}

namespace {

// Returns null where the segment is not known here; otherwise `found` keeps it alive.
std::byte* find(const Segments* segments, const Extent& extent, std::size_t bytes, Segment& found) {
  if (segments == nullptr || extent.segment == 0) return nullptr;
  found = segments->find(extent.segment);
  if (found.memory == nullptr) return nullptr;
  if (bytes > found.bytes || extent.offset > found.bytes - bytes)
    refuse("lie beyond the end of what its sender lends");
  return found.memory.get() + extent.offset;
}

}  // namespace

const std::byte* RecvRing::elsewhere(const Origin& origin, bool& lent) const {
  const std::size_t bytes = header().length;
  const Extent extent{origin.segment, origin.offset};
  if (origin.lent() && beyond_.peers != nullptr) {
    lent = true;
    if (away()) return nullptr;
    return find(beyond_.peers, extent, bytes, lent_);
  }
  const std::byte* data = nullptr;
  if (!origin.answers_ring())
    data = find(beyond_.own, extent, bytes, lent_);
  else if (const SendRing* ring = ring_of(origin))
    data = ring->answer(origin, bytes);
  if (data == nullptr) refuse("answer one that was never sent");
  return data;
}

const std::byte* RecvRing::fetch(std::byte* to) {
  const std::size_t bytes = header().length;
  if (beyond_.all == nullptr) refuse("lie where this rank cannot read");
  if (to == nullptr) {
    fetched_.resize(bytes);
    to = fetched_.data();
  }
  const PeerMemory::Read read = beyond_.all->read(origin().offset, to, bytes);
  if (read == PeerMemory::Read::nothing && still_lent())
    refuse("lie where its sender has no memory: a buffer that was given back during its call");
  return read == PeerMemory::Read::done ? to : nullptr;
}

std::byte* RecvRing::answer_data() const {
  const Origin origin = this->origin();
  if (away()) return nullptr;
  if (origin.lent()) return find(beyond_.peers, origin.answer, header().length, answer_);
  if (origin.elsewhere() || beyond_.back == nullptr) return nullptr;
  return const_cast<std::byte*>(data_) + offset();
}

}  // namespace tutti
