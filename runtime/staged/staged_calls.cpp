// How a communicator recognises calls on GPUs, and gives them to their streams.
#include <algorithm>
#include <cassert>
#include <vector>

#include <fmt/format.h>

#include "runtime/communicator_impl.h"
#include "runtime/staged/staging.h"

namespace tutti {

// Looks for a driver where planning takes long anyway. A call that is ordered by a stream is
// planned each time, so that it is never taken for one that repeats.
Plan& CommunicatorImpl::recognise_gpu(const Call& call, Plan& plan) {
  if (!plan.program || call.stream != nullptr) gpu_.look();
  plan.staged = call.stream != nullptr || gpu_.holds(call.input) || gpu_.holds(call.output);
  if (!plan.staged) [[likely]]
    return plan;
  plan.checked = false;
  if (gpu_.driver() == nullptr)
    throw Error(ErrorKind::unavailable,
                fmt::format("{}: the call is ordered by a GPU's stream (CallOptions::stream), but "
                            "there is no GPU: this process has not loaded the CUDA driver "
                            "(libcuda.so.1)",
                            to_string(call.kind.what)));
  if (!parts_.runtime->has_thread())
    throw Error(ErrorKind::unavailable,
                "a call on a GPU needs the background thread, which this runtime does not have");
  return plan;
}

void CommunicatorImpl::refuse_gpu(const TransferCall& call) {
  if (gpu_.holds(call.buffer)) [[unlikely]]
    refuse_stream(call.direction == Direction::send ? "send" : "recv");
}

OperationRef CommunicatorImpl::operation_of(const Call& call, const Plan& plan) {
  return queue_.operation_of(planner_.detached(call, plan), planner_.blocks());
}

// The driver holds a thread while a stream has no room for more. A thread that runs callbacks must
// not be held, because the calls that make room need it.
void CommunicatorImpl::stage(Operation& operation) {
  if (queue_.in_callback() || parts_.runtime->in_background())
    throw Error(ErrorKind::usage,
                "a callback makes a call on a GPU, which may have to wait for calls that the "
                "callback holds up: make it in the thread that makes the others");
  const cuda::Driver* const driver = gpu_.driver();
  assert(driver != nullptr && operation.call.staged);
  cuda::check_complete(*driver);
  if (!pinned_) pinned_.emplace(*driver);
  operation.staging = std::make_unique<Staging>(gpu_, *driver, *pinned_, operation.call,
                                                operation.blocks(), parts_.rank, parts_.size);
}

void CommunicatorImpl::wake_all() const noexcept {
  parts_.wake_sleepers();
  parts_.runtime->poke();
}

void CommunicatorImpl::abandon(Operation& operation, const Error& error) noexcept {
  operation.staging->abandon(failure_.set(error));
  wake_all();
}

void CommunicatorImpl::stage(std::span<const OperationRef> operations) {
  try {
    for (const OperationRef& each : operations)
      if (each->call.staged) [[unlikely]]
        each->owner->stage(*each);
  } catch (...) {
    for (const OperationRef& each : operations) each->staging.reset();
    throw;
  }
}

void CommunicatorImpl::launch(std::span<const OperationRef> operations) {
  bool staged = false;
  for (const OperationRef& each : operations) {
    staged = staged || each->call.staged;
    each->owner->driver().enqueue(each);
  }
  if (staged) [[unlikely]]
    give_to_streams(operations);
}

void CommunicatorImpl::start(const OperationRef& operation) {
  stage({&operation, 1});
  launch({&operation, 1});
}

// An operation that was abandoned may end at once, and have no Staging any more.
void CommunicatorImpl::give_to_streams(std::span<const OperationRef> operations) {
  std::vector<const Operation*> abandoned;
  const auto give = [&](void (Staging::*half)(Operation&)) {
    for (const OperationRef& each : operations) {
      if (!each->call.staged ||
          std::find(abandoned.begin(), abandoned.end(), each.get()) != abandoned.end())
        continue;
      try {
        ((*each->staging).*half)(*each);
      } catch (const Error& error) {
        abandoned.push_back(each.get());
        each->owner->abandon(*each, error);
      }
    }
  };
  give(&Staging::copy_in);
  give(&Staging::copy_out);
}

}  // namespace tutti
