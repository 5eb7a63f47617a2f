// Declares the object behind ncclComm_t.
#pragma once

#include <unistd.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <tutti/buffer.hpp>
#include <tutti/communicator.hpp>
#include <vector>

#include "bindings/nccl/abi.h"
#include "bindings/nccl/gpu.h"
#include "bindings/nccl/settings.h"
#include "bindings/nccl/store.h"

namespace tutti::nccl {

/// Describes a reduction that ncclRedOpCreatePreMulSum() made.
struct PremulSum {
  bool exists = false;
  ncclDataType_t type = ncclInt8;
  std::array<std::byte, 8> scalar{};
  const void* on_gpu = nullptr;  ///< Where the scalar is, if calls are to read it there.
};

/// A call that may not have ended.
struct Kept {
  Work work;
  bool on_host;  ///< It has a host buffer, so that the program asks for its end.
};

/// A buffer that the program has registered. The address of this object is the handle.
struct Registered {
  void* buffer;
  bool is_window;
  std::optional<tutti::RegisteredMemory> memory;  ///< A buffer in the memory of a GPU needs none.
};

}  // namespace tutti::nccl

/// Represents a communicator, which is made already or is still being made. The process owns it by
/// a table of its handles until it is destroyed, and every call and every group as long as it runs.
/// Threads may call it at the same time: `calls` makes them take turns. Aborting it and asking for
/// its error do not take that lock.
struct ncclComm {
  /// A communicator that is still to be made. `its_gpu` is null if the process has no driver.
  ncclComm(tutti::nccl::Settings its_settings, int its_rank, int its_size,
           const tutti::nccl::Gpu* its_gpu, int its_device);
  ~ncclComm();
  ncclComm(const ncclComm&) = delete;
  ncclComm& operator=(const ncclComm&) = delete;

  /// Returns whether it was made before this process was forked. Nothing can be done with it then.
  bool is_inherited() const noexcept { return getpid() != owner_; }

  const tutti::nccl::Settings settings;
  const tutti::nccl::Gpu* const gpu;
  const int device;  ///< The GPU of this rank; -1 without a driver.
  /// Set by abort, to end the waiting of a communicator that is being made.
  const std::shared_ptr<std::atomic<bool>> given_up = std::make_shared<std::atomic<bool>>(false);

  /// ncclInProgress while it is made or finalized, then ncclSuccess or the error by which it was
  /// not made. The fields of the next group may be used once it is ncclSuccess.
  std::atomic<ncclResult_t> state{ncclInProgress};
  std::string error;  ///< Why it was not made; constant once `state` says so.
  std::atomic<bool> revoked{false}, finalized{false};
  std::atomic<bool> ending{false};   ///< It is being destroyed, or will be at the end of a group.
  std::atomic<bool> begun{false};    ///< A thread has begun to make it.
  std::atomic<bool> is_made{false};  ///< `made` may be used, by abort() while `state` says no.

  /// This rank gets no communicator (NCCL_SPLIT_NOCOLOR), so that there is no handle, and the
  /// thread that takes part in the making is the parent's.
  bool is_unseen = false;

  // Constant once `state` is ncclSuccess. Of a split, rank and size are known only then.
  int rank, size;
  std::shared_ptr<tutti::nccl::Part> store;
  /// Ranks that have no other secret prove by this one who they are; it may be empty.
  std::string secret_of_id;
  std::optional<tutti::Communicator> made;

  /// Numbers of communicators that have begun to be made of this one, and that are there or have
  /// failed. They are made one after the other, in the order in which the program asks for them,
  /// and other calls wait for them: so all ranks do the same in the same order.
  std::atomic<int> parts_begun{0}, parts_done{0};

  std::mutex making;
  // Guarded by `making`.
  std::shared_ptr<ncclComm> parent;            ///< That of which this one is being made, or null.
  std::vector<std::weak_ptr<ncclComm>> parts;  ///< Those that are being made of this one.
  std::thread job;  ///< Makes or finalizes a communicator, or takes part in making an unseen one.
  std::string unseen_error;                 ///< Why the last unseen one that failed was not made.
  ncclResult_t unseen_state = ncclSuccess;  ///< The result of that.

  std::mutex calls;
  // Guarded by `calls`.
  bool closed = false;  ///< It has been destroyed: a thread that waited for the lock does no call.
  int derived = 0;  ///< Number of communicators that were split off, and of those that were shrunk.
  int shrunk = 0;
  std::vector<tutti::nccl::PremulSum> premul_sums;  ///< ncclNumOps is the first one's number.
  std::vector<tutti::nccl::Kept> under_way;         ///< Calls that may not have ended.
  std::size_t look_at = 64;  ///< The number of them at which those that have ended are dropped.
  std::vector<std::unique_ptr<tutti::nccl::Registered>> registered;

 private:
  const pid_t owner_ = getpid();
};

namespace tutti::nccl {

/// Throws ncclInvalidUsage if the communicator was inherited by a fork.
void refuse_inherited(const ncclComm& comm);
/// Returns the communicator of the handle, in whatever state; null if it is none of this library,
/// or has been destroyed. Whoever has the result may use the object, whatever other threads do.
std::shared_ptr<ncclComm> find(ncclComm_t comm);
/// Does what find() does; throws ncclInvalidArgument in place of null, and ncclInvalidUsage if the
/// communicator was inherited by a fork.
std::shared_ptr<ncclComm> whole(ncclComm_t comm);
/// Returns it if calls may be made. Throws its error, ncclInvalidArgument while it is made or
/// finalized, ncclInvalidUsage once it is revoked or finalized, and what whole() throws.
std::shared_ptr<ncclComm> ready(ncclComm_t comm);

/// Waits until the communicators that the program has asked for are made of this one.
void await_parts(const ncclComm& comm) noexcept;

/// Keeps a call until it has ended. The caller holds `calls`.
void keep(ncclComm& comm, Work work, bool on_host);
/// Waits for the calls that are kept. Throws the first error.
void finish_calls(ncclComm& comm);

/// Makes one communicator: sets `store` and `made`, or leaves them if this rank gets none.
using Make = std::function<void(ncclComm&)>;
/// Makes a communicator at once, in a thread if it is not blocking, or at the end of the thread's
/// group. *place is the communicator, or null where this rank gets none. `comm->parent` is that of
/// which it is made, or null.
ncclResult_t begin(const std::shared_ptr<ncclComm>& comm, ncclComm_t* place, Make make);
/// Starts a thread that makes the communicator. If there is none to be had, the communicator has
/// failed, and the result has no thread.
std::thread make_in_thread(const std::shared_ptr<ncclComm>& comm, Make make) noexcept;
/// Makes a communicator that is not blocking, in a thread. Returns false where make_in_thread() has
/// none.
bool make_later(const std::shared_ptr<ncclComm>& comm, Make make) noexcept;
/// Runs `body` in a thread of the communicator. It ends after the thread that the communicator had,
/// and before the communicator is freed. Throws std::system_error where there is no thread.
void start_job(ncclComm& comm, std::function<void()> body);

/// Ends all calls of the communicator, its making and that of others of it, with an error, here and
/// on the other ranks. Any thread may call it.
void abort(ncclComm& comm, const char* why);
/// Ends the communicator, whose `ending` the caller has set: waits for its job, its parts and its
/// calls, and gives up the process's share of it.
void destroy(const std::shared_ptr<ncclComm>& comm) noexcept;
/// Destroys it unless another thread does.
void destroy_once(const std::shared_ptr<ncclComm>& comm) noexcept;

/// Waits for what is being made of a communicator, unless it is for that, and holds the lock of its
/// calls. Throws ncclInvalidArgument if it has been destroyed meanwhile, and ncclInvalidUsage if it
/// was inherited by a fork.
class Calling {
 public:
  enum class For { call, part };
  explicit Calling(ncclComm& comm, For what = For::call);
  Communicator& communicator() const noexcept { return communicator_; }

 private:
  std::unique_lock<std::mutex> lock_;
  Communicator& communicator_;
};

}  // namespace tutti::nccl
