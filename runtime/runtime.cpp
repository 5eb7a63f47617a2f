#include "runtime/runtime.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <new>

#include <tutti/error.hpp>

namespace tutti {
namespace {

// Gentle: the program's own thread computes meanwhile, and whoever waits for the work advances it
// too.
constexpr WaitPolicy kBackground{20, 50, std::chrono::microseconds{0}};
constexpr std::chrono::hours kUntilPoked{1};
constexpr std::chrono::milliseconds kAttendEvery{500};

volatile std::uint32_t* page_wiped_on_fork() {
  const auto bytes = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  void* page = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED)
    throw Error(ErrorKind::unavailable, "no memory for a runtime (mmap of one page)");
  madvise(page, bytes, MADV_WIPEONFORK);
  auto* word = static_cast<std::uint32_t*>(page);
  *word = 1;
  return word;
}

}  // namespace

Runtime::Runtime(Config config)
    : Runtime(std::move(config), std::make_unique<SteadyClock>(),
              std::make_unique<SystemRandom>()) {}

Runtime::Runtime(Config config, std::unique_ptr<Clock> clock, std::unique_ptr<Random> random)
    : config_(std::move(config)),
      clock_(std::move(clock)),
      random_(std::move(random)),
      log_(config_.log_level, config_.log_sink),
      alive_(page_wiped_on_fork()) {
  sleeper_.watch(poke_.fd());
  thread_ = std::thread([this] { background(); });
}

Runtime::~Runtime() {
  if (in_own_process()) {
    stop_ = true;
    poke();
    thread_.join();
  } else {
    // A handle of the parent's thread, which this process can neither join nor detach: forget it.
    new (&thread_) std::thread;
  }
  munmap(const_cast<std::uint32_t*>(alive_), static_cast<std::size_t>(sysconf(_SC_PAGESIZE)));
}

void Runtime::add(Advanced& advanced) {
  {
    const std::lock_guard lock(arrivals_mutex_);
    sleeper_.watch(advanced.doorbell().fd());
    sleeper_.watch(advanced.wait_fd());
    arrivals_.push_back(&advanced);
    anybody_arrived_ = true;
  }
  poke();
}

void Runtime::add_attended(Advanced& attended) {
  {
    const std::lock_guard lock(arrivals_mutex_);
    attended_arrivals_.push_back(&attended);
    anybody_arrived_ = true;
  }
  poke();
}

void Runtime::remove(Advanced& advanced) noexcept {
  const Visit visit(*this);
  const std::lock_guard lock(arrivals_mutex_);
  std::erase(attended_, &advanced);
  std::erase(attended_arrivals_, &advanced);
  if (std::erase(advanced_, &advanced) + std::erase(arrivals_, &advanced) == 0) return;
  const auto family = [&](const Advanced* other) {
    return other->doorbell().fd() == advanced.doorbell().fd();
  };
  if (std::any_of(advanced_.begin(), advanced_.end(), family)) return;
  if (std::any_of(arrivals_.begin(), arrivals_.end(), family)) return;
  sleeper_.forget(advanced.doorbell().fd());
  sleeper_.forget(advanced.wait_fd());
}

// Moves newcomers into advanced_ and attended_; returns whether there were any. It must not be
// called while a loop goes through these lists, and callbacks run in such loops. A newcomer that is
// added after asleep_ was set pokes the background thread, so it is never overlooked.
bool Runtime::take_in_arrivals() noexcept {
  if (!anybody_arrived_) return false;
  const std::lock_guard lock(arrivals_mutex_);
  try {
    advanced_.reserve(advanced_.size() + arrivals_.size());
    announced_.reserve(advanced_.size() + arrivals_.size());
    attended_.reserve(attended_.size() + attended_arrivals_.size());
  } catch (const std::bad_alloc&) {  // The next round tries again; waiters advance them meanwhile.
    return false;
  }
  advanced_.insert(advanced_.end(), arrivals_.begin(), arrivals_.end());
  attended_.insert(attended_.end(), attended_arrivals_.begin(), attended_arrivals_.end());
  arrivals_.clear();
  attended_arrivals_.clear();
  anybody_arrived_ = false;
  return true;
}

Runtime::Visit::Visit(Runtime& runtime) : runtime_(runtime) {
  ++runtime_.visitors_;
  runtime_.poke();
  lock_ = std::unique_lock(runtime_.mutex_);
}

Runtime::Visit::~Visit() {
  --runtime_.visitors_;
  lock_.unlock();
  runtime_.visitors_.notify_one();
}

bool Runtime::advance_all() {
  const bool has_new = take_in_arrivals();
  bool pending = false;
  for (Advanced* advanced : advanced_)
    if (advanced->pending()) {
      advanced->advance_pending();
      pending = pending || advanced->pending();
    }
  return !pending || stop_ || visitors_ > 0 || has_new;
}

void Runtime::look_all() {
  for (Advanced* advanced : advanced_)
    if (advanced->pending()) advanced->look_pending();
  attend_all();
}

void Runtime::attend_all() {
  if (attended_.empty() || clock_->now() < next_attendance()) return;
  for (Advanced* attended : attended_) attended->attend();
  attended_at_ = clock_->now();
}

TimePoint Runtime::next_attendance() const noexcept {
  return attended_.empty() ? TimePoint::max() : attended_at_ + kAttendEvery;
}

// The earliest deadline of those communicators whose sleep sleep_all() has announced.
TimePoint Runtime::first_deadline() const {
  TimePoint first = TimePoint::max();
  for (const Advanced* advanced : announced_) first = std::min(first, advanced->next_deadline());
  return first;
}

// Announces the sleep on the boards of all that have operations pending, looks once more, sleeps.
// asleep_ is set first. A communicator with nothing pending when it is asked is not announced, so
// its peers ring for nothing that they send; if it queues an operation after that, its poke ends
// the sleep.
bool Runtime::sleep_all() {
  asleep_ = true;
  for (Advanced* advanced : advanced_)
    if (advanced->pending()) announced_.push_back(advanced);
  for (Advanced* advanced : announced_) {
    advanced->sleepers().fetch_add(1);
    advanced->arm();
  }
  poke_.sleep_barrier();
  look_all();  // The last look before a sleep also takes news; wait() gives the reason.
  const bool ended = advance_all();
  if (!ended) {
    const TimePoint until =
        std::min({clock_->now() + kUntilPoked, next_attendance(), first_deadline()});
    wakes_at_.store(until, std::memory_order_seq_cst);
    // The deadlines are read once more, since another thread may have begun a call before it could
    // see wakes_at_ and compare.
    sleeper_.sleep_until(std::min(until, first_deadline()), *clock_);
    wakes_at_.store(TimePoint::min(), std::memory_order_relaxed);
  }
  asleep_ = false;
  for (Advanced* advanced : announced_) {
    advanced->disarm();
    advanced->sleepers().fetch_sub(1);
  }
  announced_.clear();
  return ended;
}

bool Runtime::anything_pending() {
  take_in_arrivals();
  return std::any_of(advanced_.begin(), advanced_.end(),
                     [](const Advanced* advanced) { return advanced->pending(); });
}

// With nothing pending.
void Runtime::doze() {
  asleep_ = true;
  if (!anything_pending() && !stop_ && visitors_ == 0)
    sleeper_.sleep_until(std::min(clock_->now() + kUntilPoked, next_attendance()), *clock_);
  asleep_ = false;
  attend_all();
}

void Runtime::background() noexcept {
  std::unique_lock lock(mutex_);
  while (!stop_) {
    while (const int visitors = visitors_) {
      lock.unlock();
      visitors_.wait(visitors);
      lock.lock();
    }
    if (!anything_pending())
      doze();
    else
      wait(
          kBackground, *clock_, [this] { return advance_all(); }, [this] { look_all(); },
          [this](auto&&) { return sleep_all(); });
  }
}

}  // namespace tutti
