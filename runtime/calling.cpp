#include "runtime/calling.h"

#include <chrono>

#include <fmt/format.h>

#include <tutti/error.hpp>

#include "common/sync.h"

namespace tutti {

// Returns in a callback, which the thread of the call that is under way may be running.
void Calling::refuse_second_thread(CommunicatorImpl& communicator, std::string_view what, Of of) {
  if (of == Of::usable) communicator.failure().check_usable(what);
  if (communicator.queue().in_callback()) return;
  throw Error(
      ErrorKind::usage,
      fmt::format(
          "{}: another thread is in a call of this communicator, which one thread at a time "
          "may call: give each thread a communicator of its own (dup); planners and Config::select "
          "may call other communicators alone",
          what));
}

void CommunicatorImpl::begin_destruction() {
  if (!parts_.runtime->in_own_process()) return;
  if (!ends_apart()) {
    static_cast<void>(Calling::mark(*this, "destroy", Calling::Of::failed));
    return;
  }
  // destroy() waits for the end of calls, and this is none, so it leaves no mark.
  if (calling_.load(std::memory_order_relaxed))
    throw Error(ErrorKind::usage,
                "destroy: a call of this communicator is under way, and this callback runs in it "
                "or beside it: destroy the communicator when that call has ended");
}

// Returns whether another thread has to destroy the communicator. The destructor waits for the end
// of callbacks, and the background thread would wait for itself to release the communicator.
bool CommunicatorImpl::ends_apart() const noexcept {
  return queue_.in_callback() || parts_.runtime->in_background();
}

void CommunicatorImpl::destroy_apart(CommunicatorImpl* dying) {
  Runtime& runtime = *dying->parts_.runtime;
  runtime.run_apart([dying, &runtime] {
    while (dying->calling_.load(std::memory_order_acquire)) {
      if (!runtime.has_thread()) return destroy_apart(dying);  // the call is below on this stack
      sync::sleep_for(std::chrono::microseconds(100));
    }
    delete dying;
  });
}

}  // namespace tutti
