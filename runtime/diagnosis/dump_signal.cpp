#include "runtime/diagnosis/dump_signal.h"

#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>

#include "common/fd.h"
#include "common/sync.h"

namespace tutti {
namespace {

// These are global, since the handler touches them and has no argument.
struct DumpSignal {
  sync::Atomic<std::uint32_t> asked{0};
  sync::Atomic<int> bell{-1};
};
static_assert(sync::Atomic<int>::is_always_lock_free, "a signal handler uses it");
DumpSignal dump_signal;

void ask_for_dump(int) {
  const int saved = errno;
  dump_signal.asked.fetch_add(1);
  const std::uint64_t one = 1;
  // If the bell is full, it has rung.
  [[maybe_unused]] const ssize_t done = write(dump_signal.bell.load(), &one, sizeof one);
  errno = saved;
}

bool is_unhandled(const struct sigaction& action) noexcept {
  return (action.sa_flags & SA_SIGINFO) == 0 &&
         (action.sa_handler == SIG_DFL || action.sa_handler == SIG_IGN);
}

}  // namespace

bool listen_for_dump_signal(std::string_view name) noexcept {
  const int number = name == "USR1" ? SIGUSR1 : SIGUSR2;
  if (dump_signal.bell.load() < 0) {
    const int made = Fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)).release();
    int none = -1;
    if (made >= 0 && !dump_signal.bell.compare_exchange_strong(none, made)) close(made);
    if (dump_signal.bell.load() < 0) return false;
  }
  struct sigaction before {};
  if (sigaction(number, nullptr, &before) != 0) return false;
  if (before.sa_handler == ask_for_dump) return true;
  if (!is_unhandled(before)) return false;
  struct sigaction action {};
  action.sa_handler = ask_for_dump;
  action.sa_flags = SA_RESTART | SA_ONSTACK;
  sigemptyset(&action.sa_mask);
  return sigaction(number, &action, nullptr) == 0;
}

std::uint32_t dumps_asked_for() noexcept { return dump_signal.asked.load(); }

int dump_signal_fd() noexcept { return dump_signal.bell.load(); }

}  // namespace tutti
