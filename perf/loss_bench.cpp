// Measures how long it takes until all threads of all surviving ranks know that a rank was killed,
// until they have shrunk their first communicator after that, and until the new one has grown by a
// newcomer that waits already. Each rank is a process with several communicators, in each of which
// a thread of its own waits for the victim. usage: loss_bench [shm|tcp] [ranks] [communicators]
// [times]
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
#include <exception>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include <tutti/tutti.hpp>

#include "transport/registry.h"

namespace {

using Clock = std::chrono::steady_clock;  // which processes share
constexpr int kMost = 256;
constexpr std::chrono::seconds kPatience{30};

/// The ranks write this memory, and the measuring process reads it.
struct Shared {
  std::atomic<int> waiting{0};
  std::atomic<int> wrong{0};
  std::atomic<std::int64_t> known[kMost];  // when each thread knew it
  // These say when each rank had the communicator that was left, began to let it grow, and had the
  // one that had grown.
  std::atomic<std::int64_t> shrunk[kMost], grows[kMost], grown[kMost];
};

std::int64_t now() { return Clock::now().time_since_epoch().count(); }

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
    shared.known[thread] = now();
    if (error.kind() != tutti::ErrorKind::peer_lost) ++shared.wrong;
  }
}

void set_environment(const Job& job) {
  setenv("MASTER_ADDR", "127.0.0.1", 1);
  setenv("MASTER_PORT", std::to_string(job.port).c_str(), 1);
  setenv("TUTTI_TRANSPORTS", job.transport.c_str(), 1);
  setenv("TUTTI_TIMEOUT_MS", "30000", 1);
}

void come(const Job& job, Shared& shared) {
  set_environment(job);
  tutti::Communicator grown = tutti::Communicator::join();
  shared.grown[job.ranks - 1] = now();
  if (grown.size() != job.ranks) ++shared.wrong;
  grown.barrier();
}

void live(const Job& job, int rank, Shared& shared) {
  set_environment(job);
  setenv("RANK", std::to_string(rank).c_str(), 1);
  setenv("LOCAL_RANK", std::to_string(rank).c_str(), 1);
  setenv("WORLD_SIZE", std::to_string(job.ranks).c_str(), 1);
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
  tutti::Communicator left = first.shrink(kPatience);
  shared.shrunk[rank] = now();
  if (left.size() != job.ranks - 1) ++shared.wrong;
  left.barrier();
  shared.grows[rank] = now();
  tutti::Communicator grown = left.grow(1, kPatience);
  shared.grown[rank] = now();
  if (grown.size() != job.ranks) ++shared.wrong;
  grown.barrier();
}

/// Calls `body` in a new process, which ends with it. An error is printed, and its status is 1.
template <typename Body>
pid_t run_apart(Body body) {
  const pid_t pid = fork();
  if (pid != 0) return pid;
  try {
    body();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "loss_bench: %s\n", error.what());
    _exit(1);
  }
  _exit(0);
}

/// Holds how many milliseconds passed until the last thread knew that a rank was lost, from then on
/// until the last rank had the communicator without it, and in the grow.
struct Taken {
  bool right = true;
  double known = 0, shrunk = 0, grown = 0;
};

std::int64_t last_of(const std::atomic<std::int64_t>* times, int count) {
  std::int64_t last = 0;
  for (int i = 0; i < count; ++i) last = std::max<std::int64_t>(last, times[i]);
  return last;
}

/// Runs a job, and kills its last rank.
Taken measure(const Job& job, Shared& shared) {
  new (&shared) Shared;
  std::vector<pid_t> pids{run_apart([&] { come(job, shared); })};
  for (int rank = 0; rank < job.ranks; ++rank)
    pids.push_back(run_apart([&] { live(job, rank, shared); }));
  const int threads = (job.ranks - 1) * job.communicators;
  const auto limit = Clock::now() + kPatience;
  while (shared.waiting < threads && Clock::now() < limit)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  // The threads that wait have polled in vain by now, and sleep, as they do in most of a long wait.
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  const std::int64_t killed = now();
  kill(pids.back(), SIGKILL);
  Taken taken{shared.waiting == threads};
  for (const pid_t pid : pids) {
    int status = 0;
    const bool ended = waitpid(pid, &status, 0) == pid;
    if (!ended || (pid != pids.back() && status != 0)) taken.right = false;
  }
  for (int i = 0; i < threads; ++i)
    if (shared.known[i] < killed) taken.right = false;
  if (shared.wrong != 0) taken.right = false;
  const auto since = [](std::int64_t begin, std::int64_t end) {
    return static_cast<double>(end - begin) / 1e6;
  };
  const std::int64_t news = last_of(shared.known, threads);
  taken.known = since(killed, news);
  taken.shrunk = since(news, last_of(shared.shrunk, job.ranks - 1));
  taken.grown = since(last_of(shared.grows, job.ranks - 1), last_of(shared.grown, job.ranks));
  return taken;
}

/// Says what is wrong with the arguments, or nothing if they can be used.
std::string why_wrong(const Job& job, int times) {
  try {
    static_cast<void>(tutti::parse_transports(job.transport));
  } catch (const tutti::Error& error) {
    return error.what();
  }
  if (times >= 1 && job.ranks >= 2 && job.communicators >= 1 && job.ranks <= kMost &&
      job.communicators <= kMost && (job.ranks - 1) * job.communicators <= kMost)
    return "";
  return "there are 2 ranks at least, 1 communicator, 1 time, and " + std::to_string(kMost) +
         " threads that wait at most";
}

void print(const char* what, std::vector<double> all) {
  std::sort(all.begin(), all.end());
  std::printf("  %-7s median %.1f ms, least %.1f, most %.1f\n", what, all[all.size() / 2],
              all.front(), all.back());
}

}  // namespace

int main(int argc, char** argv) {
  Job job{argc > 1 ? argv[1] : "shm", argc > 2 ? std::atoi(argv[2]) : 4,
          argc > 3 ? std::atoi(argv[3]) : 4, 0};
  const int times = argc > 4 ? std::atoi(argv[4]) : 50;
  if (const std::string why = why_wrong(job, times); !why.empty()) {
    std::fprintf(stderr,
                 "loss_bench: %s\nusage: loss_bench [shm|tcp] [ranks] [communicators] [times]\n",
                 why.c_str());
    return 2;
  }
  void* const page =
      mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) return 1;
  Shared& shared = *new (page) Shared;
  std::vector<double> known, shrunk, grown;
  for (int i = 0; i < times; ++i) {
    job.port = 20'000 + static_cast<int>((getpid() * 131L + i) % 40'000);
    const Taken taken = measure(job, shared);
    if (!taken.right) {
      std::fprintf(stderr, "a rank did not get peer_lost, or did not go on\n");
      return 1;
    }
    known.push_back(taken.known);
    shrunk.push_back(taken.shrunk);
    grown.push_back(taken.grown);
  }
  std::printf("%s, %d ranks, %d communicators, %d times\n", job.transport.c_str(), job.ranks,
              job.communicators, times);
  print("known", known);
  print("shrunk", shrunk);
  print("grown", grown);
}
