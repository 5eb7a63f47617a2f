#include "signs.h"

#include <linux/futex.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <climits>
#include <ctime>
#include <new>
#include <stdexcept>
#include <string>

#include "asleep.h"

namespace tutti::test {
namespace {

using Given = std::atomic<std::uint32_t>;
using Clock = std::chrono::steady_clock;

constexpr std::chrono::minutes kPatience{1};

Given& shared() {
  void* const page =
      mmap(nullptr, sizeof(Given), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) throw std::runtime_error("no shared page");
  return *new (page) Given(0);
}

}  // namespace

Sign::Sign() : given_(shared()) {}

Sign::~Sign() { munmap(&given_, sizeof given_); }

void Sign::give() noexcept {
  ++given_;
  syscall(SYS_futex, &given_, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

void Sign::wait(std::uint32_t times) const {
  const auto end = Clock::now() + kPatience;
  for (std::uint32_t given = given_; given < times; given = given_) {
    if (Clock::now() >= end)
      throw std::runtime_error("a sign was given " + std::to_string(given) + " times of " +
                               std::to_string(times) + " in a minute");
    const timespec longest{1, 0};
    syscall(SYS_futex, &given_, FUTEX_WAIT, given, &longest, nullptr, 0);
  }
}

void wait_until_asleep(pid_t thread) {
  const auto end = Clock::now() + kPatience;
  for (;;) {
    const char state = state_of(thread);
    if (state == '\0') throw std::runtime_error("it has ended, and did not sleep");
    if (state == 'S') return;
    if (Clock::now() >= end) throw std::runtime_error("it did not sleep in a minute");
    poll(nullptr, 0, 1);
  }
}

}  // namespace tutti::test
