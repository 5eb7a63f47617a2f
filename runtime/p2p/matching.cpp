#include "runtime/p2p/matching.h"

#include <cassert>

namespace tutti {
namespace {

// The two bits of a kind of name.
constexpr std::size_t kFromAnySource = 1, kWithAnyTag = 2;
static_assert((kFromAnySource | kWithAnyTag) + 1 == kWildcards);

std::size_t kind_of(const TransferCall& receive) noexcept {
  return (receive.peer == kAnySource ? kFromAnySource : 0) |
         (receive.tag == kAnyTag ? kWithAnyTag : 0);
}

std::uint64_t match_key(int source, int tag) noexcept {
  return std::uint64_t{static_cast<std::uint32_t>(source)} << 32 | static_cast<std::uint32_t>(tag);
}

// Returns the name of this kind of a message.
std::uint64_t match_key(std::size_t kind, int source, int tag) noexcept {
  return match_key((kind & kFromAnySource) != 0 ? kAnySource : source,
                   (kind & kWithAnyTag) != 0 ? kAnyTag : tag);
}

}  // namespace

void Matching::post(Transfer& receive) noexcept {
  assert(receive.call.direction == Direction::recv && !receive.done);
  receive.key = match_key(receive.call.peer, receive.call.tag);
  receive.posted = posts_++;
  ++posted_with_[kind_of(receive.call)];
  posted_.push_back(receive);
}

Transfer* Matching::take_posted(int source, int tag) noexcept {
  assert(source >= 0 && tag >= 0);
  Transfer* oldest = nullptr;
  for (std::size_t kind = 0; kind < kWildcards; ++kind) {
    if (posted_with_[kind] == 0) continue;
    Transfer* const receive = posted_.first(match_key(kind, source, tag));
    if (receive != nullptr && (oldest == nullptr || receive->posted < oldest->posted))
      oldest = receive;
  }
  if (oldest == nullptr) return nullptr;
  --posted_with_[kind_of(oldest->call)];
  posted_.remove(*oldest);
  return oldest;
}

UnexpectedMessage* Matching::oldest(const TransferCall& receive) const noexcept {
  const Entry* const entry =
      unexpected_[kind_of(receive)].first(match_key(receive.peer, receive.tag));
  return entry == nullptr ? nullptr : entry->message;
}

UnexpectedMessage* Matching::take_unexpected(const TransferCall& receive) noexcept {
  UnexpectedMessage* const message = oldest(receive);
  if (message != nullptr) remove(*message);
  return message;
}

void Matching::remove(UnexpectedMessage& message) noexcept {
  for (std::size_t kind = 0; kind < kWildcards; ++kind)
    unexpected_[kind].remove(message.entries[kind]);
}

UnexpectedMessage& Matching::keep(int source, int tag) {
  assert(source >= 0 && tag >= 0);
  UnexpectedMessage* message = spare_.pop_front();
  if (message == nullptr) message = &pool_.emplace_back();
  message->source = source;
  message->tag = tag;
  message->own = nullptr;
  message->payload.clear();
  for (std::size_t kind = 0; kind < kWildcards; ++kind) {
    message->entries[kind].message = message;
    message->entries[kind].key = match_key(kind, source, tag);
    unexpected_[kind].push_back(message->entries[kind]);
  }
  return *message;
}

const UnexpectedMessage* Matching::oldest_from(int source) const noexcept {
  assert(source >= 0 || source == kAnySource);
  TransferCall any;
  any.peer = source;
  any.tag = kAnyTag;
  return oldest(any);
}

void Matching::clear() noexcept {
  posted_.clear();
  posted_with_ = {};
  TransferCall anything;
  anything.peer = kAnySource;
  anything.tag = kAnyTag;
  while (UnexpectedMessage* const message = take_unexpected(anything)) forget(*message);
}

}  // namespace tutti
