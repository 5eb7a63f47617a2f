#include "runtime/engine/wait.h"

#include <sys/epoll.h>

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <limits>

#include <fmt/format.h>

#include <tutti/error.hpp>

namespace tutti {

static_assert(wait_policy(2, 2, -1).yields == 0 && wait_policy(3, 2, -1).yields > 0);
static_assert(wait_policy(2, 2, 7).polls == 7 && wait_policy(3, 2, 0).polls == 0);

Sleeper::Sleeper() : epoll_fd_(epoll_create1(EPOLL_CLOEXEC)) {
  if (!epoll_fd_)
    throw Error(
        ErrorKind::unavailable,
        fmt::format(
            "no epoll descriptor to sleep in (errno {}): raise the limit of open files (ulimit -n)",
            errno));
}

void Sleeper::watch(int fd) {
  epoll_event event{};
  event.events = EPOLLIN | EPOLLET;
  if (epoll_ctl(epoll_fd_.get(), EPOLL_CTL_ADD, fd, &event) != 0 && errno != EEXIST)
    throw Error(ErrorKind::unavailable,
                fmt::format("cannot sleep on a descriptor (epoll_ctl, errno {})", errno));
}

void Sleeper::forget(int fd) noexcept { epoll_ctl(epoll_fd_.get(), EPOLL_CTL_DEL, fd, nullptr); }

void Sleeper::sleep_until(TimePoint deadline, const Clock& clock) {
  using std::chrono::milliseconds;
  const auto left = std::chrono::ceil<milliseconds>(deadline - clock.now());
  constexpr milliseconds kLongest{3'600'000};  // epoll counts in int milliseconds
  static_assert(kLongest.count() <= std::numeric_limits<int>::max());
  sync::await_event(epoll_fd_.get(), std::clamp(left, milliseconds{0}, kLongest));
}

std::unique_ptr<Sleeper> SleeperPool::take(int bell_fd, std::span<const int> wait_fds) {
  {
    const std::lock_guard lock(mutex_);
    if (!idle_.empty()) {
      auto sleeper = std::move(idle_.back());
      idle_.pop_back();
      return sleeper;
    }
  }
  auto sleeper = std::make_unique<Sleeper>();
  sleeper->watch(bell_fd);
  for (const int fd : wait_fds) sleeper->watch(fd);
  return sleeper;
}

void SleeperPool::give_back(std::unique_ptr<Sleeper> sleeper) {
  assert(sleeper != nullptr);
  const std::lock_guard lock(mutex_);
  idle_.push_back(std::move(sleeper));
}

}  // namespace tutti
