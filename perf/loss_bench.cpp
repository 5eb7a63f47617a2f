// Measures how long it takes until all threads of all surviving ranks know that a rank was killed.
// Each rank is a process with several communicators, in each of which a thread of its own waits for
// the victim. usage: loss_bench [shm|tcp] [ranks] [communicators] [times]
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include <tutti/tutti.hpp>

namespace {

using Clock = std::chrono::steady_clock;  // which processes share
constexpr int kMost = 256;
constexpr std::chrono::seconds kPatience{30};

/// The ranks write this memory, and the measuring process reads it.
struct Shared {
  std::atomic<int> waiting{0};
  std::atomic<int> wrong{0};
  std::atomic<std::int64_t> known[kMost];  // when each thread knew it
};

struct Job {
  std::string transport;
  int ranks, communicators, port;
};

void wait_for_loss(tutti::Communicator& comm, Shared& shared, int thread) {
  try {
    ++shared.waiting;
    comm.barrier();  // The last rank never enters it.
    ++shared.wrong;
  } catch (const tutti::Error& error) {
    shared.known[thread] = Clock::now().time_since_epoch().count();
    if (error.kind() != tutti::ErrorKind::peer_lost) ++shared.wrong;
  }
}

[[noreturn]] void live(const Job& job, int rank, Shared& shared) {
  setenv("RANK", std::to_string(rank).c_str(), 1);
  setenv("LOCAL_RANK", std::to_string(rank).c_str(), 1);
  setenv("WORLD_SIZE", std::to_string(job.ranks).c_str(), 1);
  setenv("MASTER_ADDR", "127.0.0.1", 1);
  setenv("MASTER_PORT", std::to_string(job.port).c_str(), 1);
  setenv("TUTTI_TRANSPORTS", job.transport.c_str(), 1);
  setenv("TUTTI_TIMEOUT_MS", "30000", 1);
  {
    tutti::Communicator first = tutti::Communicator::from_env();
    std::vector<tutti::Communicator> all;
    for (int i = 0; i < job.communicators; ++i) all.push_back(first.dup());
    if (rank == job.ranks - 1)
      for (;;) pause();
    std::vector<std::thread> threads;
    for (int i = 0; i < job.communicators; ++i)
      threads.emplace_back([&, i] {
        wait_for_loss(all[static_cast<std::size_t>(i)], shared, rank * job.communicators + i);
      });
    for (std::thread& thread : threads) thread.join();
  }
  _exit(0);
}

/// Runs a job, kills its last rank, and returns after how many milliseconds the last thread knew
/// it, or -1 if something went wrong.
double measure(const Job& job, Shared& shared) {
  new (&shared) Shared;
  std::vector<pid_t> pids;
  for (int rank = 0; rank < job.ranks; ++rank) {
    const pid_t pid = fork();
    if (pid == 0) live(job, rank, shared);
    pids.push_back(pid);
  }
  const int threads = (job.ranks - 1) * job.communicators;
  const auto limit = Clock::now() + kPatience;
  while (shared.waiting < threads && Clock::now() < limit)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  // The threads that wait have polled in vain by now, and sleep, as they do in most of a long wait.
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  const std::int64_t killed = Clock::now().time_since_epoch().count();
  kill(pids.back(), SIGKILL);
  bool right = shared.waiting == threads;
  for (const pid_t pid : pids) {
    int status = 0;
    if (waitpid(pid, &status, 0) != pid) right = false;
  }
  std::int64_t last = killed;
  for (int i = 0; i < threads; ++i) {
    if (shared.known[i] < killed) right = false;
    last = std::max<std::int64_t>(last, shared.known[i]);
  }
  return right && shared.wrong == 0 ? static_cast<double>(last - killed) / 1e6 : -1;
}

}  // namespace

int main(int argc, char** argv) {
  Job job{argc > 1 ? argv[1] : "shm", argc > 2 ? std::atoi(argv[2]) : 4,
          argc > 3 ? std::atoi(argv[3]) : 4, 0};
  const int times = argc > 4 ? std::atoi(argv[4]) : 50;
  if (job.ranks < 2 || job.communicators < 1 || (job.ranks - 1) * job.communicators > kMost)
    return 2;
  void* const page =
      mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) return 1;
  Shared& shared = *new (page) Shared;
  std::vector<double> all;
  for (int i = 0; i < times; ++i) {
    job.port = 20'000 + static_cast<int>((getpid() * 131L + i) % 40'000);
    all.push_back(measure(job, shared));
    if (all.back() < 0) {
      std::fprintf(stderr, "a rank did not get peer_lost\n");
      return 1;
    }
  }
  std::sort(all.begin(), all.end());
  std::printf("%s, %d ranks, %d communicators: median %.1f ms, least %.1f, most %.1f, of %d\n",
              job.transport.c_str(), job.ranks, job.communicators, all[all.size() / 2], all.front(),
              all.back(), times);
}
