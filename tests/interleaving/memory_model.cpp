#include "tests/interleaving/memory_model.h"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <ucontext.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <exception>
#include <map>
#include <stdexcept>
#include <utility>

#include <fmt/format.h>

#include "tests/interleaving/memory_views.h"

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/common_interface_defs.h>
#endif

namespace tutti::interleaving {
namespace {

constexpr std::size_t kStackBytes = 128 << 10;

enum class Step { load, store, modify, fence, barrier, written, read, news, sleep, blocked, other };

/// Says what a thread is about to do.
struct Next {
  Step step = Step::other;
  const void* address = nullptr;
  std::memory_order order = std::memory_order_relaxed;

  bool sequential() const { return order == std::memory_order_seq_cst; }
  bool only_reads() const { return step == Step::load || step == Step::read; }
  bool on_memory() const { return step <= Step::modify || step == Step::written || only_reads(); }
};

// Whether the order in which two threads take these steps can make a difference.
bool depend(const Next& a, const Next& b) {
  const auto fence_and = [](const Next& fence, const Next& other) {
    if (other.step == Step::fence) return fence.sequential() && other.sequential();
    return fence.sequential() && other.on_memory() && other.sequential();
  };
  if (a.step == Step::fence && (b.on_memory() || b.step == Step::fence)) return fence_and(a, b);
  if (b.step == Step::fence && a.on_memory()) return fence_and(b, a);
  // A thread that waits for news sees what has been stored.
  if (a.step == Step::news)
    return b.step == Step::store || b.step == Step::modify || !b.on_memory();
  if (b.step == Step::news) return depend(b, a);
  if (a.on_memory() && b.on_memory())
    return a.address == b.address && !(a.only_reads() && b.only_reads());
  return true;
}

struct Choice {
  int options = 0;
  int at = 0;
  bool of_thread = false;
  std::array<int, kMaxThreads> threads{};  // of_thread: the threads among which it chooses
};

}  // namespace

/// Goes on at `to` in place of `from`. The address sanitizer is told of the stack that `to` has,
/// which is the thread's own where `stack` is null.
class Switch {
 public:
  static void go(ucontext_t& from, ucontext_t& to, void* stack) {
#ifdef __SANITIZE_ADDRESS__
    void* kept = nullptr;
    __sanitizer_start_switch_fiber(&kept, stack != nullptr ? stack : own_stack,
                                   stack != nullptr ? kStackBytes : own_bytes);
    swapcontext(&from, &to);
    arrived(kept);
#else
    static_cast<void>(stack);
    swapcontext(&from, &to);
#endif
  }
  /// Called first on a stack that is new, and with what was kept on one that goes on.
  static void arrived([[maybe_unused]] void* kept = nullptr) {
#ifdef __SANITIZE_ADDRESS__
    const void* bottom = nullptr;
    std::size_t bytes = 0;
    __sanitizer_finish_switch_fiber(kept, &bottom, &bytes);
    if (own_stack == nullptr) own_stack = bottom, own_bytes = bytes;
#endif
  }

 private:
#ifdef __SANITIZE_ADDRESS__
  static inline const void* own_stack = nullptr;  // the first that was switched from
  static inline std::size_t own_bytes = 0;
#endif
};

/// A thread of the scenario.
struct Fiber {
  ucontext_t context{};
  void* stack = nullptr;
  bool ended = false;
  Next next;
  View view;           // what it has seen
  View acquired;       // what it would have seen had its loads acquired: a fence adds it to `view`
  View released;       // `view` at its last release fence
  View floor;          // what polling in vain makes it see
  int sleeps_on = -1;  // the epoll descriptor, where next.step is sleep
  sync::Kind waits_for{};  // where next.step is blocked
  bool woken = false;
  std::uint32_t step_count = 0;
};

/// The state of one exploration.
struct MemoryModel::State {
  const Bounds& bounds;
  std::vector<Choice> choices;
  std::size_t depth = 0;

  // The state of one execution.
  std::unique_ptr<Scenario> scenario;
  std::array<Fiber, kMaxThreads> fibers;
  int threads = 0;
  int running = -1;
  ucontext_t scheduler{};
  std::map<const void*, std::size_t> numbers;
  std::vector<AtomicPlace> atomics;
  std::map<const void*, PlainPlace> plain;
  View sequential;                           // of fences
  std::map<const void*, View> mutexes;       // what who unlocked each had seen
  std::array<bool, kMaxThreads> sleeping{};  // the sleep set
  bool redundant = false;
  bool abandoned = false;
  std::string failure;
  std::vector<std::string> trace;
  bool tracing = false;

  explicit State(const Bounds& limits) : bounds(limits) {
    for (Fiber& fiber : fibers) {
      fiber.stack = mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
      if (fiber.stack == MAP_FAILED) throw std::runtime_error("no memory for a stack");
    }
  }
  ~State() {
    for (Fiber& fiber : fibers) munmap(fiber.stack, kStackBytes);
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  Fiber& fiber() { return fibers[static_cast<std::size_t>(running)]; }
  std::size_t number_of(const void* address, std::uint64_t initial);
  int choose(int options);
  void begin(const Make& make);
  void run(const Make& make);
  bool has_news(const Fiber& fiber) const;
  void see_news();
  bool enabled(int thread) const;
  int choose_thread();
  void resume(int thread);
  void suspend(const Next& next);
  void fail(std::string why);
  void note(const std::string& line);
  bool next_execution();
};

namespace {

MemoryModel* model = nullptr;

}  // namespace

void MemoryModel::State::note(const std::string& line) {
  if (tracing) trace.push_back(fmt::format("thread {}: {}", running, line));
}

void MemoryModel::State::fail(std::string why) {
  if (failure.empty()) failure = std::move(why);
  abandoned = true;
}

std::size_t MemoryModel::State::number_of(const void* address, std::uint64_t initial) {
  const auto [found, is_new] = numbers.try_emplace(address, atomics.size());
  if (is_new) atomics.push_back({.history = {Stored{initial, {}}}});
  return found->second;
}

// Returns one of `options` numbers from 0 on: the one of the execution that is being repeated, or 0
// where this execution is the first that comes here.
int MemoryModel::State::choose(int options) {
  assert(options > 0);
  if (options == 1) return 0;
  if (depth == choices.size()) choices.push_back({.options = options});
  assert(choices[depth].options == options && "the scenario depends on something else");
  return choices[depth++].at;
}

// Whether an atomic has a value that the thread was not bound to see until now.
bool MemoryModel::State::has_news(const Fiber& fiber) const {
  for (std::size_t place = 0; place < atomics.size(); ++place)
    if (atomics[place].history.size() - 1 > std::max(fiber.view.of(place), fiber.floor.of(place)))
      return true;
  return false;
}

void MemoryModel::State::see_news() {
  for (std::size_t place = 0; place < atomics.size(); ++place)
    fiber().floor.raise(place, static_cast<std::uint32_t>(atomics[place].history.size() - 1));
}

bool MemoryModel::State::enabled(int thread) const {
  const Fiber& fiber = fibers[static_cast<std::size_t>(thread)];
  if (fiber.ended) return false;
  if (fiber.next.step == Step::news) return has_news(fiber);
  if (fiber.next.step == Step::blocked) return fiber.woken;
  if (fiber.next.step != Step::sleep) return true;
  pollfd bell{fiber.sleeps_on, POLLIN, 0};
  return poll(&bell, 1, 0) == 1;
}

// Returns the thread that goes on, or -1 if none does. Brings the sleep set up to date.
int MemoryModel::State::choose_thread() {
  Choice choice{.of_thread = true};
  bool any_enabled = false, all_ended = true;
  for (int thread = 0; thread < threads; ++thread) {
    all_ended = all_ended && fibers[thread].ended;
    if (!enabled(thread)) continue;
    any_enabled = true;
    if (!sleeping[thread]) choice.threads[choice.options++] = thread;
  }
  if (choice.options == 0) {
    redundant = any_enabled;
    if (!any_enabled && !all_ended) fail("no thread can go on");
    return -1;
  }
  int at = 0;
  if (choice.options > 1) {
    if (depth == choices.size()) choices.push_back(choice);
    assert(choices[depth].of_thread && choices[depth].threads == choice.threads);
    at = choices[depth++].at;
  }
  const int chosen = choice.threads[at];
  for (int before = 0; before < at; ++before) sleeping[choice.threads[before]] = true;
  for (int thread = 0; thread < threads; ++thread)
    if (sleeping[thread] && depend(fibers[thread].next, fibers[chosen].next))
      sleeping[thread] = false;
  return chosen;
}

void MemoryModel::State::resume(int thread) {
  const sync::Known known;
  running = thread;
  Switch::go(scheduler, fibers[thread].context, fibers[thread].stack);
  running = -1;
}

void MemoryModel::State::suspend(const Next& next) {
  Fiber& self = fiber();
  self.next = next;
  Switch::go(self.context, scheduler, nullptr);
  ++self.step_count;
  self.view.steps[running] = self.step_count;
}

void MemoryModel::State::begin(const Make& make) {
  depth = 0;
  numbers.clear();
  atomics.clear();
  plain.clear();
  sequential = {};
  mutexes.clear();
  sleeping = {};
  redundant = abandoned = false;
  trace.clear();
  scenario = make();
  threads = scenario->threads();
  assert(threads >= 1 && threads <= kMaxThreads);
  for (int thread = 0; thread < threads; ++thread) {
    Fiber& fiber = fibers[thread];
    void* const stack = fiber.stack;
    fiber = Fiber{};
    fiber.stack = stack;
    getcontext(&fiber.context);
    fiber.context.uc_stack.ss_sp = stack;
    fiber.context.uc_stack.ss_size = kStackBytes;
    makecontext(
        &fiber.context,
        [] {
          Switch::arrived();
          State& state = model->state_;
          try {
            state.scenario->run(state.running);
          } catch (const std::exception& error) {
            state.fail(fmt::format("thread {} threw: {}", state.running, error.what()));
          }
          state.fiber().ended = true;
          Switch::go(state.fiber().context, state.scheduler, nullptr);
        },
        0);
  }
}

void MemoryModel::State::run(const Make& make) {
  begin(make);
  for (int step = 0; !abandoned; ++step) {
    if (step == bounds.steps) {
      fail(fmt::format("more than {} steps", bounds.steps));
      break;
    }
    const int thread = choose_thread();
    if (thread < 0) break;
    resume(thread);
  }
  if (!abandoned && !redundant) {
    try {
      scenario->check();
    } catch (const std::exception& error) {
      fail(error.what());
    }
  }
}

// Moves on to the next execution in depth-first order; returns false if there is none.
bool MemoryModel::State::next_execution() {
  choices.resize(depth);
  while (!choices.empty() && choices.back().at + 1 == choices.back().options) choices.pop_back();
  if (choices.empty()) return false;
  ++choices.back().at;
  return true;
}

Exploration MemoryModel::explore(const Make& make, const Bounds& bounds) {
  State state(bounds);
  MemoryModel self(state);
  Exploration found;
  do {
    state.run(make);
    ++(state.redundant ? found.redundant : found.executions);
    if (!state.failure.empty()) {
      // The same execution once more, to record its steps.
      const std::string failure = std::exchange(state.failure, {});
      state.tracing = true;
      state.run(make);
      found.failure = fmt::format("{} (in execution {})", failure, found.executions);
      for (const std::string& line : state.trace) found.failure += "\n  " + line;
      return found;
    }
    if (found.executions + found.redundant == bounds.executions) return found;
  } while (state.next_execution());
  found.complete = true;
  return found;
}

MemoryModel::MemoryModel(State& state) : state_(state) {
  assert(model == nullptr);
  model = this;
  sync::install(this);
}

MemoryModel::~MemoryModel() {
  sync::install(nullptr);
  model = nullptr;
}

void MemoryModel::point(sync::Kind kind, const void* address, std::memory_order order) {
  switch (kind) {
    case sync::Kind::load: return state_.suspend({Step::load, address, order});
    case sync::Kind::store: return state_.suspend({Step::store, address, order});
    case sync::Kind::fence:
      // Other fences concern their thread alone.
      if (order == std::memory_order_seq_cst) state_.suspend({Step::fence, nullptr, order});
      return;
    case sync::Kind::lock:
    case sync::Kind::try_lock:
    case sync::Kind::unlock: return state_.suspend({Step::modify, address, order});
    default:
      if (sync::is_read_modify_write(kind)) state_.suspend({Step::modify, address, order});
  }
}

// The history of an atomic that was at this address before is void.
void MemoryModel::created(const void* address, std::uint64_t value) {
  State& state = state_;
  state.numbers.erase(address);
  state.number_of(address, value);
}

void MemoryModel::acquired(const void* mutex) {
  state_.fiber().view.join(state_.mutexes[mutex]);
  state_.note("locks");
}

void MemoryModel::released(const void* mutex) {
  state_.mutexes[mutex].join(state_.fiber().view);
  state_.note("unlocks");
}

void MemoryModel::block(sync::Kind kind, const void* address) {
  Fiber& self = state_.fiber();
  self.waits_for = kind;
  self.woken = false;
  state_.suspend({Step::blocked, address});
}

bool MemoryModel::block_until(sync::Kind kind, const void* address, TimePoint) {
  block(kind, address);
  return true;
}

void MemoryModel::wake(sync::Kind kind, const void* address, bool all) {
  for (int thread = 0; thread < state_.threads; ++thread) {
    Fiber& fiber = state_.fibers[thread];
    if (fiber.ended || fiber.next.step != Step::blocked || fiber.woken) continue;
    if (fiber.waits_for != kind || fiber.next.address != address) continue;
    fiber.woken = true;
    if (!all) return;
  }
}

MemoryModel::Record MemoryModel::starting() {
  throw std::logic_error("a scenario of the memory model starts no threads");
}

void MemoryModel::sleep_for(std::chrono::nanoseconds) { yield(); }

void MemoryModel::yield() {
  State& state = state_;
  state.suspend({Step::news});
  state.see_news();
  state.note("has news");
}

void MemoryModel::await_event(int epoll_fd, std::chrono::milliseconds) {
  State& state = state_;
  state.note("sleeps");
  state.fiber().sleeps_on = epoll_fd;
  state.suspend({Step::sleep});
  epoll_event event;
  [[maybe_unused]] const int events = epoll_wait(epoll_fd, &event, 1, 0);
  assert(events == 1);
  state.see_news();  // The kernel orders what came before the event.
  state.note("wakes");
}

std::uint64_t MemoryModel::load(const void* address, std::uint64_t latest,
                                std::memory_order order) {
  State& state = state_;
  Fiber& self = state.fiber();
  const std::size_t place = state.number_of(address, latest);
  const AtomicPlace& is = state.atomics[place];
  std::uint32_t oldest = std::max(self.view.of(place), self.floor.of(place));
  if (order == std::memory_order_seq_cst)
    oldest = std::max({oldest, is.sequential, state.sequential.of(place)});
  const auto newest = static_cast<std::uint32_t>(is.history.size() - 1);
  assert(oldest <= newest);
  const auto age = static_cast<std::uint32_t>(state.choose(static_cast<int>(newest - oldest) + 1));
  const Stored& stored = is.history[newest - age];
  self.view.raise(place, newest - age);
  if (acquires(order))
    self.view.join(stored.view);
  else
    self.acquired.join(stored.view);
  state.note(fmt::format("loads {} from atomic {}{}", stored.value, place,
                         age == 0 ? "" : fmt::format(", {} stores old", age)));
  return stored.value;
}

void MemoryModel::append(const void* address, std::uint64_t before, std::uint64_t after,
                         std::memory_order order, bool modifies) {
  State& state = state_;
  Fiber& self = state.fiber();
  const std::size_t place = state.number_of(address, before);
  AtomicPlace& is = state.atomics[place];
  assert(is.history.back().value == before);
  View view;
  if (modifies) {  // It reads the newest value, and continues its release sequence.
    view = is.history.back().view;
    if (acquires(order))
      self.view.join(view);
    else
      self.acquired.join(view);
  }
  const auto index = static_cast<std::uint32_t>(is.history.size());
  self.view.raise(place, index);
  view.join(releases(order) ? self.view : self.released);
  view.raise(place, index);
  is.history.push_back({after, std::move(view)});
  if (order == std::memory_order_seq_cst) is.sequential = index;
  state.note(fmt::format("{} {} in atomic {}", modifies ? "changes" : "stores", after, place));
}

void MemoryModel::stored(const void* address, std::uint64_t before, std::uint64_t after,
                         std::memory_order order) {
  append(address, before, after, order, false);
}

void MemoryModel::read_modify_write(sync::Kind, const void* address, std::uint64_t before,
                                    std::uint64_t after, std::memory_order order) {
  append(address, before, after, order, true);
}

void MemoryModel::fence(sync::Kind kind, std::memory_order order) {
  if (kind == sync::Kind::compiler_fence) return;
  State& state = state_;
  Fiber& self = state.fiber();
  if (acquires(order)) self.view.join(self.acquired);
  if (order == std::memory_order_seq_cst) {
    self.view.join_seen(state.sequential);
    for (std::size_t place = 0; place < state.atomics.size(); ++place)
      self.view.raise(place, state.atomics[place].sequential);
    state.sequential.join_seen(self.view);
    state.note("fence");
  }
  if (releases(order)) self.released = self.view;
}

// A fence in every thread at the same moment.
void MemoryModel::fenced_all_threads() {
  State& state = state_;
  state.suspend({Step::barrier});
  for (int thread = 0; thread < state.threads; ++thread)
    state.sequential.join_seen(state.fibers[thread].view);
  for (int thread = 0; thread < state.threads; ++thread) {
    Fiber& fiber = state.fibers[thread];
    fiber.view.join(fiber.acquired);
    fiber.view.join_seen(state.sequential);
    fiber.released = fiber.view;
  }
  state.note("barrier in all threads");
}

void MemoryModel::written(const void* address, std::size_t) {
  State& state = state_;
  state.suspend({Step::written, address});
  const Fiber& self = state.fiber();
  PlainPlace& place = state.plain[address];
  for (int thread = 0; thread < state.threads; ++thread)
    if (place.read_at[thread] > self.view.steps[thread])
      state.fail(fmt::format("data race: thread {} writes what thread {} may still read",
                             state.running, thread));
  if (place.writer >= 0 && place.written_at > self.view.steps[place.writer])
    state.fail(fmt::format("data race: threads {} and {} write", state.running, place.writer));
  place.writer = state.running;
  place.written_at = self.step_count;
  state.note("writes plain memory");
}

void MemoryModel::read(const void* address, std::size_t) {
  State& state = state_;
  state.suspend({Step::read, address});
  const Fiber& self = state.fiber();
  PlainPlace& place = state.plain[address];
  if (place.writer >= 0 && place.written_at > self.view.steps[place.writer])
    state.fail(fmt::format("data race: thread {} reads what thread {} writes", state.running,
                           place.writer));
  place.read_at[state.running] = self.step_count;
  state.note("reads plain memory");
}

}  // namespace tutti::interleaving
