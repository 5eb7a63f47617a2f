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

// Waits until `number`, which only rises, is `least` or more.
void await(const std::atomic<int>& number, int least) noexcept {
  for (int now = number; now < least; now = number) number.wait(now);
}

// Returns the place of a communicator in the order of those that are made of its parent.
int take_turn(ncclComm& comm) noexcept {
  return comm.parent == nullptr ? 0 : comm.parent->parts_begun++;
}

// Waits for its turn, runs `make`, and sets the state. Returns the state.
ncclResult_t make_now(ncclComm& comm, int turn, const Make& make) noexcept {
  const std::shared_ptr<ncclComm> parent = comm.parent;
  if (parent != nullptr) await(parent->parts_done, turn);
  const ncclResult_t result = guarded([&] { make(comm); });
  if (result != ncclSuccess) guarded([&] { comm.error = remembered(); });
  comm.is_made.store(comm.made.has_value(), std::memory_order_release);
  comm.state.store(result, std::memory_order_release);
  if (parent != nullptr) {
    ++parent->parts_done;
    parent->parts_done.notify_all();
  }
  return result;
}

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
  constexpr std::size_t kLeast = 64;
  if (comm.under_way.size() >= comm.look_at) {
    std::erase_if(comm.under_way, [](const Work& each) { return each.done(); });
    comm.look_at = std::max(kLeast, 2 * comm.under_way.size());
  }
  comm.under_way.push_back(std::move(work));
}

void finish_calls(ncclComm& comm) {
  const std::vector<Work> works = std::exchange(comm.under_way, {});
  for (Work work : works) work.wait();
}

std::thread make_in_thread(ncclComm& comm, Make make) noexcept {
  const int turn = take_turn(comm);
  try {
    return std::thread([&comm, turn, make = std::move(make)] { make_now(comm, turn, make); });
  } catch (const std::exception& error) {
    const std::string why = error.what();
    make_now(comm, turn, [&why](ncclComm&) {
      throw Failure(ncclSystemError, "no thread makes the communicator: " + why);
    });
    return {};
  }
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
    const ncclResult_t result = make_now(its, take_turn(its), make);
    if (!its.is_made) return result;
    *place = &its;
    its.self = std::move(comm);
    return result;
  }
  its.job = make_in_thread(its, std::move(make));
  *place = &its;
  its.self = std::move(comm);
  return ncclInProgress;
}

void abort(ncclComm& comm, const char* why) {
  *comm.given_up = true;
  if (comm.is_made.load(std::memory_order_acquire))
    comm.made->abort(why);
  else if (comm.parent != nullptr && comm.state == ncclInProgress)
    abort(*comm.parent, why);  // The making may wait in a call of the parent.
}

void destroy(ncclComm& comm) noexcept {
  const std::shared_ptr<ncclComm> last = std::move(comm.self);
  if (comm.job.joinable()) comm.job.join();
  await(comm.parts_done, comm.parts_begun);
  // A call of another thread that abort() has ended may still be about to leave.
  const std::lock_guard lock(comm.calls);
  comm.is_made = false;
  comm.made.reset();
  comm.under_way.clear();
}

Calling::Calling(ncclComm& comm, For what)
    : lock_(comm.calls, std::defer_lock), communicator_([&]() -> Communicator& {
        if (what == For::call) await(comm.parts_done, comm.parts_begun);
        lock_.lock();
        require(comm.made.has_value(), "the communicator has been destroyed by another thread");
        return *comm.made;
      }()) {}

}  // namespace tutti::nccl
