#include "bindings/nccl/communicator.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "bindings/nccl/errors.h"
#include "bindings/nccl/group.h"
#include "bindings/nccl/process.h"

ncclComm::ncclComm(tutti::nccl::Settings its_settings, int its_rank, int its_size,
                   const tutti::nccl::Gpu* its_gpu, int its_device)
    : settings(std::move(its_settings)),
      gpu(its_gpu),
      device(its_device),
      rank(its_rank),
      size(its_size) {}

ncclComm::~ncclComm() {
  // The thread itself may be the last one that has a share of the communicator.
  if (job.get_id() == std::this_thread::get_id())
    job.detach();
  else if (job.joinable())
    job.join();
  made.reset();  // before the calls that are kept, which it ends
}

namespace tutti::nccl {
namespace {

using Handles = std::unordered_map<const ncclComm*, std::shared_ptr<ncclComm>>;

// Gives the process its share of the communicator, and the program the handle.
void publish(const std::shared_ptr<ncclComm>& comm, ncclComm_t* place) {
  auto& handles = of_process<Handles>();
  const std::lock_guard lock(handles.mutex);
  handles.value.emplace(comm.get(), comm);
  *place = comm.get();
}

// Waits until `number`, which only rises, is `least` or more.
void await(const std::atomic<int>& number, int least) noexcept {
  for (int now = number; now < least; now = number) number.wait(now);
}

std::shared_ptr<ncclComm> parent_of(ncclComm& comm) noexcept {
  const std::lock_guard lock(comm.making);
  return comm.parent;
}

// Returns the place of a communicator in the order of those that are made of its parent.
int take_turn(ncclComm& comm) noexcept {
  const std::shared_ptr<ncclComm> parent = parent_of(comm);
  return parent == nullptr ? 0 : parent->parts_begun++;
}

// Waits for its turn, runs `make`, and sets the state. Returns the state.
ncclResult_t make_now(ncclComm& comm, int turn, const Make& make) noexcept {
  comm.begun = true;
  const std::shared_ptr<ncclComm> parent = parent_of(comm);
  if (parent != nullptr) await(parent->parts_done, turn);
  const ncclResult_t result = guarded([&] { make(comm); });
  if (result != ncclSuccess) guarded([&] { comm.error = remembered(); });
  comm.is_made.store(comm.made.has_value(), std::memory_order_release);
  {
    const std::lock_guard lock(comm.making);
    comm.parent.reset();
  }
  comm.state.store(result, std::memory_order_release);
  comm.state.notify_all();
  if (parent != nullptr) {
    if (comm.is_unseen && result != ncclSuccess) {
      const std::lock_guard lock(parent->making);
      parent->unseen_error = comm.error;
      parent->unseen_state = result;
    }
    ++parent->parts_done;
    parent->parts_done.notify_all();
  }
  return result;
}

void fail_without_thread(ncclComm& comm, int turn, const std::exception& error) noexcept {
  make_now(comm, turn, [&error](ncclComm&) {
    throw Failure(ncclSystemError,
                  std::string("no thread makes the communicator: ") + error.what());
  });
}

// Waits for the thread that the communicator has, if it has one.
void join_job(ncclComm& comm) noexcept {
  std::thread job;
  {
    const std::lock_guard lock(comm.making);
    std::swap(comm.job, job);
  }
  if (job.joinable()) job.join();
}

}  // namespace

void refuse_inherited(const ncclComm& comm) {
  if (comm.is_inherited())
    throw Failure(ncclInvalidUsage,
                  "the communicator belongs to the process that made it, not to its forked child");
}

std::shared_ptr<ncclComm> find(ncclComm_t comm) {
  auto& handles = of_process<Handles>();
  const std::lock_guard lock(handles.mutex);
  const auto its = handles.value.find(comm);
  return its == handles.value.end() || its->second->ending ? nullptr : its->second;
}

std::shared_ptr<ncclComm> whole(ncclComm_t comm) {
  require(comm != nullptr, "the communicator is null");
  std::shared_ptr<ncclComm> its = find(comm);
  require(its != nullptr, "the communicator is none, or has been destroyed");
  refuse_inherited(*its);
  return its;
}

std::shared_ptr<ncclComm> ready(ncclComm_t comm) {
  std::shared_ptr<ncclComm> its = whole(comm);
  const ncclResult_t state = its->state.load(std::memory_order_acquire);
  if (state == ncclInProgress)
    throw Failure(ncclInvalidArgument,
                  "the communicator is still being made or finalized: wait until "
                  "ncclCommGetAsyncError gives another result than ncclInProgress");
  if (state != ncclSuccess) throw Failure(state, its->error);
  if (its->revoked.load(std::memory_order_relaxed))
    throw Failure(ncclInvalidUsage, "the communicator has been revoked");
  if (its->finalized.load(std::memory_order_relaxed))
    throw Failure(ncclInvalidUsage, "the communicator has been finalized");
  return its;
}

void await_parts(const ncclComm& comm) noexcept { await(comm.parts_done, comm.parts_begun); }

void keep(ncclComm& comm, Work work, bool on_host) {
  constexpr std::size_t kLeast = 64;
  if (comm.under_way.size() >= comm.look_at) {
    std::erase_if(comm.under_way, [](const Kept& each) { return each.work.done(); });
    comm.look_at = std::max(kLeast, 2 * comm.under_way.size());
  }
  comm.under_way.push_back({std::move(work), on_host});
}

void finish_calls(ncclComm& comm) {
  std::vector<Kept> calls = std::exchange(comm.under_way, {});
  for (Kept& call : calls) call.work.wait();
}

std::thread make_in_thread(const std::shared_ptr<ncclComm>& comm, Make make) noexcept {
  const int turn = take_turn(*comm);
  try {
    return std::thread([comm, turn, make = std::move(make)] { make_now(*comm, turn, make); });
  } catch (const std::exception& error) {
    fail_without_thread(*comm, turn, error);
    return {};
  }
}

bool make_later(const std::shared_ptr<ncclComm>& comm, Make make) noexcept {
  const std::shared_ptr<ncclComm> owner = comm->is_unseen ? parent_of(*comm) : comm;
  const int turn = take_turn(*comm);
  try {
    start_job(*owner, [comm, turn, make = std::move(make)] { make_now(*comm, turn, make); });
    return true;
  } catch (const std::exception& error) {
    fail_without_thread(*comm, turn, error);
    return false;
  }
}

void start_job(ncclComm& comm, std::function<void()> body) {
  const std::lock_guard lock(comm.making);
  const auto before = std::make_shared<std::thread>(std::move(comm.job));
  try {
    comm.job = std::thread([before, body = std::move(body)] {
      body();
      if (before->joinable()) before->join();
    });
  } catch (...) {
    comm.job = std::move(*before);
    throw;
  }
}

ncclResult_t begin(const std::shared_ptr<ncclComm>& comm, ncclComm_t* place, Make make) {
  ThreadGroup& group = thread_group();
  const bool blocking = comm->settings.blocking;
  if (!comm->is_unseen && (group.is_open() || !blocking)) publish(comm, place);
  if (group.is_open()) {
    group.add({comm, place, std::move(make)});
    return ncclSuccess;
  }
  if (blocking) {
    const ncclResult_t result = make_now(*comm, take_turn(*comm), make);
    if (comm->is_made) publish(comm, place);
    return result;
  }
  if (make_later(comm, std::move(make)) || !comm->is_unseen) return ncclInProgress;
  remember(comm->error.c_str());  // There is no handle that could say so later.
  return comm->state;
}

void abort(ncclComm& comm, const char* why) {
  *comm.given_up = true;
  std::shared_ptr<ncclComm> parent;
  std::vector<std::shared_ptr<ncclComm>> parts;
  {
    const std::lock_guard lock(comm.making);
    parent = comm.parent;
    for (const auto& part : comm.parts) parts.push_back(part.lock());
  }
  for (const auto& part : parts)
    if (part != nullptr && !part->is_made) *part->given_up = true;
  if (comm.is_made.load(std::memory_order_acquire))
    comm.made->abort(why);
  else if (parent != nullptr)
    abort(*parent, why);  // The making may wait in a call of the parent.
}

void destroy(const std::shared_ptr<ncclComm>& comm) noexcept {
  if (comm->is_inherited()) return;
  // Another thread may be making it at the end of its group. One that begins later notices `ending`
  // when it has made the communicator.
  if (comm->begun) comm->state.wait(ncclInProgress);
  join_job(*comm);
  await_parts(*comm);
  {
    // A call of another thread that abort() has ended may still be about to leave.
    const std::lock_guard lock(comm->calls);
    comm->closed = true;
  }
  auto& handles = of_process<Handles>();
  const std::lock_guard lock(handles.mutex);
  handles.value.erase(comm.get());
}

void destroy_once(const std::shared_ptr<ncclComm>& comm) noexcept {
  if (!comm->ending.exchange(true)) destroy(comm);
}

Calling::Calling(ncclComm& comm, For what)
    : lock_(comm.calls, std::defer_lock), communicator_([&]() -> Communicator& {
        refuse_inherited(comm);
        if (what == For::call) await_parts(comm);
        lock_.lock();
        require(!comm.closed && comm.made.has_value(),
                "the communicator has been destroyed by another thread");
        return *comm.made;
      }()) {}

}  // namespace tutti::nccl
