// The one wait of the program: spin while that pays, yield when there are more ranks than cores,
// then announce the sleep, look once more, and sleep until a doorbell, a descriptor or the
// deadline.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <vector>

#include "common/clock.h"
#include "common/sync.h"
#include "transport/doorbell.h"

namespace tutti {

struct WaitPolicy {
  int polls = 5000;  ///< Attempts back to back: about 50 us, with cores for all ranks.
  int yields = 0;    ///< Then so many times yield() and an attempt, if ranks outnumber cores.
  std::chrono::microseconds spin_for{300};  ///< Without yields: polling goes on before sleeping.
};

/// `local_ranks` share `cores` on this machine. `spin_polls` >= 0 overrides the number of polls.
constexpr WaitPolicy wait_policy(int local_ranks, int cores, int spin_polls) {
  WaitPolicy policy;
  if (local_ranks > cores) policy = {20, 300, std::chrono::microseconds{0}};
  if (spin_polls >= 0) policy.polls = spin_polls;
  return policy;
}

/// Where one thread sleeps: an epoll over a doorbell and a transport's wait_fd(). Own thread only.
class Sleeper {
 public:
  Sleeper();
  ~Sleeper();
  Sleeper(const Sleeper&) = delete;
  Sleeper& operator=(const Sleeper&) = delete;

  /// Wakes at each new event of `fd` from now on (edge-triggered: a doorbell is never cleared, so
  /// that any number of sleepers may share it, and a dead peer wakes once). -1: nothing.
  void watch(int fd);
  void forget(int fd) noexcept;

  void sleep_until(TimePoint deadline, const Clock& clock);

 private:
  int epoll_fd_ = -1;
};

/// Sleepers that nobody sleeps in, all over the same descriptors. Thread-safe.
class SleeperPool {
 public:
  /// One over `bell_fd` and `wait_fd`.
  std::unique_ptr<Sleeper> take(int bell_fd, int wait_fd);
  void give_back(std::unique_ptr<Sleeper> sleeper);

 private:
  sync::Mutex mutex_;
  std::vector<std::unique_ptr<Sleeper>> idle_;  // guarded by mutex_
};

/// Counts this thread among the sleepers of a status page for as long as it lives.
class Announced {
 public:
  Announced(sync::Atomic<std::uint32_t>& sleepers, const Doorbell& bell) : sleepers_(sleepers) {
    sleepers_.fetch_add(1, std::memory_order_seq_cst);
    bell.sleep_barrier();
  }
  ~Announced() { sleepers_.fetch_sub(1, std::memory_order_release); }
  Announced(const Announced&) = delete;
  Announced& operator=(const Announced&) = delete;

 private:
  sync::Atomic<std::uint32_t>& sleepers_;
};

/// Waits until `attempt()` is true. `attempt` does what can be done now, and costs no system call.
/// `look` does what polling does not see (sockets, peers' lives, the deadline), and throws when the
/// wait must end. `sleep(last_look)` announces the sleep and calls `last_look` before it sleeps; it
/// returns true when that found the end. The last look takes news, too: what another thread took
/// since the look before woke only threads whose sleep was announced.
template <typename Attempt, typename Look, typename Sleep>
void wait(const WaitPolicy& policy, const Clock& clock, Attempt&& attempt, Look&& look,
          Sleep&& sleep) {
  constexpr int kAttemptsPerLook = 1000;
  constexpr int kYieldsPerLook = 64;
  for (int poll = 0; poll < policy.polls; ++poll)
    if (attempt()) return;
  for (;;) {
    for (int yield = 1; yield <= policy.yields; ++yield) {
      sync::yield();
      if (attempt()) return;
      if (yield % kYieldsPerLook == 0) look();
    }
    look();
    for (const TimePoint until = clock.now() + policy.spin_for; clock.now() < until; look())
      for (int poll = 0; poll < kAttemptsPerLook; ++poll)
        if (attempt()) return;
    const auto last_look = [&] { return attempt() || (look(), attempt()); };
    if (attempt() || sleep(last_look)) return;
    look();
  }
}

}  // namespace tutti
