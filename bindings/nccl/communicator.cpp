#include "bindings/nccl/communicator.h"

#include <algorithm>
#include <utility>

#include "bindings/nccl/errors.h"
#include "bindings/nccl/group.h"

ncclComm::ncclComm(tutti::nccl::Settings its_settings, int its_rank, int its_size,
                   const tutti::nccl::Gpu* its_gpu, int its_device)
    : settings(std::move(its_settings)),
      gpu(its_gpu),
      device(its_device),
      rank(its_rank),
      size(its_size) {}

ncclComm::~ncclComm() { mark_ = 0; }

namespace tutti::nccl {
namespace {

// The number of calls that a communicator keeps before it looks which of them have ended.
constexpr std::size_t kMostUnderWay = 64;

}  // namespace

ncclComm& whole(ncclComm_t comm) {
  require(comm != nullptr, "the communicator is null");
  require(comm->is_whole() && !comm->ending, "the communicator is none, or has been destroyed");
  return *comm;
}

ncclComm& ready(ncclComm_t comm) {
  ncclComm& its = whole(comm);
  const ncclResult_t state = its.state.load(std::memory_order_acquire);
  if (state == ncclInProgress)
    throw Failure(ncclInvalidArgument,
                  "the communicator is still being made or finalized: wait until "
                  "ncclCommGetAsyncError gives another result than ncclInProgress");
  if (state != ncclSuccess) throw Failure(state, its.error);
  if (its.revoked.load(std::memory_order_relaxed))
    throw Failure(ncclInvalidUsage, "the communicator has been revoked");
  if (its.finalized.load(std::memory_order_relaxed))
    throw Failure(ncclInvalidUsage, "the communicator has been finalized");
  return its;
}

void keep(ncclComm& comm, Work work) {
  if (comm.under_way.size() >= kMostUnderWay)
    std::erase_if(comm.under_way, [](const Work& each) { return each.done(); });
  comm.under_way.push_back(std::move(work));
}

void finish_calls(ncclComm& comm) {
  const std::vector<Work> works = std::exchange(comm.under_way, {});
  for (Work work : works) work.wait();
}

ncclResult_t make_now(ncclComm& comm, const Make& make) noexcept {
  const ncclResult_t result = guarded([&] { make(comm); });
  if (result != ncclSuccess) guarded([&] { comm.error = remembered(); });
  comm.is_made.store(comm.made.has_value(), std::memory_order_release);
  comm.state.store(result, std::memory_order_release);
  return result;
}

ncclResult_t begin(std::shared_ptr<ncclComm> comm, ncclComm_t* place, Make make) {
  ThreadGroup& group = thread_group();
  ncclComm& its = *comm;
  if (group.is_open()) {
    group.add({comm, place, std::move(make)});
    *place = &its;
    its.self = std::move(comm);
    return ncclSuccess;
  }
  if (its.settings.blocking) {
    const ncclResult_t result = make_now(its, make);
    if (!its.is_made) return result;
    *place = &its;
    its.self = std::move(comm);
    return result;
  }
  its.job = std::thread([&its, make = std::move(make)] { make_now(its, make); });
  *place = &its;
  its.self = std::move(comm);
  return ncclInProgress;
}

void abort(ncclComm& comm, const char* why) {
  *comm.given_up = true;
  if (comm.is_made.load(std::memory_order_acquire)) comm.made->abort(why);
}

void destroy(ncclComm& comm) noexcept {
  const std::shared_ptr<ncclComm> last = std::move(comm.self);
  if (comm.job.joinable()) comm.job.join();
  // A call of another thread that abort() has ended may still be about to leave.
  const std::lock_guard lock(comm.calls);
  comm.is_made = false;
  comm.made.reset();
  comm.under_way.clear();
}

Calling::Calling(ncclComm& comm)
    : lock_(comm.calls), communicator_([&]() -> Communicator& {
        require(comm.made.has_value(), "the communicator has been destroyed by another thread");
        return *comm.made;
      }()) {}

}  // namespace tutti::nccl
