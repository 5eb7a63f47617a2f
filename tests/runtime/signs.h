// What tests wait for, in place of a time in which it may have happened.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>

namespace tutti::test {

/// Something that has happened, once or several times. Between threads, and between processes that
/// were forked after it was made. Thread-safe.
class Sign {
 public:
  Sign();
  ~Sign();
  Sign(const Sign&) = delete;
  Sign& operator=(const Sign&) = delete;

  void give() noexcept;
  /// Until it was given so often. Throws after a minute.
  void wait(std::uint32_t times = 1) const;

 private:
  std::atomic<std::uint32_t>& given_;  // in a page that forked processes share
};

/// Until a thread, or a process's first one, sleeps in the kernel: where it has said that it goes
/// on to wait for something, it now does. Throws after a minute.
void wait_until_asleep(pid_t thread);

}  // namespace tutti::test
