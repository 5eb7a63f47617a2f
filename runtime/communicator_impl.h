// The implementation of a communicator: its parts, and the calls that the public class makes of
// them.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <tutti/tutti.hpp>

#include "devices/gpu.h"
#include "runtime/call.h"
#include "runtime/collectives.h"
#include "runtime/communicator_parts.h"
#include "runtime/driver.h"
#include "runtime/engine/device/device_engine.h"
#include "runtime/engine/engine.h"
#include "runtime/failure.h"
#include "runtime/membership/membership.h"
#include "runtime/membership/split.h"
#include "runtime/messages.h"
#include "runtime/planner.h"
#include "runtime/queue.h"
#include "runtime/registered_memory.h"
#include "runtime/staged/captures.h"
#include "runtime/staged/pinned_pool.h"

namespace tutti {

/// Holds the parts of a communicator. Each part can be made and tested alone; docs/architecture.md
/// shows which part calls which. One thread at a time makes calls; driver.h says what other threads
/// do. The destructor waits for all threads that are inside.
class CommunicatorImpl final {
 public:
  explicit CommunicatorImpl(CommunicatorParts parts);
  ~CommunicatorImpl();
  CommunicatorImpl(const CommunicatorImpl&) = delete;
  CommunicatorImpl& operator=(const CommunicatorImpl&) = delete;

  static Communicator make(CommunicatorParts parts);
  static CommunicatorImpl& of(Communicator& communicator) noexcept { return *communicator.impl_; }
  /// Destroys it at once, or, when called in a callback, in another thread once no call is under
  /// way, since the destructor waits for callbacks.
  static void destroy(std::unique_ptr<CommunicatorImpl> communicator) noexcept;
  /// Comes before destroy(): refuses calls from now on. Throws `usage` if a call is under way.
  void begin_destruction();

  const CommunicatorParts& parts() const noexcept { return parts_; }
  CallPlanner& planner() noexcept { return planner_; }
  Failure& failure() noexcept { return failure_; }
  Queue& queue() noexcept { return queue_; }
  Driver& driver() noexcept { return driver_; }
  Captures& captures() noexcept { return captures_; }

  std::size_t memory_bytes() const {
    return parts_.transport->memory_bytes() + engine_->memory_bytes() +
           (pinned_ != nullptr ? pinned_->memory_bytes() : 0);
  }
  /// Allocates registered memory for a Buffer; returns none if the transport has none.
  std::optional<Registration> allocate_registered(std::size_t bytes);
  /// Lets devices of the transport work with the memory until the last copy of the result is
  /// destroyed; null if there are none.
  std::shared_ptr<void> register_memory(std::byte* data, std::size_t bytes) {
    return parts_.transport->register_memory(data, bytes);
  }
  const std::shared_ptr<Registrar>& registrar() const noexcept { return registrar_; }
  /// Keeps `used`, which the communicator's calls use, alive until the last call has ended.
  void keep(std::shared_ptr<void> used) noexcept { kept_ = std::move(used); }
  void callback_threw(const char* what) noexcept;
  /// Wakes all threads that wait for its operations, and the background thread. Any thread may
  /// call it.
  void wake_all() const noexcept;

  // Blocking calls. A call that names a group is made when the group ends.
  void call(const Call& call);
  /// Does the same inside a call that has marked this thread already; see calling.h.
  void call_inside(const Call& call);
  Received call(const TransferCall& call);
  void call(const PlannedCall& call);

  // Asynchronous calls.
  Work call_async(const Call& call);
  Work call_async(const TransferCall& call);
  Work call_async(const PlannedCall& call);
  static Work work_of(const OperationRef& operation) { return Work(*operation); }

  /// Prepares those operations that are ordered by a stream; launch() comes next. Throws
  /// `unavailable` if there is no pinned memory for one, and `usage` in a callback: then none is
  /// prepared.
  static void stage(std::span<const OperationRef> operations);
  /// Gives operations to their queues, and to the streams or the CUDA graphs that order them. Where
  /// it throws, for want of memory, it has given none to a queue.
  static void launch(std::span<const OperationRef> operations);

  // Calls that are checked and planned now, and started any number of times.
  Persistent make_persistent(const Call& call);
  Persistent make_persistent(const TransferCall& call);
  void add_to(Group& group, const PlannedCall& call);
  void add_to(Group& group, const TransferCall& call);

  /// Runs the transfers in the calling thread until all are done. Nothing else is pending.
  void transfer_here(std::span<Transfer* const> transfers);

  /// Returns a communicator of the ranks that are alive, see Communicator::shrink().
  Communicator shrink(std::chrono::milliseconds patience, const Demands& demands);
  /// Returns one of all ranks and of newcomers, see Communicator::grow().
  Communicator grow(int newcomers, std::chrono::milliseconds patience);
  /// See Communicator::agree().
  Agreement agree(std::uint64_t flags, std::chrono::milliseconds patience);
  /// This rank's part of splitting the communicator by `card`; see membership/split.h.
  std::optional<Communicator> split(const SplitCard& card);

 private:
  friend class Calling;

  bool ends_apart() const noexcept;
  static void destroy_apart(CommunicatorImpl* dying);
  Plan& checked_plan(const Call& call);
  TransferCall checked(const TransferCall& call);
  OperationRef operation_of(const Call& call, const Plan& plan);
  std::unique_ptr<Engine> make_engine();
  Plan& recognise_gpu(const Call& call, Plan& plan);
  Plan& plan_for_gpu(Plan& plan);
  void refuse_gpu_in_callback() const;
  void recognise_gpu(TransferCall& call);
  void check_gpu_calls(std::string_view operation) const;
  void stage(Operation& operation);
  static void give_to_streams(std::span<const OperationRef> operations,
                              std::vector<const Operation*>& gone);
  static void give_to_graphs(std::span<const OperationRef> operations);
  Work start(const OperationRef& operation);
  void abandon(Operation& operation, const Error& error) noexcept;
  PlannedCall plan_to_repeat(const Call& call);
  void await_behind_others(const OperationRef& operation);
  Regrouping::Lost lost();
  Communicator await_regrouped(const Regrouping::Lost& lost);

  sync::Atomic<bool> calling_{false};  // whether a thread is in a call, see calling.h
  std::shared_ptr<void> kept_;         // The first member, so that it is destroyed last.
  CommunicatorParts parts_;
  Gpu gpu_;                             // used by the calling thread
  std::shared_ptr<PinnedPool> pinned_;  // made when first needed, by the calling thread
  // It says whether the owner of the engine has launched kernels since calls were last pending;
  // used by the calling thread.
  bool kernels_later_ = false;
  Failure failure_{parts_};
  DeviceEngine* device_engine_ = nullptr;  // the engine, if GPUs run the collectives
  const std::unique_ptr<Engine> engine_ = make_engine();
  CallPlanner planner_{parts_, *engine_};
  Collectives collectives_{parts_, *engine_};
  Messages messages_{parts_};
  Queue queue_{*this, parts_, planner_, collectives_, messages_, failure_};
  Captures captures_{queue_};
  Membership membership_{parts_};
  const std::shared_ptr<Registrar> registrar_ = std::make_shared<Registrar>(*parts_.transport);
  Driver driver_{parts_, collectives_, messages_, queue_,
                 failure_};  // the last member, for the reason in its constructor
};

}  // namespace tutti
