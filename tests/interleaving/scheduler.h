// The scheduler: a controller that runs the threads of a test one at a time, and decides from a
// seed at each operation of common/sync.h which thread goes on.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/clock.h"
#include "common/random.h"
#include "tests/interleaving/controller.h"

namespace tutti::interleaving {

/// Says how the next thread is chosen where the running one could go on.
enum class Policy : std::uint8_t {
  calm,    ///< The running thread goes on; one that yields or waits is followed by the next one.
  random,  ///< It goes on with a probability that is drawn once for a run.
  /// Threads have priorities, and the running one loses its own at a few points: the scheduler with
  /// probabilistic guarantees of Burckhardt, Kothari, Musuvathi and Nagarakatte (2010).
  priorities,
};
std::string_view to_string(Policy policy);

/// A change from one thread to another: when `from` has come to its point number `at`, `to` goes
/// on. Threads are numbered in the order in which they were started.
struct Switch {
  std::uint32_t from = 0;
  std::uint32_t at = 0;
  std::uint32_t to = 0;
  bool operator==(const Switch&) const = default;
};

enum class Ending : std::uint32_t {
  running,     ///< Also that of a process that crashed.
  done,        ///< All threads have ended.
  deadlock,    ///< No thread can go on, or none before much time has passed: a lost wake-up.
  step_limit,  ///< The threads take turns and never end.
  exception,   ///< A body threw.
  check,       ///< A check of the test failed.
};
std::string_view to_string(Ending ending);

/// Records what a run was and how it ended. It lies in memory that the parent of the process
/// shares, so that it outlives a crash.
struct RunRecord {
  static constexpr std::size_t kSwitches = 1 << 17;
  std::uint64_t seed = 0;
  Policy policy = Policy::calm;
  std::atomic<Ending> ending{Ending::running};
  std::uint64_t steps = 0;  ///< The number of points of all threads, but for those in a Calm.
  std::uint64_t hash = 0;   ///< Of the sequence of threads and of what they did.
  std::uint64_t switches = 0;
  std::uint64_t total_steps = 0;        ///< Of the runs of a process; its parent's.
  std::array<Switch, kSwitches> taken;  ///< The first of them.
  std::array<char, 1 << 16> text;       ///< What is wrong, ended by a zero.
};

/// Describes one run.
struct RunPlan {
  Policy policy = Policy::calm;
  std::uint64_t seed = 0;
  /// The switches to take, in a calm run. Those whose thread cannot go on are left out.
  const std::vector<Switch>* follow = nullptr;
  bool explain = false;                ///< Writes stacks at switches and at the end, to stderr.
  std::uint64_t usual_steps = 10'000;  ///< The steps of a calm run, for Policy::priorities.
  std::uint64_t step_limit = 400'000;
  /// If all threads wait and simulated time would have to advance by more, that is a deadlock.
  std::chrono::nanoseconds patience = std::chrono::seconds(2);
};

/// Runs bodies and the sync::Threads that they start. If the run fails, the process ends at once
/// with status kFailed, since threads that wait for ever cannot be joined: see explore.h. All
/// functions but the constructor and run() are called by threads of the run.
class Scheduler : public sync::Controller {
 public:
  static constexpr int kFailed = 97;

  /// `record` outlives the scheduler.
  Scheduler(const RunPlan& plan, RunRecord& record);
  ~Scheduler() override;

  /// Returns when all threads have ended. Called once.
  void run(std::vector<std::function<void()>> bodies);

  /// Ends the process: a check of the test has failed.
  [[noreturn]] void fail(std::string_view why) { fail(Ending::check, std::string(why)); }
  void check(bool holds, std::string_view what) {
    if (!holds) fail(what);
  }

  /// While an object of this class exists, no thread is changed but where one waits or yields. Used
  /// for the parts of a scenario that are not of interest.
  class Calm {
   public:
    explicit Calm(Scheduler& scheduler) noexcept : scheduler_(scheduler) { ++scheduler_.calm_; }
    ~Calm() { --scheduler_.calm_; }
    Calm(const Calm&) = delete;
    Calm& operator=(const Calm&) = delete;

   private:
    Scheduler& scheduler_;
  };

  /// Returns the simulated time, which advances a little at each call, and farther when all threads
  /// wait.
  TimePoint read_clock() noexcept;
  /// Draws a number for the scenario: the same ones in each run of a seed, however threads take
  /// turns as long as they draw in the same order.
  std::size_t draw(std::size_t below) { return scenario_random_.next() % below; }

  // Controller
  void point(sync::Kind kind, const void* address, std::memory_order order) override;
  void block(sync::Kind kind, const void* address) override;
  bool block_until(sync::Kind kind, const void* address, TimePoint deadline) override;
  void wake(sync::Kind kind, const void* address, bool all) override;
  void await_event(int epoll_fd, std::chrono::milliseconds time) override;
  void yield() override;
  void sleep_for(std::chrono::nanoseconds time) override;
  Record starting() override;
  void started(Record record) override;
  void not_started(Record record) override;
  void begin(Record record) override;
  void end(Record record) override;
  void join(Record record) override;

 protected:
  /// The number of the calling thread, by which a derived controller keeps what it knows of it.
  std::uint32_t self() const noexcept;
  [[noreturn]] void fail(Ending ending, const std::string& why);

 private:
  struct Strand;

  Strand& add();
  static Strand& strand_of(Record record);
  void run_body(Strand& strand, const std::function<void()>& body);
  void step(sync::Kind kind, bool may_stay);
  void switch_to(Strand& next, sync::Kind kind);
  Strand& next_strand(sync::Kind kind, bool may_stay);
  Strand& choose(const std::vector<Strand*>& ready, sync::Kind kind, bool may_stay);
  Strand& choose_by_priority(const std::vector<Strand*>& ready, bool gives_way);
  Strand* followed(const std::vector<Strand*>& ready) const;
  void find_ready();
  void poll_descriptors();
  bool advance_time();
  bool kernel_wakes_one();
  [[noreturn]] void report_deadlock();
  std::string who_waits() const;
  void hand_over(Strand& next);
  void await_turn(Strand& strand);
  void dump_stacks();
  void end_strand(Strand& strand);

  const RunPlan plan_;
  RunRecord& record_;
  SeededRandom random_;  // for the choice of threads
  SeededRandom scenario_random_;
  std::vector<std::unique_ptr<Strand>> strands_;
  Strand* running_ = nullptr;
  std::vector<Strand*> ready_;  // of find_ready()
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::uint32_t> follow_;
  std::set<std::uint64_t> changes_;  // the steps at which a priority changes
  std::uint64_t one_in_ = 2;         // a random run changes the thread at one in so many points
  std::int64_t lowest_ = 0;          // the lowest priority that has been given
  std::uint64_t streak_ = 0;         // points since the thread was changed, while others were ready
  std::uint64_t waits_ = 0;          // the number of waits, which orders those that wait
  std::uint64_t steps_ = 0;          // as RunRecord::steps, with those in objects of class Calm
  int calm_ = 0;                     // the number of objects of class Calm
  bool descriptors_old_ = false;     // whether one may have been signalled since they were polled
  TimePoint now_{};
  std::uint32_t all_ended_ = 0;  // futex: set to 1
  std::uint32_t dumped_ = 0;     // futex: set to 1 by a thread that has written its stack
};

/// The clock of a run, for a Runtime. It reads the time of threads outside of the run, too.
class SimulatedClock final : public Clock {
 public:
  explicit SimulatedClock(Scheduler& scheduler) : scheduler_(scheduler) {}
  TimePoint now() const override { return scheduler_.read_clock(); }

 private:
  Scheduler& scheduler_;
};

}  // namespace tutti::interleaving
