// The one function in which threads wait: they spin for a while, yield if there are more ranks than
// cores, then announce that they go to sleep, look once more, and sleep until a doorbell rings, a
// descriptor is ready or the deadline passes.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "common/clock.h"
#include "common/fd.h"
#include "common/sync.h"
#include "transport/doorbell.h"

namespace tutti {

struct WaitPolicy {
  int polls = 5000;  ///< Attempts without a pause: about 50 us if each rank has a core.
  /// After them, the number of yields, each followed by an attempt, if there are more ranks than
  /// cores.
  int yields = 0;
  /// How long the thread polls on before it sleeps, in a policy without yields.
  std::chrono::microseconds spin_for{300};
};

/// `local_ranks` share `cores` on this machine. `spin_polls` >= 0 overrides the number of polls.
constexpr WaitPolicy wait_policy(int local_ranks, int cores, int spin_polls) {
  WaitPolicy policy;
  if (local_ranks > cores) policy = {20, 300, std::chrono::microseconds{0}};
  if (spin_polls >= 0) policy.polls = spin_polls;
  return policy;
}

/// An epoll over a doorbell and a transport's wait_fds(), in which a thread sleeps. One thread at a
/// time uses it.
class Sleeper {
 public:
  Sleeper();
  Sleeper(const Sleeper&) = delete;
  Sleeper& operator=(const Sleeper&) = delete;

  /// Makes each new event of `fd` wake the sleeper from now on. Events
  /// are edge-triggered: a doorbell is never cleared, so that any number of sleepers may share it,
  /// and a dead peer wakes them once.
  void watch(int fd);
  void forget(int fd) noexcept;

  void sleep_until(TimePoint deadline, const Clock& clock);

 private:
  const Fd epoll_fd_;
};

/// A pool of sleepers that are not in use, all of which watch the same descriptors. Thread-safe.
class SleeperPool {
 public:
  /// Returns a sleeper that watches `bell_fd` and `wait_fds`.
  std::unique_ptr<Sleeper> take(int bell_fd, std::span<const int> wait_fds);
  void give_back(std::unique_ptr<Sleeper> sleeper);

 private:
  sync::Mutex mutex_;
  std::vector<std::unique_ptr<Sleeper>> idle_;  // guarded by mutex_
};

/// Counts this thread among the sleepers of a status page for as long as the object exists.
class Announced {
 public:
  Announced(Sleepers& sleepers, const Doorbell& bell) : sleepers_(sleepers) {
    sleepers_.add();
    bell.sleep_barrier();
  }
  ~Announced() { sleepers_.remove(); }
  Announced(const Announced&) = delete;
  Announced& operator=(const Announced&) = delete;

 private:
  Sleepers& sleepers_;
};

/// Waits until `attempt()` is true. `attempt` does what can be done now, and costs no system call.
/// `look` checks what polling does not see (sockets, whether peers are alive, the deadline), and
/// throws when the wait must end. `sleep(last_look)` announces the sleep and calls `last_look`
/// before it sleeps; it returns true if `last_look` found that the wait has ended. The last look
/// calls `look` as well, because news that another thread has taken since the previous look woke
/// only threads that had announced their sleep.
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
