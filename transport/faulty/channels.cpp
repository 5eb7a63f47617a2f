#include "transport/faulty/channels.h"

#include <algorithm>
#include <cassert>
#include <cstring>

namespace tutti::faulty {

Link::Link(const Faults& faults, const Clock& clock, Random& random, int self, int peer)
    : faults_(faults), clock_(clock), random_(random) {
  for (const Event& event : faults.events) {
    // A flip or a damage has a direction; it is an event of the end that receives.
    const bool directed = event.kind == Event::Kind::flip || event.kind == Event::Kind::damage;
    const bool from_peer =
        event.rank == peer && (event.peer == self || event.peer == Event::kAllPeers);
    const bool from_self =
        event.rank == self && (event.peer == peer || event.peer == Event::kAllPeers);
    if (from_peer || (from_self && !directed)) events_.push_back(event);
  }
}

bool Link::silent(TimePoint now) const {
  return std::any_of(events_.begin(), events_.end(), [&](const Event& event) {
    if (now < event.at || event.kind == Event::Kind::flip) return false;
    if (event.kind != Event::Kind::silence) return true;
    return event.lasts == Event::kForever || now < event.at + event.lasts;
  });
}

bool Link::lost(TimePoint now) const {
  return std::any_of(events_.begin(), events_.end(), [&](const Event& event) {
    return event.kind == Event::Kind::cut && event.lasts != Event::kForever &&
           now >= event.at + event.lasts;
  });
}

bool Link::corrupt(TimePoint now) const {
  return std::any_of(events_.begin(), events_.end(), [&](const Event& event) {
    return event.kind == Event::Kind::damage && now >= event.at;
  });
}

bool Link::take_flip(TimePoint now) {
  const auto due = std::find_if(events_.begin(), events_.end(), [&](const Event& event) {
    return event.kind == Event::Kind::flip && now >= event.at;
  });
  if (due == events_.end()) return false;
  events_.erase(due);
  return true;
}

Nanoseconds Link::draw(int percent, Nanoseconds longest) {
  if (percent == 0 || longest.count() == 0) return {};
  const std::uint64_t drawn = random_.next();
  if (drawn % 100 >= static_cast<std::uint64_t>(percent)) return {};
  return Nanoseconds(drawn / 100 % static_cast<std::uint64_t>(longest.count() + 1));
}

bool FaultySend::full() {
  if (!begun_) {
    begun_ = true;
    const Nanoseconds full = link_.draw_full();
    full_until_ = full.count() > 0 ? link_.now() + full : TimePoint();
  }
  if (full_until_ == TimePoint()) return false;
  if (link_.now() < full_until_) return true;
  full_until_ = {};
  return false;
}

std::optional<Span> FaultySend::acquire(std::size_t bytes) {
  return full() ? std::nullopt : inner_.acquire(bytes);
}

bool FaultySend::acquire_zero_copy(const Memory& message) {
  return !full() && inner_.acquire_zero_copy(message);
}

void FaultySend::post(const Header& header) {
  assert(begun_ && "a message is acquired before it is posted");
  begun_ = false;
  inner_.post(header);
}

// Returns the oldest message as the wrapped channel shows it, once it is visible.
std::optional<Message> FaultyRecv::visible() {
  const TimePoint now = link_.now();
  if (!link_.arrives(now)) return std::nullopt;
  const std::optional<Message> message = inner_.peek();
  if (!message) return std::nullopt;
  if (!seen_) {
    seen_ = true;
    visible_at_ = now + link_.draw_delay();
    if (link_.take_flip(now)) flip_ = link_.draw_number();
  }
  if (now < visible_at_ && link_.delays()) return std::nullopt;
  return message;
}

std::optional<Message> FaultyRecv::peek() {
  std::optional<Message> message = visible();
  if (message && flip_) [[unlikely]]
    flip(*message);
  return message;
}

// Changes a bit of the header or of the payload, as it has been drawn.
void FaultyRecv::flip(Message& message) {
  const std::size_t bytes = message.header.length;
  if (message.data != nullptr) message.data = flipped(message.data, bytes);
  const std::uint64_t bit = *flip_ % ((sizeof(Header) + bytes) * 8);
  if (bit >= sizeof(Header) * 8) return;
  auto* const header = reinterpret_cast<std::byte*>(&message.header);
  header[bit / 8] ^= std::byte{1} << bit % 8;
}

// Returns a copy of the payload, in which a bit may differ. It has as many bytes as a header may
// claim, since the header's length may be what was changed.
const std::byte* FaultyRecv::flipped(const std::byte* data, std::size_t bytes) {
  if (damaged_.empty()) {
    damaged_.resize(std::max(bytes, std::min<std::size_t>(largest_message_, 1u << 20)) + 1);
    std::memcpy(damaged_.data(), data, bytes);
    const std::uint64_t bit = *flip_ % ((sizeof(Header) + bytes) * 8);
    if (bit >= sizeof(Header) * 8) damaged_[bit / 8 - sizeof(Header)] ^= std::byte{1} << bit % 8;
  }
  return damaged_.data();
}

const std::byte* FaultyRecv::get(const Memory& place) {
  const std::optional<Message> message = visible();
  // A message that has arrived and is not visible yet must not be brought; one that has not arrived
  // may be received at the place.
  if (!message && (seen_ || !link_.arrives(link_.now()))) return nullptr;
  const std::byte* const data = inner_.get(place);
  if (data == nullptr || !message || !flip_) [[likely]]
    return data;
  return flipped(data, message->header.length);
}

void FaultyRecv::release() {
  assert(seen_ && "a message is peeked before it is released");
  seen_ = false;
  flip_.reset();
  damaged_.clear();
  inner_.release();
}

}  // namespace tutti::faulty
