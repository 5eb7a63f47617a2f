#include "tests/interleaving/scheduler.h"

#include <fmt/format.h>
#include <linux/futex.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cassert>
#include <climits>
#include <cstring>
#include <exception>
#include <thread>

#if defined(__SANITIZE_ADDRESS__)
#define TUTTI_STACKS
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define TUTTI_STACKS
#endif
#endif
#ifdef TUTTI_STACKS
#include <sanitizer/common_interface_defs.h>
#endif

namespace tutti::interleaving {
namespace {

using sync::Kind;

constexpr std::uint64_t kLongestStreak = 1000;  // a thread that polls so long lets others go on
constexpr std::uint64_t kMostSpent = 5000;      // points with the same priority
constexpr std::uint64_t kPollEvery = 64;        // steps between two looks at descriptors
constexpr std::size_t kMostExplained = 30;      // a run of more switches is explained at its end
// A wait polls for 300 us of its clock before it sleeps: no time at all here.
constexpr std::chrono::microseconds kTick{400};
constexpr const char* kKinds[] = {"load",
                                  "store",
                                  "exchange",
                                  "compare_exchange",
                                  "fetch_add",
                                  "fetch_sub",
                                  "fetch_and",
                                  "fetch_or",
                                  "fetch_xor",
                                  "fence",
                                  "compiler_fence",
                                  "wait of an atomic",
                                  "notify of an atomic",
                                  "lock",
                                  "try_lock",
                                  "unlock",
                                  "wait of a condition",
                                  "notify of a condition",
                                  "start of a thread",
                                  "join of a thread",
                                  "signal of an event",
                                  "wait for an event",
                                  "yield",
                                  "sleep"};

const char* name_of(Kind kind) { return kKinds[static_cast<std::size_t>(kind)]; }

void futex_wait(std::uint32_t& word, std::uint32_t value) {
  syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, value, nullptr, nullptr, 0);
}
void futex_set(std::uint32_t& word) {
  std::atomic_ref(word).store(1, std::memory_order_release);
  syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
}
void futex_take(std::uint32_t& word) {
  while (std::atomic_ref(word).exchange(0, std::memory_order_acquire) == 0) futex_wait(word, 0);
}

void write_stack(const std::string& heading) {
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, heading.data(), heading.size());
#ifdef TUTTI_STACKS
  __sanitizer_print_stack_trace();
#endif
}

}  // namespace

std::string_view to_string(Policy policy) {
  constexpr std::string_view kNames[] = {"calm", "random", "priorities"};
  return kNames[static_cast<std::size_t>(policy)];
}

std::string_view to_string(Ending ending) {
  constexpr std::string_view kNames[] = {"crash",      "no failure", "deadlock",
                                         "step limit", "exception",  "check"};
  return kNames[static_cast<std::size_t>(ending)];
}

/// A thread of the run.
struct Scheduler::Strand {
  enum class State { ready, waiting, ended };

  std::uint32_t number = 0;
  State state = State::ready;
  std::uint32_t points = 0;
  std::uint64_t spent = 0;  // points since its priority was lowered
  std::int64_t priority = 0;
  std::thread body;  // of a strand that run() has started
  // A strand that waits.
  Kind kind = Kind::load;
  const void* address = nullptr;
  TimePoint deadline = TimePoint::max();
  int epoll_fd = -1;
  std::uint64_t since = 0;
  bool timed_out = false;
  // Its thread waits here for its turn.
  std::uint32_t turn = 0;  // futex: 1 where it may go on, or shall write its stack
  std::atomic<bool> begun{false};
  std::atomic<bool> dump{false};
};

namespace {
thread_local void* here = nullptr;  // the Strand of this thread
}

Scheduler::Scheduler(const RunPlan& plan, RunRecord& record)
    : plan_(plan), record_(record), random_(plan.seed), scenario_random_(mix(plan.seed)) {
  record_.seed = plan.seed;
  record_.policy = plan.policy;
  record_.ending = Ending::running;
  record_.steps = record_.hash = record_.switches = 0;
  record_.text[0] = '\0';
  if (plan.follow != nullptr)
    for (const Switch& each : *plan.follow) follow_[{each.from, each.at}] = each.to;
  one_in_ = std::uint64_t{2} << random_.next() % 8;
  if (plan.policy != Policy::priorities) return;
  constexpr std::size_t kMostChanges = 6;
  for (std::size_t left = random_.next() % kMostChanges + 1; left > 0; --left)
    changes_.insert(random_.next() % (plan.usual_steps + plan.usual_steps / 4 + 1));
}

Scheduler::~Scheduler() = default;

std::uint32_t Scheduler::self() const noexcept { return static_cast<const Strand*>(here)->number; }

Scheduler::Strand& Scheduler::add() {
  Strand& strand = *strands_.emplace_back(std::make_unique<Strand>());
  strand.number = static_cast<std::uint32_t>(strands_.size() - 1);
  strand.priority = static_cast<std::int64_t>(random_.next() >> 2) + 1;
  return strand;
}

void Scheduler::run(std::vector<std::function<void()>> bodies) {
  assert(!bodies.empty() && strands_.empty());
  sync::install(this);
  for (const auto& body : bodies) {
    Strand& strand = add();
    strand.body = std::thread([this, &strand, &body] { run_body(strand, body); });
  }
  running_ = strands_.front().get();
  hand_over(*running_);
  futex_take(all_ended_);
  for (const auto& strand : strands_)
    if (strand->body.joinable()) strand->body.join();
  sync::install(nullptr);
  record_.ending = Ending::done;
}

void Scheduler::run_body(Strand& strand, const std::function<void()>& body) {
  const sync::Known known;
  begin(reinterpret_cast<Record>(&strand));
  try {
    body();
  } catch (const std::exception& thrown) {
    fail(Ending::exception, fmt::format("thread {} threw: {}", strand.number, thrown.what()));
  }
  end(reinterpret_cast<Record>(&strand));
}

void Scheduler::fail(Ending ending, const std::string& why) {
  const sync::Unknown unknown;
  const std::string text = why + "\n" + who_waits();
  const std::size_t bytes = std::min(text.size(), record_.text.size() - 1);
  std::memcpy(record_.text.data(), text.data(), bytes);
  record_.text[bytes] = '\0';
  record_.ending = ending;
  if (plan_.explain) dump_stacks();
  _exit(kFailed);
}

TimePoint Scheduler::read_clock() noexcept {
  return sync::controller() == this ? now_ += kTick : now_;
}

// The points of threads.

void Scheduler::point(Kind kind, const void*, std::memory_order) {
  if (kind == Kind::compiler_fence) return;
  step(kind, true);
  // The event is signalled before any other thread goes on.
  if (kind == Kind::signal_event) descriptors_old_ = true;
}

void Scheduler::yield() { step(Kind::yield, true); }

void Scheduler::sleep_for(std::chrono::nanoseconds time) {
  block_until(Kind::sleep, nullptr, now_ + time);
}

void Scheduler::block(Kind kind, const void* address) {
  block_until(kind, address, TimePoint::max());
}

bool Scheduler::block_until(Kind kind, const void* address, TimePoint deadline) {
  Strand& strand = *static_cast<Strand*>(here);
  strand.state = Strand::State::waiting;
  strand.kind = kind;
  strand.address = address;
  strand.deadline = deadline;
  strand.since = ++waits_;
  strand.timed_out = false;
  step(kind, false);
  return !strand.timed_out;
}

void Scheduler::wake(Kind kind, const void* address, bool all) {
  Strand* first = nullptr;
  for (const auto& strand : strands_) {
    if (strand->state != Strand::State::waiting || strand->kind != kind ||
        strand->address != address)
      continue;
    if (all)
      strand->state = Strand::State::ready;
    else if (first == nullptr || strand->since < first->since)
      first = strand.get();
  }
  if (first != nullptr) first->state = Strand::State::ready;
}

void Scheduler::await_event(int epoll_fd, std::chrono::milliseconds time) {
  step(Kind::await_event, true);
  Strand& strand = *static_cast<Strand*>(here);
  strand.epoll_fd = epoll_fd;
  descriptors_old_ = true;
  block_until(Kind::await_event, nullptr, time.count() > 0 ? now_ + time : now_);
  strand.epoll_fd = -1;
}

sync::Controller::Record Scheduler::starting() { return reinterpret_cast<Record>(&add()); }

// A record is the address of a strand, because a thread that begins runs beside the others.
Scheduler::Strand& Scheduler::strand_of(Record record) {
  return *reinterpret_cast<Strand*>(record);
}

void Scheduler::started(Record) { step(Kind::thread_start, true); }

void Scheduler::not_started(Record record) { strand_of(record).state = Strand::State::ended; }

void Scheduler::begin(Record record) {
  Strand& strand = strand_of(record);
  here = &strand;
  await_turn(strand);
}

void Scheduler::end(Record record) { end_strand(strand_of(record)); }

void Scheduler::join(Record record) {
  Strand& other = strand_of(record);
  if (other.state != Strand::State::ended) block(Kind::thread_join, &other);
}

void Scheduler::end_strand(Strand& strand) {
  ++strand.points;
  strand.state = Strand::State::ended;
  wake(Kind::thread_join, &strand, true);
  here = nullptr;
  if (std::all_of(strands_.begin(), strands_.end(),
                  [](const auto& each) { return each->state == Strand::State::ended; }))
    return futex_set(all_ended_);
  running_ = &strand;
  Strand& next = next_strand(Kind::thread_join, false);
  running_ = &next;
  hand_over(next);
}

// The choice of the next thread.

void Scheduler::step(Kind kind, bool may_stay) {
  Strand& strand = *static_cast<Strand*>(here);
  assert(running_ == &strand && "one thread runs at a time");
  ++strand.points;
  if (calm_ == 0) ++record_.steps;
  if (++steps_ > plan_.step_limit)
    fail(Ending::step_limit, fmt::format("{} steps and no end", plan_.step_limit));
  Strand& next = next_strand(kind, may_stay);
  record_.hash = mix(record_.hash ^ (static_cast<std::uint64_t>(kind) << 32 | next.number));
  if (&next == &strand) return;
  switch_to(next, kind);
}

void Scheduler::switch_to(Strand& next, Kind kind) {
  Strand& strand = *running_;
  if (plan_.explain && follow_.size() <= kMostExplained)
    write_stack(fmt::format("\nThread {} stops at its point {} ({}), thread {} goes on:\n",
                            strand.number, strand.points, name_of(kind), next.number));
  running_ = &next;
  hand_over(next);
  await_turn(strand);
}

Scheduler::Strand& Scheduler::next_strand(Kind kind, bool may_stay) {
  if (descriptors_old_ || steps_ % kPollEvery == 0) poll_descriptors();
  for (;;) {
    find_ready();
    if (!ready_.empty()) break;
    poll_descriptors();
    find_ready();
    if (!ready_.empty()) break;
    if (!advance_time() && !kernel_wakes_one()) report_deadlock();
  }
  Strand& next = choose(ready_, kind, may_stay);
  streak_ = &next == running_ && ready_.size() > 1 ? streak_ + 1 : 0;
  if (&next != running_) {
    if (record_.switches < RunRecord::kSwitches)
      record_.taken[record_.switches] = {running_->number, running_->points, next.number};
    ++record_.switches;
  }
  return next;
}

void Scheduler::find_ready() {
  ready_.clear();
  for (const auto& strand : strands_) {
    if (strand->state == Strand::State::waiting && strand->deadline <= now_) {
      strand->state = Strand::State::ready;
      strand->timed_out = true;
    }
    if (strand->state == Strand::State::ready) ready_.push_back(strand.get());
  }
}

void Scheduler::poll_descriptors() {
  descriptors_old_ = false;
  for (const auto& strand : strands_) {
    if (strand->state != Strand::State::waiting || strand->kind != Kind::await_event) continue;
    std::array<epoll_event, 8> events;
    if (epoll_wait(strand->epoll_fd, events.data(), events.size(), 0) > 0)
      strand->state = Strand::State::ready;
  }
}

// The kernel may need some time for bytes that a thread wrote to a socket. Returns whether a
// descriptor for which a thread waits has an event in a tenth of a second.
bool Scheduler::kernel_wakes_one() {
  constexpr int kMilliseconds = 100;
  std::vector<pollfd> descriptors;
  for (const auto& strand : strands_)
    if (strand->state == Strand::State::waiting && strand->kind == Kind::await_event)
      descriptors.push_back({strand->epoll_fd, POLLIN, 0});
  return !descriptors.empty() && poll(descriptors.data(), descriptors.size(), kMilliseconds) > 0;
}

bool Scheduler::advance_time() {
  TimePoint first = TimePoint::max();
  for (const auto& strand : strands_)
    if (strand->state == Strand::State::waiting) first = std::min(first, strand->deadline);
  if (first == TimePoint::max() || first - now_ > plan_.patience) return false;
  now_ = std::max(now_, first);
  return true;
}

Scheduler::Strand* Scheduler::followed(const std::vector<Strand*>& ready) const {
  const auto found = follow_.find({running_->number, running_->points});
  if (found == follow_.end()) return nullptr;
  for (Strand* each : ready)
    if (each->number == found->second) return each;
  return nullptr;
}

Scheduler::Strand& Scheduler::choose(const std::vector<Strand*>& ready, Kind kind, bool may_stay) {
  const bool gives_way = kind == Kind::yield || streak_ >= kLongestStreak;
  const bool stays = may_stay && !gives_way;
  const auto next_one = [&]() -> Strand& {  // the next ready one after the one that runs
    for (Strand* each : ready)
      if (each->number > running_->number) return *each;
    return *ready.front();
  };
  if (plan_.follow != nullptr) {
    if (Strand* const other = followed(ready)) return *other;
    // Where no switch was recorded, the thread went on, also from a wait that had ended already.
    const bool can_stay = running_->state == Strand::State::ready;
    return can_stay && !gives_way ? *running_ : next_one();
  }
  if (calm_ > 0 || plan_.policy == Policy::calm) return stays ? *running_ : next_one();
  if (plan_.policy == Policy::priorities) return choose_by_priority(ready, gives_way);
  if (stays && random_.next() % one_in_ != 0) return *running_;
  const bool is_ready = running_->state == Strand::State::ready;
  if (ready.size() == 1) return *ready.front();
  Strand* other = ready[random_.next() % (ready.size() - (is_ready ? 1 : 0))];
  if (is_ready && other == running_) other = ready.back();
  return *other;
}

Scheduler::Strand& Scheduler::choose_by_priority(const std::vector<Strand*>& ready,
                                                 bool gives_way) {
  // Each change gives the lowest priority so far, and so does giving way. Threads that wake each
  // other again and again give way, too, since those below them would never go on otherwise.
  gives_way = changes_.erase(record_.steps) > 0 || gives_way;
  if (gives_way || ++running_->spent >= kMostSpent) {
    running_->priority = --lowest_;
    running_->spent = 0;
  }
  return **std::max_element(ready.begin(), ready.end(), [](const Strand* a, const Strand* b) {
    return a->priority < b->priority;
  });
}

// Threads wait here for their turn.

void Scheduler::hand_over(Strand& next) { futex_set(next.turn); }

void Scheduler::await_turn(Strand& strand) {
  strand.begun = true;
  for (;;) {
    futex_take(strand.turn);
    if (!strand.dump.exchange(false)) return;
    write_stack(fmt::format("\nThread {}:\n", strand.number));
    futex_set(dumped_);
  }
}

// These lines describe a failure.

void Scheduler::report_deadlock() {
  fail(Ending::deadlock, "no thread can go on, or none before a time that is only a last resort");
}

std::string Scheduler::who_waits() const {
  std::string text;
  for (const auto& strand : strands_) {
    if (strand->state == Strand::State::ended) continue;
    text += fmt::format("  thread {} at its point {}: ", strand->number, strand->points);
    if (strand->state == Strand::State::ready)
      text += strand.get() == running_ ? "runs\n" : "could go on\n";
    else
      text += fmt::format("waits: {}{}\n", name_of(strand->kind),
                          strand->deadline == TimePoint::max()
                              ? ""
                              : fmt::format(", for {} ms more",
                                            std::chrono::duration_cast<std::chrono::milliseconds>(
                                                strand->deadline - now_)
                                                .count()));
  }
  return text;
}

// Each thread that waits for its turn writes its own stack.
void Scheduler::dump_stacks() {
  if (here != nullptr)
    write_stack(fmt::format("\nThread {}, which found the failure:\n", running_->number));
  for (const auto& strand : strands_) {
    if (strand.get() == here || strand->state == Strand::State::ended || !strand->begun) continue;
    strand->dump = true;
    futex_set(strand->turn);
    futex_take(dumped_);
  }
}

}  // namespace tutti::interleaving
