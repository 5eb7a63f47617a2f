// What communicators share: configuration, clock, randomness, log, and the one background thread.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include <tutti/config.hpp>

#include "common/clock.h"
#include "common/log.h"
#include "common/random.h"
#include "common/sync.h"
#include "runtime/engine/wait.h"

namespace tutti {

/// Something with asynchronous operations that the background thread advances. Called by that
/// thread alone.
class Progressable {
 public:
  virtual ~Progressable() = default;
  /// Does what can be done now; whether there was progress. Never blocks, never throws: errors go
  /// to the operations.
  virtual bool advance_pending() noexcept = 0;
  /// Sockets, peers' lives, deadlines.
  virtual void look_pending() noexcept = 0;
  virtual bool pending() const noexcept = 0;
  virtual TimePoint next_deadline() const = 0;
  virtual sync::Atomic<std::uint32_t>& sleepers() = 0;
  virtual const Doorbell& doorbell() const = 0;
  virtual int wait_fd() const = 0;  ///< The same for all with the same doorbell.
  virtual void arm() = 0;           ///< Around a sleep over it: see Transport.
  virtual void disarm() noexcept = 0;
  /// Every half second, with or without operations pending: see Transport.
  virtual void background_progress() noexcept = 0;
};

/// Which threads a runtime has.
enum class Threads {
  background,  ///< One that advances what is pending, and others for what must not wait for it.
  none,        ///< None: step() advances what is pending, and all communicators are of one thread.
};

/// Thread-safe. Communicators hold it; the last one to go ends the background thread.
class Runtime {
 public:
  explicit Runtime(Config config);  ///< The steady clock and the kernel's randomness.
  Runtime(Config config, std::unique_ptr<Clock> clock, std::unique_ptr<Random> random,
          Threads threads = Threads::background);
  ~Runtime();
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;

  const Config& config() const noexcept { return config_; }
  const Clock& clock() const noexcept { return *clock_; }
  Random& random() noexcept { return *random_; }
  Log& log() noexcept { return log_; }

  /// False in a process forked from the one that made this runtime: there is no background thread
  /// there, and the parent's channels are not the child's. One load (the kernel wipes the page in
  /// the child).
  bool in_own_process() const noexcept { return *alive_ == 1; }

  /// Whether the caller is the background thread: in a callback.
  bool in_background() const noexcept {
    return turns_ > 0 || sync::this_thread() == thread_.get_id();
  }

  /// Without threads: a communicator is advanced or waited for in this scope, perhaps one in the
  /// callback of another, so that what is to run apart has to wait for its end. With threads it
  /// does nothing.
  class Turn {
   public:
    explicit Turn(Runtime& runtime) noexcept : runtime_(runtime.has_thread() ? nullptr : &runtime) {
      if (runtime_ != nullptr) ++runtime_->turns_;
    }
    ~Turn() {
      if (runtime_ != nullptr) --runtime_->turns_;
    }
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;

   private:
    Runtime* const runtime_;
  };

  bool has_thread() const noexcept { return threads_ != Threads::none; }
  /// Without threads: advances one communicator that has operations pending, or looks at it, as
  /// random() says. A thread that waits calls it, too, so that what it waits for goes on; a program
  /// that drives all its ranks in one thread calls it until everything is done. Time is clock()'s.
  void step();
  /// Calls `task` in a thread of its own, or without threads in a step() when no Turn is under way.
  /// Throws `std::system_error` where there is no thread to be had.
  void run_apart(std::function<void()> task);

  /// The background thread advances `progressable` while it has operations pending, until remove()
  /// returns. This call never waits for a callback, so that a callback may make it, in the
  /// background thread as well.
  void add(Progressable& progressable);
  /// The background thread makes background progress for it from now on. This call waits for
  /// nothing, as add().
  void add_background(Progressable& progressable);
  /// Undoes add() and add_background(). Waits until the background thread is between two rounds.
  void remove(Progressable& progressable) noexcept;
  /// There is work: wakes the background thread, if it sleeps. No system call where it does not.
  void poke() noexcept {
    if (asleep_.load(std::memory_order_seq_cst)) poke_.ring();
  }
  /// Tells the background thread that an operation which was pending already has a deadline from
  /// now on; the thread wakes if it would sleep longer. Call it after next_deadline() returns the
  /// new value.
  void mind(TimePoint deadline) noexcept {
    if (deadline < wakes_at_.load(std::memory_order_seq_cst)) poke();
  }

 private:
  /// Holds mutex_, and makes the background thread let go of it first.
  class Visit {
   public:
    explicit Visit(Runtime& runtime);
    ~Visit();

   private:
    Runtime& runtime_;
    std::unique_lock<sync::Mutex> lock_;
  };

  void background() noexcept;
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
  void doze();

  const Threads threads_;
  const Config config_;
  const std::unique_ptr<Clock> clock_;
  const std::unique_ptr<Random> random_;
  Log log_;
  volatile std::uint32_t* alive_ = nullptr;  // in a page of its own
  Doorbell poke_;
  sync::Mutex mutex_;
  std::vector<Progressable*>
      progressables_;  // guarded by mutex_, which the background thread holds, asleep too
  std::vector<Progressable*> background_;  // guarded by mutex_
  TimePoint background_progress_at_{};     // background thread
  // Communicators that were added and are not yet in the lists above. This mutex is held for
  // moments only and never while a callback runs, unlike mutex_; where a thread takes both, mutex_
  // comes first.
  sync::Mutex newcomers_mutex_;
  std::vector<Progressable*> newcomers_;       // guarded by newcomers_mutex_: for progressables_
  std::vector<Progressable*> new_background_;  // guarded by newcomers_mutex_: for background_
  sync::Atomic<bool> has_newcomers_{false};
  // Threads that want mutex_: the background thread lets them in, and waits for this to change. Not
  // by a condition variable: a forked child could not destroy one that it waits for.
  sync::Atomic<int> visitors_{0};
  std::vector<Progressable*> announced_;  // background thread: of sleep_all()
  sync::Atomic<bool> asleep_{false};      // or about to: looks once more after it is set
  // When the sleep of sleep_all() ends by itself; min while the thread is not in that sleep.
  sync::Atomic<TimePoint> wakes_at_{TimePoint::min()};
  sync::Atomic<bool> stop_{false};
  Sleeper sleeper_;  // what it watches is changed under newcomers_mutex_
  sync::Thread thread_;
  // Without threads alone, where the one thread uses them.
  int turns_ = 0;                             // under way, one in another
  std::vector<std::function<void()>> tasks_;  // of run_apart()
};

}  // namespace tutti
