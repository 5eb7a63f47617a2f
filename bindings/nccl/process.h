// Keeps values that belong to the process, since NCCL's interface has no handle for them.
#pragma once

#include <pthread.h>

#include <mutex>

namespace tutti::nccl {

/// Holds a value and its lock.
template <typename T>
struct Locked {
  std::mutex mutex;
  T value{};  ///< Guarded by `mutex`.
};

/// Returns the one Locked<T> of the process. It is never destroyed, so that threads may use it
/// while the process ends. fork() waits for its lock, so that the child finds it unlocked and the
/// value whole. No thread holds two of these locks at a time.
template <typename T>
Locked<T>& of_process() {
  static auto* const its = [] {
    auto* const made = new Locked<T>;
    pthread_atfork([] { of_process<T>().mutex.lock(); }, [] { of_process<T>().mutex.unlock(); },
                   [] { of_process<T>().mutex.unlock(); });
    return made;
  }();
  return *its;
}

}  // namespace tutti::nccl
