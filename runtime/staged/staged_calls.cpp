// Which engine a communicator has, how it recognises calls on GPUs, and gives them to their
// streams.
#include <algorithm>
#include <cassert>
#include <vector>

#include <fmt/format.h>

#include "runtime/communicator_impl.h"
#include "runtime/staged/staging.h"
#include "transport/cuda_ipc/cuda_ipc.h"

namespace tutti {

std::unique_ptr<Engine> CommunicatorImpl::make_engine() {
  if (parts_.gpu == nullptr)
    return make_host_engine(*parts_.transport, *parts_.recorder,
                            [this] { parts_.wake_sleepers(); });
  Runtime& runtime = *parts_.runtime;
  auto engine = std::make_unique<DeviceEngine>(
      device::Ends::Settings{*parts_.transport, runtime.host_pins(), runtime.log(), parts_.rank,
                             cuda_ipc::allowed(runtime.config().transports)},
      *parts_.recorder, parts_.gpu);
  device_engine_ = engine.get();
  return engine;
}

// Looks for a driver where planning takes long anyway. A call that is ordered by a stream is
// planned each time, so that it is never taken for one that repeats.
Plan& CommunicatorImpl::recognise_gpu(const Call& call, Plan& plan) {
  if (!plan.program || call.stream != nullptr) gpu_.look();
  plan.staged = device_engine_ != nullptr || call.stream != nullptr || gpu_.holds(call.input) ||
                gpu_.holds(call.output);
  if (!plan.staged) [[likely]]
    return plan;
  plan.checked = false;
  check_gpu_calls(to_string(call.kind.what));
  return device_engine_ == nullptr ? plan : plan_for_gpu(plan);
}

// A kernel is given to its stream by the thread that makes the call, which therefore needs the
// program. A callback already holds the lock.
Plan& CommunicatorImpl::plan_for_gpu(Plan& plan) {
  if (plan.program) return plan;
  refuse_gpu_in_callback();
  const auto owner = driver_.own_engine();
  plan.program = planner_.bind(plan.key);
  return plan;
}

void CommunicatorImpl::refuse_gpu_in_callback() const {
  if (queue_.in_callback() || parts_.runtime->in_background())
    throw Error(ErrorKind::usage,
                "a callback makes a call on a GPU, which may have to wait for calls that the "
                "callback holds up: make it in the thread that makes the others");
}

void CommunicatorImpl::recognise_gpu(TransferCall& call) {
  if (call.stream != nullptr) gpu_.look();
  call.staged = call.stream != nullptr || gpu_.holds(call.buffer);
  if (call.staged) [[unlikely]]
    check_gpu_calls(to_string(call.direction));
}

void CommunicatorImpl::check_gpu_calls(std::string_view operation) const {
  if (gpu_.driver() == nullptr)
    throw Error(ErrorKind::unavailable,
                fmt::format("{}: the call is ordered by a GPU's stream (CallOptions::stream), but "
                            "there is no GPU: this process has not loaded the CUDA driver "
                            "(libcuda.so.1)",
                            operation));
  if (!parts_.runtime->has_thread())
    throw Error(ErrorKind::unavailable,
                "a call on a GPU needs the background thread, which this runtime does not have");
}

OperationRef CommunicatorImpl::operation_of(const Call& call, const Plan& plan) {
  return queue_.operation_of(planner_.detached(call, plan), planner_.blocks());
}

// The driver holds a thread while a stream has no room for more. A thread that runs callbacks must
// not be held, because the calls that make room need it.
void CommunicatorImpl::stage(Operation& operation) {
  refuse_gpu_in_callback();
  const cuda::Driver* const driver = gpu_.driver();
  assert(driver != nullptr && operation.staged());
  cuda::check_complete(*driver);
  if (pinned_ == nullptr) pinned_ = std::make_shared<PinnedPool>(*driver);
  kernels_later_ = captures_.any() || (kernels_later_ && queue_.pending());
  const Staging::Where where{gpu_, *driver, pinned_,
                             operation.is_transfer() ? nullptr : device_engine_, kernels_later_};
  operation.staging = operation.is_transfer()
                          ? std::make_unique<Staging>(where, operation.transfer.call)
                          : std::make_unique<Staging>(where, operation.call, operation.blocks(),
                                                      parts_.rank, parts_.size);
  operation.captured = operation.staging->captured();
}

void CommunicatorImpl::wake_all() const noexcept {
  parts_.wake_sleepers();
  parts_.runtime->poke();
}

void CommunicatorImpl::abandon(Operation& operation, const Error& error) noexcept {
  const Error first = failure_.set(error);
  wake_all();  // so that the engine stops, and no stream waits for it any more
  operation.staging->abandon(first);
  wake_all();
}

void CommunicatorImpl::stage(std::span<const OperationRef> operations) {
  try {
    for (const OperationRef& each : operations)
      if (each->staged()) [[unlikely]]
        each->owner->stage(*each);
    const auto captured = [](const OperationRef& each) { return each->captured; };
    if (std::any_of(operations.begin(), operations.end(), captured) &&
        !std::all_of(operations.begin(), operations.end(), captured))
      throw Error(ErrorKind::usage,
                  "some calls of a group are on streams that are being captured into CUDA graphs, "
                  "and others are not: end the group in between");
  } catch (...) {
    for (const OperationRef& each : operations) each->staging.reset();
    throw;
  }
}

void CommunicatorImpl::launch(std::span<const OperationRef> operations) {
  if (operations.front()->captured) [[unlikely]]
    return give_to_graphs(operations);
  bool staged = false;
  for (const OperationRef& each : operations) {
    staged = staged || each->staged();
    each->owner->driver().join_background();
  }
  std::vector<const Operation*> gone;  // it has its memory before anything begins
  if (staged) [[unlikely]]
    gone.reserve(operations.size());
  for (const OperationRef& each : operations) each->owner->driver().enqueue(each);
  if (staged) [[unlikely]]
    give_to_streams(operations, gone);
}

// Nothing waits for a call that a graph holds: its Work is done.
Work CommunicatorImpl::start(const OperationRef& operation) {
  stage({&operation, 1});
  launch({&operation, 1});
  return operation->captured ? Work() : Work(*operation);
}

void CommunicatorImpl::give_to_graphs(std::span<const OperationRef> operations) {
  for (const OperationRef& each : operations) {
    each->owner->driver().join_background();
    each->staging->capture_in(*each, each->owner->captures_);
  }
  for (const OperationRef& each : operations) each->staging->capture_out(*each);
}

// An operation that was given whole or abandoned may end at once, and have no Staging any more. It
// is added to `gone`.
void CommunicatorImpl::give_to_streams(std::span<const OperationRef> operations,
                                       std::vector<const Operation*>& gone) {
  const CommunicatorImpl* const first = operations.front()->owner;
  const bool apart = std::any_of(operations.begin(), operations.end(),
                                 [&](const OperationRef& each) { return each->owner != first; });
  const auto give = [&](auto&& part) {
    for (const OperationRef& each : operations) {
      if (!each->staged() || std::find(gone.begin(), gone.end(), each.get()) != gone.end())
        continue;
      try {
        part(*each->staging, *each);
      } catch (const Error& error) {
        gone.push_back(each.get());
        each->owner->abandon(*each, error);
      }
    }
  };
  // Kernels write results, so what only reads comes before them. A call on its engine's own stream
  // holds up no other, and is given whole: such calls follow each other as those of the host do.
  give([](Staging& staging, Operation& operation) {
    if (!staging.kernel_on_stream() && !staging.on_own_stream()) staging.copy_in(operation, false);
  });
  give([&](Staging& staging, Operation& operation) {
    if (!staging.kernel_on_stream() && !staging.on_own_stream()) return;
    staging.copy_in(operation, apart && !staging.on_own_stream());
    if (!staging.on_own_stream()) return;
    gone.push_back(&operation);
    staging.copy_out(operation);
  });
  give([](Staging& staging, Operation& operation) { staging.copy_out(operation); });
}

}  // namespace tutti
