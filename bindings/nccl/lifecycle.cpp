// The functions that end communicators and their calls, and those that tell how they ended.
#include <algorithm>
#include <system_error>
#include <thread>
#include <utility>

#include "bindings/nccl/communicator.h"
#include "bindings/nccl/errors.h"
#include "bindings/nccl/group.h"

namespace tutti::nccl {
namespace {

ncclResult_t finish(ncclComm& comm) noexcept {
  return guarded([&] {
    const Calling calling(comm);
    finish_calls(comm);
  });
}

// Finishes the communicator, in a thread if it is not blocking.
ncclResult_t finish_or_begin(const std::shared_ptr<ncclComm>& comm) {
  if (comm->settings.blocking) return finish(*comm);
  comm->state = ncclInProgress;
  try {
    start_job(*comm, [comm] {
      const ncclResult_t result = finish(*comm);
      if (result != ncclSuccess) guarded([&] { comm->error = remembered(); });
      comm->state.store(result, std::memory_order_release);
      comm->state.notify_all();
    });
  } catch (const std::system_error&) {
    comm->state = ncclSuccess;
    comm->finalized = false;
    throw;
  }
  return ncclInProgress;
}

ncclResult_t finalize(const std::shared_ptr<ncclComm>& comm) {
  ThreadGroup& group = thread_group();
  comm->finalized = true;
  if (!group.is_open()) return finish_or_begin(comm);
  group.add_end([comm] { return guarded([&] { return finish_or_begin(comm); }); });
  return ncclSuccess;
}

// Returns the communicator to the one call that is to end it. What a process has from before it was
// forked belongs to its parent, and can be ended, but is left alone.
std::shared_ptr<ncclComm> claimed(ncclComm_t comm) {
  std::shared_ptr<ncclComm> its = find(comm);
  require(its != nullptr && !its->ending.exchange(true),
          "the communicator is none, or has been destroyed");
  return its;
}

// One that is still being made would be waited for, perhaps until a rank comes that never does, so
// its making is given up.
ncclResult_t give_up_and_destroy(const std::shared_ptr<ncclComm>& comm) {
  if (!comm->is_made) *comm->given_up = true;
  destroy(comm);
  return ncclSuccess;
}

// Destroys the communicator now, or at the end of the thread's group.
ncclResult_t end(std::shared_ptr<ncclComm> comm) {
  ThreadGroup& group = thread_group();
  if (!group.is_open()) return give_up_and_destroy(comm);
  group.add_end([owner = std::move(comm)] { return give_up_and_destroy(owner); });
  return ncclSuccess;
}

// Waits until nothing of the communicator's calls is left.
void revoke(ncclComm& comm) {
  comm.revoked = true;
  abort(comm, "ncclCommRevoke was called");
  const Calling calling(comm);
  guarded([&] { finish_calls(comm); });
}

// Returns how the parts ended that this rank has no handle of.
ncclResult_t unseen_result(ncclComm& comm) {
  const std::lock_guard lock(comm.making);
  if (comm.unseen_state != ncclSuccess) remember(comm.unseen_error.c_str());
  return comm.unseen_state;
}

ncclResult_t asynchronous_error(ncclComm& comm) {
  const ncclResult_t state = comm.state.load(std::memory_order_acquire);
  if (state != ncclSuccess && state != ncclInProgress) remember(comm.error.c_str());
  if (state != ncclSuccess || !comm.is_made) return state;
  if (const auto failure = comm.made->failure(); failure && !comm.revoked) {
    remember(failure->what());
    return result_of(failure->kind());
  }
  if (comm.settings.blocking) return ncclSuccess;
  if (comm.parts_done < comm.parts_begun) return ncclInProgress;
  if (const ncclResult_t unseen = unseen_result(comm); unseen != ncclSuccess || comm.revoked)
    return unseen;
  const std::unique_lock lock(comm.calls, std::try_to_lock);
  if (!lock.owns_lock()) return ncclInProgress;
  const bool waits =
      std::any_of(comm.under_way.begin(), comm.under_way.end(),
                  [](const Kept& each) { return each.on_host && !each.work.done(); });
  return waits ? ncclInProgress : ncclSuccess;
}

}  // namespace
}  // namespace tutti::nccl

using namespace tutti::nccl;

NCCL_FUNCTION(ncclResult_t, ncclCommFinalize, ncclComm_t comm) {
  return in_group([&] { return finalize(ready(comm)); });
}

NCCL_FUNCTION(ncclResult_t, ncclCommDestroy, ncclComm_t comm) {
  return in_group([&] { return comm == nullptr ? ncclSuccess : end(claimed(comm)); });
}

NCCL_FUNCTION(ncclResult_t, ncclCommAbort, ncclComm_t comm) {
  return in_group([&] {
    if (comm == nullptr) return ncclSuccess;
    std::shared_ptr<ncclComm> its = claimed(comm);
    if (!its->is_inherited()) abort(*its, "ncclCommAbort was called");
    return end(std::move(its));
  });
}

NCCL_FUNCTION(ncclResult_t, ncclCommRevoke, ncclComm_t comm, int flags) {
  return guarded([&] {
    require(flags == 0, "revokeFlags is not NCCL_REVOKE_DEFAULT");
    revoke(*ready(comm));
  });
}

NCCL_FUNCTION(ncclResult_t, ncclCommGetAsyncError, ncclComm_t comm, ncclResult_t* error) {
  return guarded([&] {
    const auto its = whole(comm);
    require(error != nullptr, "the place for the result is null");
    *error = asynchronous_error(*its);
  });
}

NCCL_FUNCTION(const char*, ncclGetErrorString, ncclResult_t result) {
  switch (result) {
    case ncclSuccess: return "no error";
    case ncclUnhandledCudaError: return "a function of the CUDA driver has failed";
    case ncclSystemError: return "this machine or this build cannot do it";
    case ncclInternalError: return "internal error: data arrived damaged, or a bug of tutti";
    case ncclInvalidArgument: return "invalid argument";
    case ncclInvalidUsage:
      return "invalid usage: the call is wrong, or ranks called different things";
    case ncclRemoteError:
      return "remote error: a rank has ended, or did not come before the deadline";
    case ncclInProgress: return "in progress";
    case ncclTimeout: return "timeout";
  }
  return "unknown result";
}

NCCL_FUNCTION(const char*, ncclGetLastError, ncclComm_t comm) {
  guarded([&] {
    const auto its = find(comm);
    if (its == nullptr || its->is_inherited()) return;
    const ncclResult_t state = its->state.load(std::memory_order_acquire);
    if (state == ncclInProgress) return;
    if (state != ncclSuccess) return remember(its->error.c_str());
    if (!its->is_made) return;
    if (const auto failure = its->made->failure()) remember(failure->what());
  });
  return remembered();
}
