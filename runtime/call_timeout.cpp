// The message about a timeout that no call can have; sends and receives need it without the rest of
// call.cpp.
#include <fmt/format.h>

#include "runtime/call.h"

namespace tutti {

std::string not_a_timeout(std::chrono::milliseconds timeout) {
  return fmt::format("a timeout of {} ms is {}", timeout.count(),
                     timeout.count() < 0 ? "negative" : "more than 24 hours");
}

}  // namespace tutti
