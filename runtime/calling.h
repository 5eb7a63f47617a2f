// Notices that two threads call a communicator at once.
#pragma once

#include <string_view>

#include "runtime/communicator_impl.h"

namespace tutti {

/// Marks a thread as being in a call of a communicator. Calls of two threads at once would mix up
/// their messages, so the later one is `usage`. It costs a load and two stores, and so does not
/// notice threads that begin in the same few nanoseconds.
class Calling {
 public:
  /// `what` is the operation.
  template <typename What>
  Calling(CommunicatorImpl& communicator, What what)
      : calling_(communicator.calling_), before_(calling_.load(std::memory_order_relaxed)) {
    if (before_) [[unlikely]]
      refuse_second_thread(communicator, to_string(what));
    calling_.store(true, std::memory_order_relaxed);
  }
  // A call that began inside another one leaves the mark to that one, which may have ended since.
  ~Calling() {
    if (!before_) calling_.store(false, std::memory_order_relaxed);
  }
  Calling(const Calling&) = delete;
  Calling& operator=(const Calling&) = delete;

 private:
  static void refuse_second_thread(CommunicatorImpl& communicator, std::string_view what);

  sync::Atomic<bool>& calling_;
  const bool before_;
};

}  // namespace tutti
