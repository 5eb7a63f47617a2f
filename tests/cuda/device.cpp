#include "tests/cuda/device.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <functional>
#include <list>
#include <random>
#include <thread>

namespace tutti::stand_in {
namespace {

using Clock = std::chrono::steady_clock;

long number_of(const char* name, long otherwise) {
  const char* const text = std::getenv(name);
  return text == nullptr || *text == 0 ? otherwise : std::atol(text);
}

std::string text_of(const char* name) {
  const char* const text = std::getenv(name);
  return text == nullptr ? "" : text;
}

// Host threads that run blocks. There are as many as blocks have run at once.
class Workers {
 public:
  using Work = std::function<void(Block&)>;
  void run(Work work) {
    const std::lock_guard lock(mutex_);
    queue_.push_back(std::move(work));
    if (queue_.size() > idle_) {
      ++idle_;  // It is counted from now on, so that the next call does not count on it, too.
      std::thread([this] { serve(); }).detach();
    }
    added_.notify_one();
  }

 private:
  void serve() {
    Block block;
    std::unique_lock lock(mutex_);
    while (true) {
      added_.wait(lock, [&] { return !queue_.empty(); });
      const Work work = std::move(queue_.front());
      queue_.pop_front();
      --idle_;
      lock.unlock();
      work(block);
      lock.lock();
      ++idle_;
    }
  }

  std::mutex mutex_;
  std::condition_variable added_;
  std::deque<Work> queue_;
  std::size_t idle_ = 0;
};

Workers& workers() { return only<Workers>(); }

// Ends the process when a grid takes too long, for example since a kernel waits forever.
class Watchdog {
 public:
  struct Grid {
    const char* kernel;
    Clock::time_point begin;
    std::uint64_t blocks;
    std::uint64_t ended = 0;
  };
  Watchdog() {
    if (settings().timeout_ms > 0) std::thread([this] { watch(); }).detach();
  }
  std::list<Grid>::iterator add(const Launch& launch) {
    const std::lock_guard lock(mutex_);
    return grids_.insert(grids_.end(), {launch.kernel->name, Clock::now(), launch.grid.count()});
  }
  void ended(std::list<Grid>::iterator grid) {
    const std::lock_guard lock(mutex_);
    ++grid->ended;
  }
  void remove(std::list<Grid>::iterator grid) {
    const std::lock_guard lock(mutex_);
    grids_.erase(grid);
  }

 private:
  void watch() {
    const std::chrono::milliseconds limit(settings().timeout_ms);
    while (true) {
      std::this_thread::sleep_for(
          std::min<Clock::duration>(limit / 4, std::chrono::milliseconds(50)));
      const std::lock_guard lock(mutex_);
      const auto late = std::find_if(grids_.begin(), grids_.end(), [&](const Grid& grid) {
        return Clock::now() - grid.begin > limit;
      });
      if (late == grids_.end()) continue;
      for (const Grid& grid : grids_)
        std::fprintf(
            stderr, "stand-in: kernel %s: %lld ms, %llu of %llu blocks have ended\n", grid.kernel,
            static_cast<long long>(
                std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - grid.begin)
                    .count()),
            static_cast<unsigned long long>(grid.ended),
            static_cast<unsigned long long>(grid.blocks));
      std::fprintf(stderr, "stand-in: time-out (FAKE_CUDA_TIMEOUT_MS=%d)\n", settings().timeout_ms);
      _exit(86);
    }
  }

  std::mutex mutex_;
  std::list<Grid> grids_;
};

Watchdog& watchdog() { return only<Watchdog>(); }

// In the order of their numbers; with jitter, in any order, since a GPU promises none.
std::vector<Size3> blocks_of(const Launch& launch) {
  std::vector<Size3> blocks;
  for (std::uint32_t z = 0; z < launch.grid.z; ++z)
    for (std::uint32_t y = 0; y < launch.grid.y; ++y)
      for (std::uint32_t x = 0; x < launch.grid.x; ++x) blocks.push_back({x, y, z});
  if (launch.jitter != 0) {
    std::minstd_rand random(static_cast<std::uint32_t>(launch.jitter));
    std::shuffle(blocks.begin(), blocks.end(), random);
  }
  return blocks;
}

}  // namespace

Settings::Settings()
    : devices(static_cast<int>(number_of("FAKE_CUDA_DEVICES", 1))),
      blocks(static_cast<int>(std::max(number_of("FAKE_CUDA_SMS", 16), 1L))),
      blocks_file(text_of("FAKE_CUDA_SMS_FILE")),
      jitter(static_cast<std::uint64_t>(number_of("FAKE_CUDA_JITTER", 0))),
      timeout_ms(static_cast<int>(number_of("FAKE_CUDA_TIMEOUT_MS", 0))),
      kernels(text_of("FAKE_CUDA_KERNELS")),
      free_waits(number_of("FAKE_CUDA_FREE_WAITS", 0) != 0),
      peers(text_of("FAKE_CUDA_PEERS")),
      full_device(static_cast<int>(number_of("FAKE_CUDA_FULL_DEVICE", -1))) {}

const Settings& settings() { return only<Settings>(); }

void jitter(std::uint64_t seed) {
  if (settings().jitter == 0) return;
  const std::uint64_t drawn = (seed + settings().jitter) * 0x9e3779b97f4a7c15 >> 32;
  if (drawn % 4 == 0) std::this_thread::sleep_for(std::chrono::microseconds(drawn / 4 % 200));
}

// Record locks of an open file description vanish with the process, so that one that is killed
// leaves its places to others.
int Device::lock_place() const {
  const int file = open(settings().blocks_file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (file < 0) {
    std::perror("stand-in: FAKE_CUDA_SMS_FILE");
    _exit(86);
  }
  while (true) {
    for (int place = 0; place < settings().blocks; ++place) {
      struct flock lock {};
      lock.l_type = F_WRLCK;
      lock.l_whence = SEEK_SET;
      lock.l_start = ordinal_ * 65536 + place;
      lock.l_len = 1;
      if (fcntl(file, F_OFD_SETLK, &lock) == 0) return file;
    }
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
}

int Device::enter() {
  if (!settings().blocks_file.empty()) return lock_place();
  std::unique_lock lock(mutex_);
  left_.wait(lock, [&] { return resident_ < settings().blocks; });
  ++resident_;
  return -1;
}

void Device::exit(int place) {
  if (place >= 0) {
    close(place);
    return;
  }
  const std::lock_guard lock(mutex_);
  --resident_;
  left_.notify_all();
}

void Device::run(Launch launch) {
  std::mutex mutex;
  std::condition_variable ended;
  std::uint64_t running = 0;
  const auto watched = watchdog().add(launch);
  for (const Size3 block : blocks_of(launch)) {
    const int place = enter();
    {
      const std::lock_guard lock(mutex);
      ++running;
    }
    workers().run([&, block, place](Block& runner) {
      jitter(launch.jitter + block.x);
      runner.run(launch, block);
      exit(place);
      watchdog().ended(watched);
      const std::lock_guard lock(mutex);
      --running;
      ended.notify_all();
    });
  }
  std::unique_lock lock(mutex);
  ended.wait(lock, [&] { return running == 0; });
  watchdog().remove(watched);
}

}  // namespace tutti::stand_in
