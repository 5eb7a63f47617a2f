#include "completions.h"

#include <cassert>
#include <utility>

namespace tutti::pytorch {

Completions::~Completions() {
  const std::lock_guard lock(shared_->mutex);
  shared_->ended = true;
  shared_->changed.notify_all();
}

std::size_t Completions::level() const {
  const std::lock_guard lock(shared_->mutex);
  for (std::size_t k = 0; k < shared_->levels.size(); ++k)
    if (shared_->levels[k]->thread == std::this_thread::get_id()) return k + 1;
  return 0;
}

void Completions::run(std::size_t level, Task task) {
  const std::lock_guard lock(shared_->mutex);
  while (shared_->levels.size() <= level) {
    Level& added = *shared_->levels.emplace_back(std::make_unique<Level>());
    std::thread thread([shared = shared_, &added] { serve(shared, added); });
    added.thread = thread.get_id();
    thread.detach();
  }
  assert(level < shared_->levels.size());
  shared_->levels[level]->tasks.push_back(std::move(task));
  shared_->changed.notify_all();
}

void Completions::serve(const std::shared_ptr<Shared>& shared, Level& level) {
  std::unique_lock lock(shared->mutex);
  for (;;) {
    shared->changed.wait(lock, [&] { return shared->ended || !level.tasks.empty(); });
    if (level.tasks.empty()) return;
    {
      const Task task = std::move(level.tasks.front());
      level.tasks.pop_front();
      lock.unlock();
      task();
    }
    lock.lock();
  }
}

}  // namespace tutti::pytorch
