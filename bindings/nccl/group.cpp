#include "bindings/nccl/group.h"

#include <algorithm>
#include <string>
#include <thread>
#include <utility>

#include "bindings/nccl/errors.h"

namespace tutti::nccl {

ThreadGroup& thread_group() noexcept {
  thread_local ThreadGroup group;
  return group;
}

Group& ThreadGroup::calls(const std::shared_ptr<ncclComm>& comm, bool waits) {
  if (std::find(communicators_.begin(), communicators_.end(), comm) == communicators_.end())
    communicators_.push_back(comm);
  waits_ = waits_ || waits;
  if (!group_) group_.emplace();
  return *group_;
}

ncclResult_t ThreadGroup::end() {
  if (depth_ == 0) throw Failure(ncclInvalidUsage, "ncclGroupEnd without ncclGroupStart");
  if (--depth_ > 0) return ncclSuccess;
  ncclResult_t result = std::exchange(failure_, ncclSuccess);
  const auto failed = [&] { return result != ncclSuccess && result != ncclInProgress; };
  if (!failed()) result = guarded([&] { return run_jobs(); });
  if (!failed())
    if (const ncclResult_t calls = guarded([&] { return run_calls(); }); calls != ncclSuccess)
      result = calls;
  if (failed()) drop();
  communicators_.clear();
  copies_.clear();
  waits_ = false;
  for (const auto& finish : std::exchange(ends_, {}))
    if (const ncclResult_t ended = finish(); ended != ncclSuccess && !failed()) result = ended;
  return result;
}

// Communicators of several ranks in one thread are made side by side, as each waits for the others.
ncclResult_t ThreadGroup::run_jobs() {
  std::vector<Job> jobs = std::exchange(jobs_, {});
  std::vector<std::thread> threads;
  ncclResult_t result = ncclSuccess;
  for (Job& job : jobs) {
    std::thread thread = make_in_thread(*job.comm, std::move(job.make));
    const bool has_failed = !thread.joinable();
    if (job.comm->settings.blocking)
      threads.push_back(std::move(thread));
    else
      set_job(*job.comm, std::move(thread));
    if (!has_failed || result != ncclSuccess) continue;
    result = job.comm->state;
    remember(job.comm->error.c_str());
    for (const Job& other : jobs) *other.comm->given_up = true;  // They would wait for it.
  }
  for (std::thread& thread : threads)
    if (thread.joinable()) thread.join();
  for (const Job& job : jobs) {
    if (!job.comm->settings.blocking) {
      if (result == ncclSuccess) result = ncclInProgress;
      continue;
    }
    ncclResult_t state = job.comm->state;
    const char* why = job.comm->error.c_str();
    if (state == ncclSuccess && job.comm->ending) {
      state = ncclInvalidUsage;
      why = "a communicator of the group was destroyed by another thread";
    }
    if (state == ncclSuccess && job.comm->made) continue;
    if (state != ncclSuccess && (result == ncclSuccess || result == ncclInProgress)) {
      remember(why);
      result = state;
    }
    *job.place = nullptr;
    destroy_once(job.comm);
  }
  return result;
}

ncclResult_t ThreadGroup::run_calls() {
  if (communicators_.empty()) return ncclSuccess;
  std::sort(communicators_.begin(), communicators_.end());  // the order in which all threads lock
  std::vector<std::unique_lock<std::mutex>> locks;
  bool blocking = true;
  for (const auto& comm : communicators_) {
    refuse_inherited(*comm);
    locks.emplace_back(comm->calls);
    if (comm->closed)
      throw Failure(ncclInvalidUsage,
                    "a communicator of the group was destroyed by another thread");
    blocking = blocking && comm->settings.blocking;
  }
  for (const auto& copy : copies_) copy();
  if (waits_ && blocking) {
    group_->end();
    return ncclSuccess;
  }
  const Work work = group_->end_async();
  for (const auto& comm : communicators_) keep(*comm, work, waits_);
  return waits_ ? ncclInProgress : ncclSuccess;
}

// Leaves out what has not been done.
void ThreadGroup::drop() noexcept {
  for (const Job& job : jobs_) {
    *job.place = nullptr;
    destroy_once(job.comm);
  }
  jobs_.clear();
  group_.reset();
}

}  // namespace tutti::nccl
