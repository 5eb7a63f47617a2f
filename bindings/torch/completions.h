// Threads in which futures are completed, and their callbacks run.
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

/// Runs tasks in levels, each in a thread of its own, one at a time and in the order in which they
/// come. A task of level 0 may call torch.distributed again and wait for what it has called: that
/// is of level 1, and so on. So what callbacks call comes in the same order on every rank, and
/// nothing waits for itself. Thread-safe. Tasks that have not begun when it goes are run; it waits
/// for none, since a task may hold its last owner.
class Completions {
 public:
  using Task = std::function<void()>;

  Completions() : shared_(std::make_shared<Shared>()) {}
  ~Completions();
  Completions(const Completions&) = delete;
  Completions& operator=(const Completions&) = delete;

  /// Of what the calling thread calls: 0, or one more than that of the task that it runs.
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
    std::vector<std::unique_ptr<Level>> levels;  // guarded by mutex, and what is in them
    bool ended = false;                          // guarded by mutex
  };
  static void serve(const std::shared_ptr<Shared>& shared, Level& level);

  const std::shared_ptr<Shared> shared_;
};

}  // namespace tutti::pytorch
