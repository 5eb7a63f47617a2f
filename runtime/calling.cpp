#include "runtime/calling.h"

#include <fmt/format.h>

#include <tutti/error.hpp>

namespace tutti {

// Returns in a callback, which the thread of the call that is under way may be running.
void Calling::refuse_second_thread(CommunicatorImpl& communicator, std::string_view what) {
  communicator.failure().check_usable(what);
  if (communicator.queue().in_callback()) return;
  throw Error(
      ErrorKind::usage,
      fmt::format(
          "{}: another thread is in a call of this communicator, which one thread at a time "
          "may call: give each thread a communicator of its own (dup)",
          what));
}

}  // namespace tutti
