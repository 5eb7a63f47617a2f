// Signs, for which tests wait in place of sleeping for a time in which an event has probably
// happened.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>

namespace tutti::test {

/// An event that happens once or several times. It is visible to other threads, and to processes
/// that are forked after it was made. Thread-safe.
class Sign {
 public:
  Sign();
  ~Sign();
  Sign(const Sign&) = delete;
  Sign& operator=(const Sign&) = delete;

  void give() noexcept;
  /// Waits until it was given `times` times. Throws after a minute.
  void wait(std::uint32_t times = 1) const;

 private:
  std::atomic<std::uint32_t>& given_;  // Its page is shared with forked processes.
};

/// Waits until a thread, or the first thread of a process, sleeps in the kernel. If it has given a
/// sign that it is going to wait for something, it waits now. Throws after a minute.
void wait_until_asleep(pid_t thread);

}  // namespace tutti::test
