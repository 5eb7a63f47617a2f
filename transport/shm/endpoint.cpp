#include "transport/shm/endpoint.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <array>
#include <cassert>

#include "common/descriptors.h"

namespace tutti::shm {
namespace {

Fd make_spare() { return Fd(eventfd(0, EFD_CLOEXEC)); }

/// Gives up a spare descriptor for as long as the object exists.
class Lent {
 public:
  explicit Lent(Fd& spare) noexcept : spare_(spare) { spare_.reset(); }
  ~Lent() { spare_ = make_spare(); }
  Lent(const Lent&) = delete;
  Lent& operator=(const Lent&) = delete;

 private:
  Fd& spare_;
};

}  // namespace

Endpoint::Endpoint(int size)
    : epoll_(make_epoll()), spare_(make_spare()), peers_(static_cast<std::size_t>(size)) {
  assert(size > 0);
}

void Endpoint::add_peer(const TransportContext& context, int rank, Link link,
                        const Segments& segments) {
  assert(rank >= 0 && rank < context.size && rank != context.rank && !has(rank));
  const std::lock_guard lock(mutex_);
  peers_[static_cast<std::size_t>(rank)] =
      std::make_unique<Peer>(context, rank, std::move(link), epoll_, segments, allowance_);
}

void Endpoint::progress() {
  const std::lock_guard lock(mutex_);
  std::array<epoll_event, 16> events{};
  for (;;) {
    const int count = epoll_wait(epoll_.get(), events.data(), events.size(), 0);
    if (count <= 0) return;
    const Lent lent(spare_);
    for (int i = 0; i < count; ++i) {
      const std::uint64_t tag = events[i].data.u64;
      assert(tag / 2 < peers_.size() && peers_[tag / 2] != nullptr);
      peers_[tag / 2]->handle_event(tag % 2 == 0 ? Peer::Source::socket : Peer::Source::process);
    }
    if (count < static_cast<int>(events.size())) return;
  }
}

}  // namespace tutti::shm
