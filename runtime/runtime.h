// What communicators share: configuration, clock, randomness, log, and the one background thread.
#pragma once

#include <cassert>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include <tutti/config.hpp>

#include "common/clock.h"
#include "common/log.h"
#include "common/random.h"
#include "common/sync.h"
#include "devices/gpu_device.h"
#include "runtime/diagnosis/recorder.h"
#include "runtime/engine/wait.h"
#include "runtime/naps.h"
#include "runtime/schedule_files.h"

namespace tutti {

/// A communicator as the background thread sees it: something with asynchronous operations that the
/// thread advances. Only that thread calls these functions.
class Progressable {
 public:
  virtual ~Progressable() = default;
  /// Does what can be done now. Returns false where another thread owns the engine, which may leave
  /// it without doing that. It never blocks and never throws: operations that fail hold their
  /// errors.
  virtual bool advance_pending() noexcept = 0;
  /// Checks sockets, whether peers are alive, and deadlines, none of which advance_pending() does.
  virtual void look_pending() noexcept = 0;
  virtual bool pending() const noexcept = 0;
  /// Returns whether a thread waits for an operation, and so advances all that is pending.
  virtual bool awaited() const noexcept = 0;
  virtual TimePoint next_deadline() const = 0;
  virtual Sleepers& sleepers() = 0;
  virtual const Doorbell& doorbell() const = 0;
  virtual std::span<const int> wait_fds() const = 0;  ///< See Transport; they stay the same.
  virtual void arm() = 0;  ///< arm() and disarm() enclose a sleep over wait_fds(), see Transport.
  virtual void disarm() noexcept = 0;
  /// Is called every half second, whether or not operations are pending; see Transport.
  virtual void background_progress() noexcept = 0;
};

/// Says which threads a runtime starts.
enum class Threads {
  background,  ///< One thread advances pending operations, and run_apart() starts others.
  none,  ///< No thread is started: step() advances pending operations, and one thread uses all
         ///< communicators.
};

/// Holds what communicators share. Thread-safe. Communicators hold a reference to it, and the
/// background thread ends with the last of them.
class Runtime {
 public:
  explicit Runtime(Config config);  ///< Uses the steady clock and the kernel's randomness.
  Runtime(Config config, std::unique_ptr<Clock> clock, std::unique_ptr<Random> random,
          Threads threads = Threads::background);
  ~Runtime();
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;

  const Config& config() const noexcept { return config_; }
  const Clock& clock() const noexcept { return *clock_; }
  Random& random() noexcept { return *random_; }
  Log& log() noexcept { return log_; }
  /// The host's memory that GPUs of this process read and write.
  HostPins& host_pins() noexcept { return host_pins_; }
  /// The files of schedules that the configuration names.
  const ScheduleFiles& schedule_files() const noexcept { return schedule_files_; }
  /// The flight recorder's memory, in which each communicator has a ring.
  TraceMemory& trace_memory() noexcept { return trace_memory_; }
  /// A communicator has failed: writes the records of all communicators into the folder that the
  /// configuration names, if it names one. Where many fail at once, the dump of the first is
  /// followed by one of all the others, a second later or at the end. An error is logged.
  void dump_after_failure() noexcept;

  /// Returns false in a process that was forked from the one that made this runtime: the child has
  /// no background thread, and must not use its parent's channels. It costs one load (the kernel
  /// clears the page in the child).
  bool in_own_process() const noexcept { return *alive_ == 1; }

  /// Returns whether the caller is the background thread, so that it is in a callback.
  bool in_background() const noexcept {
    return turns_ > 0 || sync::this_thread() == thread_.get_id();
  }

  /// Marks a scope in which a communicator is advanced or waited for, in a runtime without threads;
  /// with threads it does nothing. Scopes may nest, since a callback of one communicator may wait
  /// for another. Tasks of run_apart() run after the outermost scope has ended.
  class Turn {
   public:
    explicit Turn(Runtime& runtime) noexcept : runtime_(runtime.has_thread() ? nullptr : &runtime) {
      if (runtime_ != nullptr) ++runtime_->turns_;
    }
    ~Turn() {
      assert(runtime_ == nullptr || runtime_->turns_ > 0);
      if (runtime_ != nullptr) --runtime_->turns_;
    }
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;

   private:
    Runtime* const runtime_;
  };

  bool has_thread() const noexcept { return threads_ != Threads::none; }
  /// For a runtime without threads: advances one communicator that has operations pending, or calls
  /// its look_pending(); random() decides which. A thread that waits calls it as well, so that the
  /// operation that it waits for goes on. A program that drives all its ranks in one thread calls
  /// it until everything is done. Time is that of clock().
  void step();
  /// Calls `task` in a thread of its own, or, in a runtime without threads, in a step() outside of
  /// any Turn. Throws `std::system_error` if no thread can be started.
  void run_apart(std::function<void()> task);

  /// Lets the background thread advance `progressable` while it has operations pending, until
  /// remove() returns. The call never waits for a callback, so that callbacks may make it,
  /// including those that run in the background thread.
  void add(Progressable& progressable);
  /// Lets the background thread call background_progress() of `progressable` from now on. Like
  /// add(), it never waits for a callback.
  void add_background(Progressable& progressable);
  /// Undoes add() and add_background(). Waits until the background thread is between two rounds.
  void remove(Progressable& progressable) noexcept;
  /// Tells the background thread that there is work, and wakes it if it sleeps. It makes no system
  /// call if the thread is awake, or naps.
  void poke() noexcept {
    poked_.store(true, std::memory_order_relaxed);
    if (asleep_.load(std::memory_order_seq_cst) && asleep_.exchange(false)) poke_.ring();
  }
  /// Tells the background thread that an operation which was pending already has a deadline from
  /// now on; the thread wakes if it would sleep longer. Call it after next_deadline() returns the
  /// new value.
  void expect_deadline(TimePoint deadline) noexcept {
    if (deadline < wakes_at_.load(std::memory_order_seq_cst)) poke();
  }

 private:
  /// Holds mutex_, after it has made the background thread release it.
  class Visit {
   public:
    explicit Visit(Runtime& runtime);
    ~Visit();

   private:
    Runtime& runtime_;
    std::unique_lock<sync::Mutex> lock_;
  };

  void background() noexcept;
  void start_thread();
  void forget_page() noexcept;
  void listen_for_dump_signal();
  void dump_if_asked() noexcept;
  void dump_trace() noexcept;
  void run_tasks();
  bool take_in_newcomers() noexcept;
  // Returns true when there is nothing to wait for, when a thread wants mutex_, or after a
  // newcomer.
  bool advance_all();
  void look_all();
  bool sleep_all();
  void background_progress_all();
  TimePoint next_background_progress() const noexcept;
  TimePoint first_deadline() const;
  bool anything_pending();
  bool anything_unattended() const noexcept;
  bool nap();
  void doze();

  const Threads threads_;
  const Config config_;
  const std::unique_ptr<Clock> clock_;
  const std::unique_ptr<Random> random_;
  Log log_;
  TraceMemory trace_memory_;
  const ScheduleFiles schedule_files_;
  HostPins host_pins_;
  volatile std::uint32_t* alive_ = nullptr;  // it has a page of its own
  Doorbell poke_;
  std::uint32_t dumps_done_ = 0;  // used by the background thread alone
  sync::Mutex dump_mutex_;        // No other lock is taken while this one is held, but the trace's.
  TimePoint dump_again_{};        // guarded by dump_mutex_; the next failure is dumped from then on
  sync::Atomic<TimePoint> dump_due_{TimePoint::max()};  // failures wait for it to be dumped
  sync::Mutex mutex_;
  // Guarded by mutex_, which the background thread holds even while it sleeps.
  std::vector<Progressable*> progressables_;
  std::vector<Progressable*> background_;  // guarded by mutex_
  TimePoint background_progress_at_{};     // used by the background thread alone
  // Communicators that were added and are not yet in the lists above. This mutex is held for
  // moments only and never while a callback runs, unlike mutex_; where a thread takes both, mutex_
  // comes first.
  sync::Mutex newcomers_mutex_;
  std::vector<Progressable*> newcomers_;       // guarded by newcomers_mutex_: for progressables_
  std::vector<Progressable*> new_background_;  // guarded by newcomers_mutex_: for background_
  sync::Atomic<bool> has_newcomers_{false};
  // Counts the threads that want mutex_: the background thread releases it for them, and waits for
  // this number to change. It does not wait on a condition variable, because a forked child could
  // not destroy one on which a thread waits.
  sync::Atomic<int> visitors_{0};
  std::vector<Progressable*> announced_;  // used by the background thread in sleep_all()
  // Whether advance_all() has found an engine that another thread owns; used by the background
  // thread alone.
  bool owned_elsewhere_ = false;
  Naps naps_;                        // used by the background thread alone
  sync::Atomic<bool> poked_{false};  // since the background thread looked last
  // It is set before the last look that precedes a sleep, and cleared by whoever wakes the thread,
  // so that others need not while the thread has not got a core yet.
  sync::Atomic<bool> asleep_{false};
  // The time at which the sleep of sleep_all() ends by itself; TimePoint::min() while the thread is
  // not in that sleep.
  sync::Atomic<TimePoint> wakes_at_{TimePoint::min()};
  sync::Atomic<bool> stop_{false};
  Sleeper sleeper_;  // the set of descriptors that it watches is guarded by newcomers_mutex_
  sync::Thread thread_;
  // Used only in a runtime without threads, by its one thread.
  int turns_ = 0;  // the number of Turns that are under way, one inside another
  std::vector<std::function<void()>> tasks_;  // tasks of run_apart() that have not run yet
};

}  // namespace tutti
