#include "runtime/calling.h"

#include <fmt/format.h>

#include <tutti/error.hpp>

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
  if (parts_.runtime->in_own_process())
    static_cast<void>(Calling::mark(*this, "destroy", Calling::Of::failed));
}

}  // namespace tutti
