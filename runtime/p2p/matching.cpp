#include "runtime/p2p/matching.h"

namespace tutti {
namespace {

bool matches(const TransferCall& receive, int source, int tag) noexcept {
  return (receive.peer == kAnySource || receive.peer == source) &&
         (receive.tag == kAnyTag || receive.tag == tag);
}

}  // namespace

Transfer* Matching::take_posted(int source, int tag) noexcept {
  for (Transfer* receive = posted_.front(); receive != nullptr; receive = posted_.next(*receive))
    if (matches(receive->call, source, tag)) {
      posted_.remove(*receive);
      return receive;
    }
  return nullptr;
}

Arrival* Matching::take_arrival(const TransferCall& receive) noexcept {
  for (Arrival* arrival = arrivals_.front(); arrival != nullptr; arrival = arrivals_.next(*arrival))
    if (matches(receive, arrival->source, arrival->tag)) {
      arrivals_.remove(*arrival);
      return arrival;
    }
  return nullptr;
}

Arrival& Matching::keep() {
  Arrival* arrival = spare_.pop_front();
  if (arrival == nullptr) arrival = &pool_.emplace_back();
  arrival->own = nullptr;
  arrival->payload.clear();
  arrivals_.push_back(*arrival);
  return *arrival;
}

void Matching::forget(Arrival& arrival) noexcept { spare_.push_back(arrival); }

const Arrival* Matching::oldest_from(int source) const noexcept {
  const Arrival* arrival = arrivals_.front();
  while (arrival != nullptr && source != kAnySource && arrival->source != source)
    arrival = arrivals_.next(*arrival);
  return arrival;
}

void Matching::clear() noexcept {
  posted_.clear();
  while (Arrival* arrival = arrivals_.pop_front()) spare_.push_back(*arrival);
}

}  // namespace tutti
