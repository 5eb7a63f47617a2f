#include "transport/ring/ring.h"

#include <string>

#include <tutti/error.hpp>

namespace tutti {

static_assert(SendRing::max_message_bytes(SendRing::least_data_bytes(1)) >= 1);
static_assert(SendRing::max_message_bytes(SendRing::least_data_bytes(100'000)) >= 100'000);
static_assert(SendRing::least_data_bytes(1) == 3 * kCacheLine, "the smallest ring");

SendRing* RecvRing::ring_of(const Origin& origin) const noexcept {
  assert(origin.answers_ring());
  if (outside_.back == nullptr) return nullptr;
  const auto found = outside_.back->find(origin.channel);
  return found == outside_.back->end() ? nullptr : found->second;
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

const std::byte* RecvRing::outside_ring(bool& zero_copy) const {
  assert(origin_.outside_ring());
  const std::size_t bytes = header_.length;
  const Extent extent{origin_.segment, origin_.offset};
  if (origin_.zero_copy() && outside_.peers != nullptr) {
    zero_copy = true;
    if (remote()) return nullptr;
    return find(outside_.peers, extent, bytes, message_);
  }
  const std::byte* data = nullptr;
  if (!origin_.answers_ring())
    data = find(outside_.own, extent, bytes, message_);
  else if (const SendRing* ring = ring_of(origin_))
    data = ring->answer(origin_, bytes);
  if (data == nullptr) refuse("answer one that was never sent");
  return data;
}

const std::byte* RecvRing::get(std::byte* to) {
  assert(peeked_ && remote());
  const std::size_t bytes = header_.length;
  if (outside_.all == nullptr) refuse("lie where this rank cannot read");
  if (to == nullptr) {
    copy_.resize(bytes);
    to = copy_.data();
  }
  const PeerMemory::Read read = outside_.all->read(origin_.offset, to, bytes);
  if (read == PeerMemory::Read::nothing && still_valid())
    refuse("lie where its sender has no memory: a buffer that was given back during its call");
  return read == PeerMemory::Read::done ? to : nullptr;
}

std::byte* RecvRing::answer_data() const {
  if (remote()) return nullptr;
  if (origin_.zero_copy()) return find(outside_.peers, origin_.answer, header_.length, answer_);
  if (origin_.outside_ring() || outside_.back == nullptr) return nullptr;
  return const_cast<std::byte*>(data_) + offset();
}

}  // namespace tutti
