#include "bindings/nccl/group.h"

#include <algorithm>
#include <chrono>
#include <string>
#include <thread>
#include <tutti/error.hpp>
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
  started_.push_back({comm.get(), waits});
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
  started_.clear();
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
    bool has_thread = true;
    if (job.comm->settings.blocking) {
      threads.push_back(make_in_thread(job.comm, std::move(job.make)));
      has_thread = threads.back().joinable();
    } else {
      has_thread = make_later(job.comm, std::move(job.make));
    }
    if (has_thread || result != ncclSuccess) continue;
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

// Communicators that the group makes of others come before its calls of these, as on other ranks.
ncclResult_t ThreadGroup::run_calls() {
  if (communicators_.empty()) return ncclSuccess;
  std::sort(communicators_.begin(), communicators_.end());  // the order in which all threads lock
  for (const auto& comm : communicators_) await_parts(*comm);
  Locks locks;
  bool blocking = true;
  for (const auto& comm : communicators_) {
    refuse_inherited(*comm);
    locks.emplace_back(comm->calls);
    if (comm->closed)
      throw Failure(ncclInvalidUsage,
                    "a communicator of the group was destroyed by another thread");
    blocking = blocking && comm->settings.blocking;
  }
  const WithContext context(communicators_.front()->gpu, communicators_.front()->device);
  for (const auto& copy : copies_) copy();
  if (communicators_.size() == 1 && waits_ && blocking) {
    group_->end();
    return ncclSuccess;
  }
  std::vector<Work> works = group_->start();
  for (std::size_t call = 0; call < works.size(); ++call) {
    started_[call].work = works[call];
    keep(*started_[call].comm, std::move(works[call]), started_[call].waits);
  }
  if (!waits_) return ncclSuccess;
  if (!blocking) return ncclInProgress;
  await_calls(locks);
  return ncclSuccess;
}

// Lets a communicator go once its own calls have ended, so that another thread may abort it while
// this one waits for the others. The first error ends the waiting, since the program may have to
// act on it before ranks of the other communicators go on; their calls stay under way.
void ThreadGroup::await_calls(Locks& locks) {
  constexpr std::chrono::milliseconds kSlice{10};
  const auto is_done = [](const Started& each) { return !each.waits || each.work.done(); };
  for (;;) {
    for (Started& each : started_)
      if (each.waits && each.work.done()) each.work.wait();  // throws its error
    for (std::size_t number = 0; number < locks.size(); ++number)
      if (locks[number].owns_lock() &&
          std::all_of(started_.begin(), started_.end(), [&](const Started& each) {
            return each.comm != communicators_[number].get() || is_done(each);
          }))
        locks[number].unlock();
    const auto next = std::find_if_not(started_.begin(), started_.end(), is_done);
    if (next == started_.end()) return;
    static_cast<void>(next->work.wait_for(kSlice));
  }
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
