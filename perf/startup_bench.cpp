// Measures how long many ranks, as threads of this process, take to start over a TCP store on the
// loopback and to join within the process, and how much memory they need; then measures their first
// collectives.
// usage: startup_bench [ranks]
#include <sys/resource.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <thread>
#include <vector>

#include "common/descriptors.h"
#include "common/log.h"
#include "rendezvous/store/open_store.h"
#include "runtime/communicator_impl.h"
#include "runtime/membership/setup.h"

namespace {

using Clock = std::chrono::steady_clock;

double gib_at_most() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) / (1 << 20);
}

/// Prints the name of a milestone, and the time and memory since the start.
class Milestones {
 public:
  void tell(const char* what) const {
    const std::chrono::duration<double> passed = Clock::now() - start_;
    std::printf("  %-28s %8.2f s %8.2f GiB\n", what, passed.count(), gib_at_most());
  }
  Clock::time_point start() const { return start_; }

 private:
  const Clock::time_point start_ = Clock::now();
};

class Ranks {
 public:
  explicit Ranks(int count) : count_(count) {
    config_.secret = "of the measurement's own job";
    config_.log_level = tutti::LogLevel::error;
    process_ = {std::make_shared<tutti::Runtime>(config_),
                std::make_shared<tutti::local::Hub>(count)};
  }

  void run() {
    std::printf("%d ranks\n", count_);
    std::vector<std::thread> threads;
    for (int rank = 0; rank < count_; ++rank)
      threads.emplace_back([this, rank] {
        try {
          live(rank);
        } catch (const std::exception& error) {
          std::fprintf(stderr, "%s\n", error.what());
          std::exit(1);
        }
      });
    for (std::thread& thread : threads) thread.join();
    milestones_.tell("all have ended");
  }

 private:
  void live(int rank) {
    tutti::LaunchEnvironment launch;
    launch.rank = rank;
    launch.size = count_;
    launch.master_address = "127.0.0.1";
    launch.master_port = 29'700;
    launch.tcp_alone = true;
    tutti::OpenedStore opened = tutti::open_store(
        launch, config_, milestones_.start() + std::chrono::minutes(2), process_.runtime->log());
    reach("all have joined the store");
    tutti::Communicator comm =
        tutti::CommunicatorImpl::make(tutti::join_threads(std::move(opened.store), rank, process_));
    reach("all have started");
    comm.barrier();
    reach("a barrier");
    std::int64_t sum = rank;
    comm.all_reduce(std::span(&sum, 1));
    if (sum != std::int64_t{count_} * (count_ - 1) / 2) throw std::runtime_error("a wrong sum");
    reach("an all_reduce of 8 bytes");
    for (int i = 0; i < 10; ++i) comm.all_reduce(std::span(&sum, 1));
    reach("ten more");
  }

  // Sleeps until all ranks have come; the last one reports the milestone.
  void reach(const char* what) {
    const int phase = phase_;
    if (++reached_ % count_ != 0) return phase_.wait(phase);
    milestones_.tell(what);
    ++phase_;
    phase_.notify_all();
  }

  const int count_;
  tutti::Config config_;
  tutti::Process process_;
  const Milestones milestones_;
  std::atomic<int> reached_{0}, phase_{0};
};

}  // namespace

int main(int argc, char** argv) {
  const int ranks = argc > 1 ? std::atoi(argv[1]) : 4096;
  // A rank has four descriptors: both ends of its connection to the store, a doorbell, and an epoll
  // to sleep in.
  tutti::allow_descriptors(5 * static_cast<std::size_t>(ranks));
  Ranks(ranks).run();
}
