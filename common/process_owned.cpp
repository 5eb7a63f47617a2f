#include "common/process_owned.h"

#include <fmt/format.h>

#include <tutti/error.hpp>

namespace tutti {

void refuse_other_process(std::string_view what, pid_t owner) {
  throw Error(ErrorKind::usage,
              fmt::format("process {} uses {} of process {}, which it was forked from; fork before "
                          "tutti is used, or make new ones after the fork",
                          getpid(), what, owner));
}

}  // namespace tutti
