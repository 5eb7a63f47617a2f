// Many ranks, as threads of this process, find each other over a TCP store on the loopback: how
// long, and in how much memory. usage: startup_bench [ranks]
#include <sys/resource.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <thread>
#include <vector>

#include "common/log.h"
#include "rendezvous/agreement.h"
#include "rendezvous/hello.h"
#include "rendezvous/open_store.h"

namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

double most_gib() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) / (1 << 20);
}

tutti::Hello hello() {
  tutti::Hello mine;
  mine.version = "0.1.0";
  mine.settings = std::string(400, 's');
  mine.host = tutti::host_identity();
  mine.addresses["tcp"] = std::string(120, 'a');
  return mine;
}

class Ranks {
 public:
  explicit Ranks(int count) : count_(count) {}

  void run() {
    std::vector<std::thread> threads;
    const auto start = Clock::now();
    for (int rank = 0; rank < count_; ++rank) threads.emplace_back([this, rank] { meet(rank); });
    for (std::thread& thread : threads) thread.join();
    std::printf(
        "%d ranks: all have joined after %.2f s, and know each other after %.2f s; %.2f "
        "GiB; %d failed\n",
        count_, joined_s_.load(), met_s_.load(), most_gib(), failed_.load());
    std::printf("with the end of the store: %.2f s\n", seconds_since(start));
  }

 private:
  void meet(int rank) {
    try {
      tutti::LaunchEnvironment launch;
      launch.rank = rank;
      launch.size = count_;
      launch.master_address = "127.0.0.1";
      launch.master_port = 29'700;
      launch.tcp_alone = true;
      tutti::Config config;
      config.secret = "of the measurement's own job";
      tutti::Log log(tutti::LogLevel::error, {});
      const auto deadline = start_ + std::chrono::minutes(2);
      const auto opened = tutti::open_store(launch, config, deadline, log);
      if (++joined_ == count_) joined_s_ = seconds_since(start_);
      exchange(*opened.store, rank, deadline);
      if (++met_ == count_) met_s_ = seconds_since(start_);
    } catch (const std::exception& error) {
      if (failed_++ == 0) std::fprintf(stderr, "%s\n", error.what());
    }
  }

  void exchange(tutti::Store& store, int rank, Clock::time_point deadline) const {
    tutti::check_agreement(tutti::exchange_hellos(store, "job", rank, count_, hello(), deadline),
                           rank);
  }

  const int count_;
  const Clock::time_point start_ = Clock::now();
  std::atomic<int> joined_{0}, met_{0}, failed_{0};
  std::atomic<double> joined_s_{0}, met_s_{0};
};

}  // namespace

int main(int argc, char** argv) {
  Ranks(argc > 1 ? std::atoi(argv[1]) : 4096).run();
  return 0;
}
