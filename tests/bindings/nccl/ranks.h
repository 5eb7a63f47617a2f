// Runs ranks of NCCL programs: as threads, processes, and all in one thread.
#pragma once

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "../../runtime/processes.h"
#include "functions.h"

namespace tutti::test {

/// Throws what ncclGetLastError says unless a function has succeeded.
inline void check(ncclResult_t result, const char* call) {
  if (result != ncclSuccess)
    throw std::runtime_error(std::string(call) + " gave " + std::to_string(result) + ": " +
                             ncclGetLastError(nullptr));
}
#define CHECK_NCCL(call) ::tutti::test::check(call, #call)

/// Throws unless the two are equal; for ranks, in which GoogleTest cannot report.
template <typename T, typename U>
void expect_equal(const T& found, const U& wanted, const std::string& what) {
  if (!(found == wanted)) throw std::runtime_error(what + " is not what is expected");
}

/// Returns a configuration for communicators that are not blocking.
inline ncclConfig_t not_blocking() {
  ncclConfig_t config;
  config.blocking = 0;
  return config;
}

/// Returns the state of a communicator that is not blocking once it is there or has failed.
inline ncclResult_t settled(ncclComm_t comm) {
  ncclResult_t state = ncclInProgress;
  while (state == ncclInProgress) {
    CHECK_NCCL(ncclCommGetAsyncError(comm, &state));
    std::this_thread::yield();
  }
  return state;
}

/// Returns the number of this rank, and of all, once the communicator is there.
inline int rank_of(ncclComm_t comm) {
  int rank = -1;
  CHECK_NCCL(ncclCommUserRank(comm, &rank));
  return rank;
}

inline int size_of_comm(ncclComm_t comm) {
  int size = -1;
  CHECK_NCCL(ncclCommCount(comm, &size));
  return size;
}

/// Returns the sum of the values of all ranks.
inline int sum(ncclComm_t comm, int value) {
  int result = 0;
  CHECK_NCCL(ncclAllReduce(&value, &result, 1, ncclInt32, ncclSum, comm, nullptr));
  return result;
}

/// An id that one rank makes and that processes forked afterwards, or threads, wait for.
class SharedId {
 public:
  SharedId() {
    void* const memory =
        mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw std::runtime_error("no shared memory");
    shared_ = new (memory) Shared;
  }
  ~SharedId() { munmap(shared_, sizeof(Shared)); }
  SharedId(const SharedId&) = delete;
  SharedId& operator=(const SharedId&) = delete;

  void set(const ncclUniqueId& id) {
    shared_->id = id;
    shared_->is_set = true;
  }
  ncclUniqueId get() const {
    while (!shared_->is_set) usleep(1000);  // The watchdog bounds it.
    return shared_->id;
  }
  /// The id, which rank 0 makes.
  ncclUniqueId of_rank(int rank) {
    ncclUniqueId id;
    if (rank != 0) return get();
    CHECK_NCCL(ncclGetUniqueId(&id));
    set(id);
    return id;
  }

 private:
  struct Shared {
    ncclUniqueId id;
    std::atomic<bool> is_set{false};
  };
  Shared* shared_;
};

using Body = std::function<void(ncclComm_t comm, int rank, int size)>;

/// Runs `body` in a process for each rank; it returns after the communicator has been destroyed.
inline void in_processes(int size, const Body& body) {
  SharedId id;
  Processes ranks(size, [&](int rank) {
    ncclComm_t comm = nullptr;
    CHECK_NCCL(ncclCommInitRank(&comm, size, id.of_rank(rank), rank));
    body(comm, rank, size);
    CHECK_NCCL(ncclCommDestroy(comm));
  });
  for (int rank = 0; rank < size; ++rank) EXPECT_EQ(ranks.outcome(rank), "") << "rank " << rank;
}

/// Makes what a thread needs for as long as it is `rank`, and runs the rest of the thread in it.
using Around = std::function<void(int rank, const std::function<void()>& run)>;

/// Runs `body` in a thread for each rank.
inline void in_threads(
    int size, const Body& body, const Around& around = [](int, const auto& run) { run(); }) {
  SharedId id;
  std::vector<std::string> errors(static_cast<std::size_t>(size));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank)
    threads.emplace_back([&, rank] {
      try {
        around(rank, [&] {
          ncclComm_t comm = nullptr;
          CHECK_NCCL(ncclCommInitRank(&comm, size, id.of_rank(rank), rank));
          body(comm, rank, size);
          CHECK_NCCL(ncclCommDestroy(comm));
        });
      } catch (const std::exception& error) {
        errors[static_cast<std::size_t>(rank)] = error.what();
      }
    });
  for (std::thread& thread : threads) thread.join();
  for (const std::string& error : errors) EXPECT_EQ(error, "");
}

/// Holds communicators for all ranks, in one thread.
class InOneThread {
 public:
  explicit InOneThread(int size) : comms(static_cast<std::size_t>(size)) {
    CHECK_NCCL(ncclCommInitAll(comms.data(), size, nullptr));
  }
  ~InOneThread() {
    for (ncclComm_t comm : comms) EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
  }
  InOneThread(const InOneThread&) = delete;
  InOneThread& operator=(const InOneThread&) = delete;

  std::vector<ncclComm_t> comms;
};

}  // namespace tutti::test
