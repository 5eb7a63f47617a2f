#include "runtime/p2p/matching.h"

#include <cassert>

namespace tutti {
namespace {

bool matches(const TransferCall& receive, int source, int tag) noexcept {
  return (receive.peer == kAnySource || receive.peer == source) &&
         (receive.tag == kAnyTag || receive.tag == tag);
}

}  // namespace

Transfer* Matching::take_posted(int source, int tag) noexcept {
  assert(source >= 0);
  for (Transfer* receive = posted_.front(); receive != nullptr; receive = posted_.next(*receive))
    if (matches(receive->call, source, tag)) {
      posted_.remove(*receive);
      return receive;
    }
  return nullptr;
}

UnexpectedMessage* Matching::take_unexpected(const TransferCall& receive) noexcept {
  for (UnexpectedMessage* message = unexpected_.front(); message != nullptr;
       message = unexpected_.next(*message))
    if (matches(receive, message->source, message->tag)) {
      unexpected_.remove(*message);
      return message;
    }
  return nullptr;
}

UnexpectedMessage& Matching::keep() {
  UnexpectedMessage* message = spare_.pop_front();
  if (message == nullptr) message = &pool_.emplace_back();
  message->own = nullptr;
  message->payload.clear();
  unexpected_.push_back(*message);
  return *message;
}

void Matching::forget(UnexpectedMessage& message) noexcept {
  assert(message.link.previous == nullptr && message.link.next == nullptr);
  spare_.push_back(message);
}

const UnexpectedMessage* Matching::oldest_from(int source) const noexcept {
  assert(source >= 0 || source == kAnySource);
  const UnexpectedMessage* message = unexpected_.front();
  while (message != nullptr && source != kAnySource && message->source != source)
    message = unexpected_.next(*message);
  return message;
}

void Matching::clear() noexcept {
  posted_.clear();
  while (UnexpectedMessage* message = unexpected_.pop_front()) spare_.push_back(*message);
  assert(posted_.empty() && unexpected_.empty());
}

}  // namespace tutti
