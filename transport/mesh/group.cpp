#include "transport/mesh/group.h"

#include <sys/eventfd.h>

#include <atomic>
#include <chrono>
#include <utility>

namespace tutti::mesh {
namespace {

constexpr std::chrono::milliseconds kFreshFor{2}, kRecentFor{1500};
static_assert(kFreshFor < kRecentFor);

}  // namespace

void GroupContext::wake_sleepers() const noexcept {
  if (status_page->sleepers.any() && doorbell_fd >= 0) eventfd_write(doorbell_fd, 1);
}

void PeerPage::receive(const StatusPageBytes& bytes, TimePoint now) {
  write_status_page(page_, bytes);
  received_at_ = now;
  requested_ = false;
}

bool PeerPage::received_within(Nanoseconds age, TimePoint now, bool ended) const {
  const bool last = ended || page_.state.load(std::memory_order_relaxed) != StatusPageState::open;
  return received_at_ && (last || now < *received_at_ + age);
}

const StatusPage* PeerPage::fresh(TimePoint now, bool ended) const {
  return received_within(kFreshFor, now, ended) ? &page_ : nullptr;
}

const StatusPage* PeerPage::recent(TimePoint now, bool ended) const {
  return received_within(kRecentFor, now, ended) ? &page_ : nullptr;
}

bool PeerPage::request() noexcept { return !std::exchange(requested_, true); }

}  // namespace tutti::mesh
