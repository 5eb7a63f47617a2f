#include "common/descriptors.h"

#include <fmt/format.h>
#include <sys/epoll.h>
#include <sys/resource.h>

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <cstring>

#include <tutti/error.hpp>

namespace tutti {
namespace {

// The soft limit is raised to this number at most. A hard limit may be 10^9, and programs that
// close every possible descriptor before they start another program would then run for minutes.
constexpr rlim_t kMost = 1 << 20;

}  // namespace

std::size_t allow_descriptors(std::size_t wanted) noexcept {
  rlimit files{};
  if (getrlimit(RLIMIT_NOFILE, &files) != 0) return wanted;
  const rlim_t most = std::min(files.rlim_max, std::max<rlim_t>(kMost, wanted));
  if (files.rlim_cur >= wanted || files.rlim_cur >= most) return files.rlim_cur;
  const rlimit raised{most, files.rlim_max};
  return setrlimit(RLIMIT_NOFILE, &raised) == 0 ? most : files.rlim_cur;
}

void need_descriptors(std::size_t wanted, std::size_t least, const std::string& who,
                      const std::string& what) {
  assert(least <= wanted);
  const std::size_t allowed = allow_descriptors(wanted);
  if (allowed >= least) return;
  throw Error(ErrorKind::unavailable,
              fmt::format("{} needs at least {} descriptors {}, and may have {}: too many open "
                          "files; raise the hard limit of this machine (`ulimit -Hn`, "
                          "LimitNOFILE= of a service, `--ulimit nofile=` of a container), or start "
                          "fewer ranks on it",
                          who, least, what, allowed));
}

Fd make_epoll() {
  Fd epoll(epoll_create1(EPOLL_CLOEXEC));
  if (!epoll)
    throw Error(ErrorKind::unavailable, fmt::format("no epoll: {}", std::strerror(errno)));
  return epoll;
}

}  // namespace tutti
