// Tests of the background thread, with operations that the test defines.
#include <gtest/gtest.h>

#include <condition_variable>
#include <mutex>

#include "runtime/runtime.h"

namespace tutti::test {
namespace {

using namespace std::chrono_literals;

/// Stands for a communicator in the runtime. The classes below decide what is pending.
class Fake : public Progressable {
 public:
  bool advance_pending() noexcept override { return true; }
  void look_pending() noexcept override {}
  bool pending() const noexcept override { return pending_; }
  TimePoint next_deadline() const override { return TimePoint::max(); }
  std::atomic<std::uint32_t>& sleepers() override { return sleepers_; }
  const Doorbell& doorbell() const override { return bell_; }
  int wait_fd() const override { return -1; }
  void arm() override {}
  void disarm() noexcept override {}
  void background_progress() noexcept override {}

 protected:
  mutable std::atomic<bool> pending_{false};
  std::atomic<std::uint32_t> sleepers_{0};
  Doorbell bell_;
};

/// It is pending until end() is called. It knows what the background thread is doing: after the
/// thread has advanced it, the thread asks whether it is still pending, and asks a second time only
/// before it sleeps.
class Busy final : public Fake {
 public:
  Busy() { pending_ = true; }
  bool pending() const noexcept override {
    ++asked_;
    return pending_;
  }
  bool advance_pending() noexcept override {
    asked_ = 0;
    return true;
  }
  void look_pending() noexcept override { asked_ = 0; }
  bool is_scanned() const noexcept { return asked_ == 2; }
  void end() { pending_ = false; }

 private:
  mutable int asked_ = 0;  // background thread only
};

/// Queues its operation right after the background thread, which is about to sleep, has found none.
/// The message that ends the operation arrives right after the next time that the background thread
/// advances it. It comes from a peer that rings the bell if a sleeper has been announced.
class Late final : public Fake {
 public:
  explicit Late(const Busy& before) : before_(before) {}
  void poked_by(Runtime& runtime) { runtime_ = &runtime; }

  bool pending() const noexcept override {
    const bool was = pending_;
    if (before_.is_scanned() && !queued_.exchange(true)) {
      pending_ = true;
      runtime_->poke();
    }
    return was;
  }
  bool advance_pending() noexcept override {
    if (message_is_here_) {
      pending_ = false;
      const std::lock_guard lock(mutex_);
      done_ = true;
      ended_.notify_all();
    } else {
      message_is_here_ = true;
      if (sleepers_ > 0) bell_.ring();
    }
    return true;
  }
  bool ends_within(std::chrono::seconds limit) {
    std::unique_lock lock(mutex_);
    return ended_.wait_for(lock, limit, [this] { return done_; });
  }

 private:
  const Busy& before_;
  Runtime* runtime_ = nullptr;
  mutable std::atomic<bool> queued_{false};
  bool message_is_here_ = false;  // background thread only
  std::mutex mutex_;
  std::condition_variable ended_;
  bool done_ = false;  // guarded by mutex_
};

TEST(Background, AnOperationThatIsQueuedWhileTheThreadGoesToSleepIsNotSleptOver) {
  Busy busy;
  Late late(busy);
  Runtime runtime{Config()};
  late.poked_by(runtime);
  runtime.add(busy);
  runtime.add(late);  // The background thread asks it after `busy`.
  EXPECT_TRUE(late.ends_within(10s)) << "the thread sleeps, and its peer sees nobody to ring for";
  busy.end();
  runtime.remove(late);
  runtime.remove(busy);
}

}  // namespace
}  // namespace tutti::test
