// Notices that two threads call a communicator at once.
#pragma once

#include <string_view>
#include <type_traits>

#include "runtime/communicator_impl.h"

namespace tutti {

/// Marks a thread as being in a call of a communicator. Calls of two threads at once would mix up
/// their messages, so the later one is `usage`. It costs a load and two stores, and so does not
/// notice threads that begin in the same few nanoseconds.
class Calling {
 public:
  enum class Of {
    usable,  ///< The call throws the communicator's error, if there is one.
    failed,  ///< It can be made after a failure.
  };

  /// `what` is the operation, or a name of the call.
  template <typename What>
  Calling(CommunicatorImpl& communicator, What what, Of of = Of::usable)
      : communicator_(communicator), marked_(mark(communicator, what, of)) {}
  ~Calling() {
    if (marked_) unmark(communicator_);
  }
  Calling(const Calling&) = delete;
  Calling& operator=(const Calling&) = delete;

  /// Returns whether unmark() has to follow. It has not where the call began inside another one,
  /// in a callback: the mark belongs to that one, which may have ended since.
  template <typename What>
  static bool mark(CommunicatorImpl& communicator, What what, Of of = Of::usable) {
    if (communicator.calling_.load(std::memory_order_relaxed)) [[unlikely]] {
      refuse_second_thread(communicator, name_of(what), of);
      return false;
    }
    communicator.calling_.store(true, std::memory_order_relaxed);
    return true;
  }
  static void unmark(CommunicatorImpl& communicator) noexcept {
    communicator.calling_.store(false,
                                std::memory_order_release);  // it may be destroyed after that
  }

 private:
  template <typename What>
  static std::string_view name_of(What what) {
    if constexpr (std::is_convertible_v<What, std::string_view>)
      return what;
    else
      return to_string(what);
  }
  static void refuse_second_thread(CommunicatorImpl& communicator, std::string_view what, Of of);

  CommunicatorImpl& communicator_;
  const bool marked_;
};

}  // namespace tutti
