#include "common/fork_guard.h"

#include <fmt/format.h>

#include <tutti/error.hpp>

namespace tutti {

void ForkGuard::refuse(std::string_view what) const {
  throw Error(ErrorKind::usage,
              fmt::format("process {} uses {} of process {}, which it was forked from; make its "
                          "own after the fork, or fork before tutti is used",
                          getpid(), what, owner_));
}

}  // namespace tutti
