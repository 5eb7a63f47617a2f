#include "runtime/runtime.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cassert>
#include <new>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include <tutti/error.hpp>

#include "common/sync.h"
#include "runtime/diagnosis/dump_signal.h"

namespace tutti {
namespace {

// The background thread polls little, because the program's own thread computes meanwhile, and a
// thread that waits for an operation advances it as well.
constexpr WaitPolicy kBackground{20, 50, std::chrono::microseconds{0}};
constexpr std::chrono::hours kUntilPoked{1};
constexpr std::chrono::milliseconds kUntilReleased{1};
constexpr std::chrono::milliseconds kBackgroundProgressEvery{500};
// A dump is one of all communicators, and takes milliseconds for each.
constexpr std::chrono::seconds kBetweenDumps{1};

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

Runtime::Runtime(Config config, std::unique_ptr<Clock> clock, std::unique_ptr<Random> random,
                 Threads threads)
    : threads_(threads),
      config_(std::move(config)),
      clock_(std::move(clock)),
      random_(std::move(random)),
      log_(config_.log_level, config_.log_sink),
      trace_memory_(static_cast<std::size_t>(config_.trace_operations)),
      schedule_files_(config_.schedules),
      alive_(page_wiped_on_fork()) {
  assert(clock_ != nullptr && random_ != nullptr && in_own_process());
  sleeper_.watch(poke_.fd());
  if (config_.trace_signal != "none") listen_for_dump_signal();
  if (has_thread()) start_thread();
}

void Runtime::start_thread() {
  try {
    thread_ = sync::Thread([this] { background(); });
  } catch (const std::system_error& error) {
    forget_page();
    throw Error(
        ErrorKind::unavailable,
        fmt::format("the kernel gives no thread to a rank: {}; raise the limit on processes "
                    "(ulimit -u, pids.max of the control group), or on memory (ulimit -v)",
                    error.what()));
  }
}

Runtime::~Runtime() {
  if (in_own_process()) {
    stop_ = true;
    poke();
    if (has_thread()) thread_.join();
    assert(announced_.empty() && visitors_ == 0 && turns_ == 0);
    const std::lock_guard lock(dump_mutex_);
    if (dump_due_.load() != TimePoint::max()) dump_trace();
  } else {
    // This is a handle of the parent's thread, which this process can neither join nor detach, so
    // it is overwritten.
    new (&thread_) sync::Thread;
  }
  forget_page();
}

void Runtime::forget_page() noexcept {
  munmap(const_cast<std::uint32_t*>(alive_), static_cast<std::size_t>(sysconf(_SC_PAGESIZE)));
}

void Runtime::listen_for_dump_signal() {
  dumps_done_ = dumps_asked_for();
  if (tutti::listen_for_dump_signal(config_.trace_signal))
    sleeper_.watch(dump_signal_fd());
  else
    log_.write(LogLevel::warn, "trace_signal: the program handles SIG{} itself, and keeps it",
               config_.trace_signal);
}

void Runtime::dump_if_asked() noexcept {
  const bool signalled = config_.trace_signal != "none" && dumps_asked_for() != dumps_done_;
  const TimePoint due = dump_due_.load(std::memory_order_relaxed);
  if (!signalled && (due == TimePoint::max() || clock_->now() < due)) return;
  if (signalled) dumps_done_ = dumps_asked_for();
  const std::lock_guard lock(dump_mutex_);
  dump_trace();
}

void Runtime::dump_after_failure() noexcept {
  if (config_.trace_dir.empty()) return;
  const std::lock_guard lock(dump_mutex_);
  if (clock_->now() >= dump_again_) return dump_trace();
  dump_due_.store(dump_again_, std::memory_order_seq_cst);
  poke();
}

// The caller holds dump_mutex_.
void Runtime::dump_trace() noexcept {
  dump_due_.store(TimePoint::max(), std::memory_order_relaxed);
  dump_again_ = clock_->now() + kBetweenDumps;
  if (config_.trace_dir.empty()) return;
  try {
    const std::string path = trace_memory_.dump_into(config_.trace_dir);
    log_.write(LogLevel::info, "the last operations are in {}", path);
  } catch (const std::exception& error) {
    try {
      log_.write(LogLevel::warn, "the last operations were not dumped: {}", error.what());
    } catch (const std::exception&) {  // no memory for the line
    }
  }
}

void Runtime::add(Progressable& progressable) {
  {
    const std::lock_guard lock(newcomers_mutex_);
    assert(std::find(newcomers_.begin(), newcomers_.end(), &progressable) == newcomers_.end());
    sleeper_.watch(progressable.doorbell().fd());
    for (const int fd : progressable.wait_fds()) sleeper_.watch(fd);
    newcomers_.push_back(&progressable);
    has_newcomers_ = true;
  }
  poke();
}

void Runtime::add_background(Progressable& progressable) {
  {
    const std::lock_guard lock(newcomers_mutex_);
    new_background_.push_back(&progressable);
    has_newcomers_ = true;
  }
  poke();
}

void Runtime::remove(Progressable& progressable) noexcept {
  const Visit visit(*this);
  const std::lock_guard lock(newcomers_mutex_);
  std::erase(background_, &progressable);
  std::erase(new_background_, &progressable);
  if (std::erase(progressables_, &progressable) + std::erase(newcomers_, &progressable) == 0)
    return;
  const auto forget = [&](int fd) {
    const auto watches = [fd](const Progressable* other) {
      const std::span<const int> fds = other->wait_fds();
      return other->doorbell().fd() == fd || std::find(fds.begin(), fds.end(), fd) != fds.end();
    };
    if (std::none_of(progressables_.begin(), progressables_.end(), watches) &&
        std::none_of(newcomers_.begin(), newcomers_.end(), watches))
      sleeper_.forget(fd);
  };
  forget(progressable.doorbell().fd());
  for (const int fd : progressable.wait_fds()) forget(fd);
}

// Moves newcomers into progressables_ and background_; returns whether there were any. It must not
// be called while a loop goes through these lists, and callbacks run in such loops. A newcomer that
// is added after asleep_ was set pokes the background thread, so it is never overlooked.
bool Runtime::take_in_newcomers() noexcept {
  if (!has_newcomers_) return false;
  const std::lock_guard lock(newcomers_mutex_);
  try {
    progressables_.reserve(progressables_.size() + newcomers_.size());
    announced_.reserve(progressables_.size() + newcomers_.size());
    background_.reserve(background_.size() + new_background_.size());
  } catch (const std::bad_alloc&) {  // The next round tries again; threads that wait advance the
                                     // newcomers meanwhile.
    return false;
  }
  progressables_.insert(progressables_.end(), newcomers_.begin(), newcomers_.end());
  background_.insert(background_.end(), new_background_.begin(), new_background_.end());
  assert(announced_.capacity() >= progressables_.size() && "sleep_all() allocates nothing");
  newcomers_.clear();
  new_background_.clear();
  has_newcomers_ = false;
  return true;
}

void Runtime::step() {
  assert(!has_thread());
  if (turns_ == 0) run_tasks();
  dump_if_asked();
  const Turn turn(*this);
  take_in_newcomers();
  if (!progressables_.empty()) {
    Progressable& drawn = *progressables_[random_->next() % progressables_.size()];
    constexpr std::uint64_t kStepsPerLook = 4;
    if (drawn.pending()) {
      drawn.advance_pending();
      if (random_->next() % kStepsPerLook == 0 && drawn.pending()) drawn.look_pending();
    }
  }
  background_progress_all();
}

void Runtime::run_tasks() {
  assert(!has_thread() && turns_ == 0);
  for (const auto& task : std::exchange(tasks_, {})) task();
}

void Runtime::run_apart(std::function<void()> task) {
  assert(task);
  if (has_thread())
    sync::Thread(std::move(task)).detach();
  else
    tasks_.push_back(std::move(task));
}

Runtime::Visit::Visit(Runtime& runtime) : runtime_(runtime) {
  ++runtime_.visitors_;
  runtime_.poke();
  lock_ = std::unique_lock(runtime_.mutex_);
}

Runtime::Visit::~Visit() {
  assert(runtime_.visitors_ > 0 && lock_.owns_lock());
  --runtime_.visitors_;
  lock_.unlock();
  runtime_.visitors_.notify_one();
}

bool Runtime::advance_all() {
  const bool has_new = take_in_newcomers();
  bool pending = false;
  owned_elsewhere_ = false;
  for (Progressable* progressable : progressables_)
    if (progressable->pending()) {
      if (!progressable->advance_pending()) owned_elsewhere_ = true;
      pending = pending || progressable->pending();
    }
  return !pending || stop_ || visitors_ > 0 || has_new;
}

void Runtime::look_all() {
  dump_if_asked();
  for (Progressable* progressable : progressables_)
    if (progressable->pending()) progressable->look_pending();
  background_progress_all();
}

void Runtime::background_progress_all() {
  if (background_.empty() || clock_->now() < next_background_progress()) return;
  for (Progressable* progressable : background_) progressable->background_progress();
  background_progress_at_ = clock_->now();
}

TimePoint Runtime::next_background_progress() const noexcept {
  return background_.empty() ? TimePoint::max()
                             : background_progress_at_ + kBackgroundProgressEvery;
}

// The earliest deadline of those communicators whose sleep sleep_all() has announced.
TimePoint Runtime::first_deadline() const {
  TimePoint first = TimePoint::max();
  for (const Progressable* progressable : announced_)
    first = std::min(first, progressable->next_deadline());
  return first;
}

// Sets asleep_, announces the sleep on the status pages of all communicators that have operations
// pending, looks once more, and sleeps. The sleep is not announced for a communicator that has
// nothing pending, so its peers do not ring the doorbell when they send; if the communicator queues
// an operation after that, its poke() ends the sleep. Where the last look found an engine in the
// hands of another thread, which may be planning a call, nobody has seen what has come meanwhile:
// the sleep is short then.
bool Runtime::sleep_all() {
  assert(announced_.empty() && !asleep_);
  asleep_ = true;
  for (Progressable* progressable : progressables_)
    if (progressable->pending()) announced_.push_back(progressable);
  for (Progressable* progressable : announced_) {
    progressable->sleepers().add();
    progressable->arm();
  }
  poke_.sleep_barrier();
  look_all();  // The last look before a sleep also takes news of peers; wait() gives the reason.
  const bool ended = advance_all();
  if (!ended) {
    const Nanoseconds most = owned_elsewhere_ ? Nanoseconds(kUntilReleased) : kUntilPoked;
    const TimePoint until = std::min(
        {clock_->now() + most, next_background_progress(), first_deadline(), dump_due_.load()});
    wakes_at_.store(until, std::memory_order_seq_cst);
    // The deadlines are read once more, since another thread may have begun a call before it could
    // see wakes_at_ and compare.
    sleeper_.sleep_until(std::min(until, first_deadline()), *clock_);
    wakes_at_.store(TimePoint::min(), std::memory_order_relaxed);
  }
  asleep_ = false;
  for (Progressable* progressable : announced_) {
    progressable->disarm();
    progressable->sleepers().remove();
  }
  announced_.clear();
  return ended;
}

bool Runtime::anything_pending() {
  take_in_newcomers();
  return std::any_of(progressables_.begin(), progressables_.end(),
                     [](const Progressable* progressable) { return progressable->pending(); });
}

// Returns whether an operation is pending for which no thread waits.
bool Runtime::anything_unattended() const noexcept {
  return std::any_of(progressables_.begin(), progressables_.end(),
                     [](const Progressable* one) { return one->pending() && !one->awaited(); });
}

// Naps, if that is how the thread rests now; returns false otherwise. Whoever wants mutex_, or the
// end of the thread, waits for the end of the nap.
bool Runtime::nap() {
  take_in_newcomers();
  const bool needed = anything_unattended();
  const auto length = naps_.next(needed, poked_.exchange(false, std::memory_order_relaxed));
  if (length == Naps::Length{0}) return false;
  if (needed) advance_all();
  sync::sleep_for(length);
  dump_if_asked();
  background_progress_all();
  return true;
}

// Sleeps while nothing is pending.
void Runtime::doze() {
  assert(!asleep_);
  poked_.store(false, std::memory_order_relaxed);
  asleep_ = true;
  dump_if_asked();
  if (!anything_pending() && !stop_ && visitors_ == 0)
    sleeper_.sleep_until(
        std::min({clock_->now() + kUntilPoked, next_background_progress(), dump_due_.load()}),
        *clock_);
  asleep_ = false;
  background_progress_all();
  if (poked_.load(std::memory_order_relaxed)) naps_.woken(anything_unattended());
}

void Runtime::background() noexcept {
  std::unique_lock lock(mutex_);
  while (!stop_) {
    while (const int visitors = visitors_) {
      lock.unlock();
      visitors_.wait(visitors);
      lock.lock();
    }
    if (nap()) continue;
    if (!anything_pending())
      doze();
    else
      wait(
          kBackground, *clock_, [this] { return advance_all(); }, [this] { look_all(); },
          [this](auto&&) { return sleep_all(); });
  }
}

}  // namespace tutti
