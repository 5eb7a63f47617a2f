// Collects the calls between ncclGroupStart and ncclGroupEnd of a thread.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <tutti/work.hpp>
#include <vector>

#include "bindings/nccl/abi.h"
#include "bindings/nccl/communicator.h"

namespace tutti::nccl {

/// Collects the calls of one thread's group. Nothing is done before its end, and nothing at all if
/// one of its calls is wrong.
class ThreadGroup {
 public:
  struct Job {
    std::shared_ptr<ncclComm> comm;
    ncclComm_t* place;
    Make make;
  };

  bool is_open() const noexcept { return depth_ > 0; }
  void start() noexcept { ++depth_; }
  /// Makes communicators, starts calls, and destroys communicators, in this order. It waits for
  /// calls on host buffers without a stream, and for communicators that are blocking.
  ncclResult_t end();
  /// Notes the result of a call, and returns it.
  ncclResult_t note(ncclResult_t result) noexcept {
    if (is_open() && result != ncclSuccess && result != ncclInProgress && failure_ == ncclSuccess)
      failure_ = result;
    return result;
  }

  /// Returns the group of the library, for a call of `comm`; `waits` says that end() is to wait for
  /// it.
  Group& calls(const std::shared_ptr<ncclComm>& comm, bool waits);
  /// Adds what is done before the calls start, unless the group fails.
  void add_copy(std::function<void()> copy) { copies_.push_back(std::move(copy)); }
  void add(Job job) { jobs_.push_back(std::move(job)); }
  /// Adds what is done last, also where the group fails.
  void add_end(std::function<ncclResult_t()> finish) { ends_.push_back(std::move(finish)); }

 private:
  /// A call of the group.
  struct Started {
    ncclComm* comm;
    bool waits;  ///< Whether end() is to wait for it.
    Work work = {};
  };
  using Locks = std::vector<std::unique_lock<std::mutex>>;

  ncclResult_t run_jobs();
  ncclResult_t run_calls();
  void await_calls(Locks& locks);
  void drop() noexcept;

  int depth_ = 0;
  ncclResult_t failure_ = ncclSuccess;
  std::optional<Group> group_;  // Made when it is first used.
  bool waits_ = false;
  std::vector<std::shared_ptr<ncclComm>> communicators_;  // of the calls, each once
  std::vector<Started> started_;                          // the calls, in their order
  std::vector<std::function<void()>> copies_;
  std::vector<Job> jobs_;
  std::vector<std::function<ncclResult_t()>> ends_;
};

/// NCCL's interface has no handle for a group: it belongs to the thread.
ThreadGroup& thread_group() noexcept;

/// Runs `body` as guarded() does, and notes its result in the thread's group.
template <typename Body>
ncclResult_t in_group(Body&& body) noexcept {
  return thread_group().note(guarded(std::forward<Body>(body)));
}

}  // namespace tutti::nccl
