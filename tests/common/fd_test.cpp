#include "common/fd.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <cstdlib>

namespace tutti {
namespace {

bool is_open(int fd) { return fcntl(fd, F_GETFD) >= 0; }

// Ends the process with 0 if descriptors stay away from the streams that it has closed.
[[noreturn]] void open_without_streams() {
  close(STDIN_FILENO);
  close(STDERR_FILENO);
  const Fd kept(open("/dev/null", O_WRONLY));
  Fd set;
  set.reset(open("/dev/null", O_WRONLY | O_CLOEXEC));
  const bool away = kept.get() > STDERR_FILENO && set.get() > STDERR_FILENO;
  const bool free = !is_open(STDIN_FILENO) && !is_open(STDERR_FILENO);
  const bool same = fcntl(kept.get(), F_GETFD) == 0 && fcntl(set.get(), F_GETFD) == FD_CLOEXEC;
  _exit(away && free && same ? 0 : 1);
}

TEST(Fd, TakesNoNumberOfAStandardStreamThatTheProcessHasClosed) {
  EXPECT_EXIT(open_without_streams(), testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace tutti
