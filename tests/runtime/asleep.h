// Finds out when another thread has gone to sleep.
#pragma once

#include <sched.h>
#include <sys/types.h>

#include <atomic>
#include <fstream>
#include <iterator>
#include <string>

namespace tutti::test {

/// Returns the state of a thread, or of the first thread of a process, in the letters of proc(5):
/// 'S' if it sleeps. Returns 0 if it has ended.
inline char state_of(pid_t thread) {
  std::ifstream file("/proc/" + std::to_string(thread) + "/stat");
  const std::string stat{std::istreambuf_iterator<char>(file), {}};
  const auto name_end = stat.rfind(") ");  // a thread's name may contain any characters
  return name_end == std::string::npos ? '\0' : stat[name_end + 2];
}

/// Returns when `thread`, once it is known, stays asleep (a lock that it waits for on its way is
/// soon free), or when `ended` is true: whether it sleeps.
inline bool falls_asleep(const std::atomic<pid_t>& thread, const std::atomic<bool>& ended) {
  constexpr int kLooks = 500;
  for (int looks = 0; looks < kLooks; sched_yield()) {
    if (ended) return false;
    looks = thread != 0 && state_of(thread) == 'S' ? looks + 1 : 0;
  }
  return true;
}

}  // namespace tutti::test
