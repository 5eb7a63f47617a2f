// Threads in which futures are completed and their callbacks run.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace tutti::pytorch {

/// Runs tasks in levels. Each level has a thread of its own, which runs the level's tasks one at a
/// time, in the order in which they were added. A task of level 0 may call torch.distributed again
/// and wait for those calls, whose tasks belong to level 1, and so on. So the calls that callbacks
/// make come in the same order on every rank, and no task waits for itself. Thread-safe. The
/// destructor does not wait: tasks that have not begun still run afterwards, and a task may hold
/// the last reference to this object's owner.
class Completions {
 public:
  using Task = std::function<void()>;

  Completions() : shared_(std::make_shared<Shared>()) {}
  ~Completions();
  Completions(const Completions&) = delete;
  Completions& operator=(const Completions&) = delete;

  /// The level of calls that the calling thread makes: 0, or one more than the level of the task
  /// that it runs.
  std::size_t level() const;
  void run(std::size_t level, Task task);

 private:
  struct Level {
    std::thread::id thread;
    std::deque<Task> tasks;
  };
  struct Shared {
    std::mutex mutex;
    std::condition_variable changed;
    std::vector<std::unique_ptr<Level>> levels;  // guarded by mutex, with their members
    bool ended = false;                          // guarded by mutex
  };
  static void serve(const std::shared_ptr<Shared>& shared, Level& level);

  const std::shared_ptr<Shared> shared_;
};

}  // namespace tutti::pytorch
