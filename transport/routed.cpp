#include "transport/routed.h"

#include <fmt/format.h>
#include <sys/epoll.h>

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <cstring>

#include <tutti/error.hpp>

#include "common/fd.h"

namespace tutti {
namespace {

// Readable when one of the two is.
std::shared_ptr<const Fd> watch_both(const Transport& near, const Transport& far) {
  auto epoll = std::make_shared<const Fd>(epoll_create1(EPOLL_CLOEXEC));
  for (const int fd : {near.wait_fd(), far.wait_fd()}) {
    epoll_event event{};
    event.events = EPOLLIN;
    if (fd >= 0 && epoll_ctl(epoll->get(), EPOLL_CTL_ADD, fd, &event) != 0)
      throw Error(ErrorKind::unavailable,
                  fmt::format("cannot sleep over two transports: {}", std::strerror(errno)));
  }
  return epoll;
}

/// Own thread only.
class Routed final : public Transport {
 public:
  Routed(std::unique_ptr<Transport> near, std::unique_ptr<Transport> far,
         std::vector<int> near_rank, int rank, std::shared_ptr<const Fd> epoll)
      : near_(std::move(near)),
        far_(std::move(far)),
        near_rank_(std::move(near_rank)),
        rank_(rank),
        epoll_(std::move(epoll)),
        name_(fmt::format("{}+{}", near_->name(), far_->name())) {}
  ~Routed() override { close(); }

  std::string_view name() const override { return name_; }
  std::string address() const override { return {}; }
  /// Of a communicator that was split off.
  void connect(std::span<const std::string>, TimePoint deadline) override {
    near_->connect({}, deadline);
    far_->connect({}, deadline);
  }

  SendChannel& sender(int peer, int number) override {
    return is_near(peer) ? near_->sender(near_rank(peer), number) : far_->sender(peer, number);
  }
  RecvChannel& receiver(int peer, int number) override {
    return is_near(peer) ? near_->receiver(near_rank(peer), number) : far_->receiver(peer, number);
  }
  std::size_t max_message_bytes() const override {
    return std::min(near_->max_message_bytes(), far_->max_message_bytes());
  }

  void progress() override {
    near_->progress();
    far_->progress();
  }
  void arm() override {
    near_->arm();
    far_->arm();
  }
  void disarm() noexcept override {
    near_->disarm();
    far_->disarm();
  }
  bool leaves_at_once() const override { return false; }
  bool all_left() override { return near_->all_left() && far_->all_left(); }
  int wait_fd() const override { return epoll_->get(); }
  PeerStatus status(int peer) override {
    return is_near(peer) ? near_->status(near_rank(peer)) : far_->status(peer);
  }
  StatusPage& own_status_page() override { return near_->own_status_page(); }
  const StatusPage* status_page(int peer) override {
    return is_near(peer) ? near_->status_page(near_rank(peer)) : far_->status_page(peer);
  }
  const StatusPage* recent_status_page(int peer) override {
    return is_near(peer) ? near_->recent_status_page(near_rank(peer))
                         : far_->recent_status_page(peer);
  }
  bool background_progress() override {
    return far_->background_progress();
  }  // near_ has status pages in memory
  void wake(int peer) override {
    if (is_near(peer))
      near_->wake(near_rank(peer));
    else
      far_->wake(peer);
  }

  std::unique_ptr<Transport> split(const Subset& subset) override;

  std::optional<Lent> lend(std::size_t bytes) override { return near_->lend(bytes); }
  void take_back(std::uint32_t segment) noexcept override { near_->take_back(segment); }
  const Segments* segments() const noexcept override { return near_->segments(); }

  bool takes_memory() const noexcept override { return far_->takes_memory(); }

  std::size_t memory_bytes() const override { return near_->memory_bytes() + far_->memory_bytes(); }
  void close() noexcept override {
    near_->close();
    far_->close();
  }

 private:
  int near_rank(int peer) const { return near_rank_[static_cast<std::size_t>(peer)]; }
  bool is_near(int peer) const { return near_rank(peer) >= 0; }

  const std::unique_ptr<Transport> near_;
  const std::unique_ptr<Transport> far_;  // goes first: it shows near's status page
  const std::vector<int> near_rank_;      // by rank
  const int rank_;
  const std::shared_ptr<const Fd> epoll_;  // one for all that are split off each other
  const std::string name_;
};

std::unique_ptr<Transport> Routed::split(const Subset& subset) {
  Subset near = subset;
  near.members.clear();
  near.numbers.clear();
  std::vector<int> near_ranks;
  for (std::size_t member = 0; member < subset.members.size(); ++member) {
    const int old = near_rank(subset.members[member]);
    if (subset.members[member] == rank_) near.rank = static_cast<int>(near.members.size());
    near_ranks.push_back(old < 0 ? old : static_cast<int>(near.members.size()));
    if (old < 0) continue;
    near.members.push_back(old);
    near.numbers.push_back(subset.numbers[member]);
  }
  std::unique_ptr<Transport> near_part = near_->split(near);
  if (near_part == nullptr) return nullptr;
  Subset far = subset;  // also where all are near: those who wait in it answer the others as well
  far.status_page = &near_part->own_status_page();
  std::unique_ptr<Transport> far_part = far_->split(far);
  if (far_part == nullptr) return nullptr;
  return std::make_unique<Routed>(std::move(near_part), std::move(far_part), std::move(near_ranks),
                                  subset.rank, epoll_);
}

}  // namespace

std::unique_ptr<Transport> route(std::unique_ptr<Transport> near, std::unique_ptr<Transport> far,
                                 std::vector<int> near_rank, int rank) {
  auto epoll = watch_both(*near, *far);
  return std::make_unique<Routed>(std::move(near), std::move(far), std::move(near_rank), rank,
                                  std::move(epoll));
}

}  // namespace tutti
