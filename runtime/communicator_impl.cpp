#include "runtime/communicator_impl.h"

#include <system_error>

#include <tutti/error.hpp>

#include "runtime/calling.h"
#include "runtime/group.h"

namespace tutti {

CommunicatorImpl::CommunicatorImpl(CommunicatorParts parts) : parts_(recorded(std::move(parts))) {}

CommunicatorImpl::~CommunicatorImpl() {
  registrar_->end();
  queue_.abandon();
  if (!parts_.runtime->in_own_process()) {  // in a forked child, the channels belong to the parent
    static_cast<void>(parts_.transport.release());
    engine_->forget_threads();
    return;
  }
  if (captures_.any()) queue_.await_graphs();
  driver_.drain();
  queue_.await_threads();
  driver_.leave();
  const auto last_owner = driver_.own_engine();  // so that the thread that ended the last operation
                                                 // has released the engine
  parts_.transport->close();
  captures_.let_go(parts_);
  if (pinned_ != nullptr) pinned_->close();
}

Communicator CommunicatorImpl::make(CommunicatorParts parts) {
  return Communicator(std::make_unique<CommunicatorImpl>(std::move(parts)));
}

void CommunicatorImpl::destroy(std::unique_ptr<CommunicatorImpl> communicator) noexcept {
  if (communicator == nullptr) return;
  Runtime& runtime = *communicator->parts_.runtime;
  if (!communicator->ends_apart()) return;
  CommunicatorImpl* const dying = communicator.release();
  try {
    destroy_apart(dying);
  } catch (const std::system_error& error) {
    // A communicator that is kept is better than an endless wait.
    runtime.log().write(LogLevel::warn,
                        "a communicator destroyed in a callback is kept, no thread: {}",
                        error.what());
  }
}

void CommunicatorImpl::callback_threw(const char* what) noexcept {
  parts_.runtime->log().write(LogLevel::warn, "a callback threw, which is ignored: {}", what);
}

Plan& CommunicatorImpl::checked_plan(const Call& call) {
  failure_.check_usable(to_string(call.kind.what));
  return recognise_gpu(call, planner_.plan(call));
}

void CommunicatorImpl::call(const Call& call) {
  const Calling calling(*this, call.kind.what);
  call_inside(call);
}

void CommunicatorImpl::call_inside(const Call& call) {
  Plan& plan = failure_.usable() && planner_.repeats(call) ? planner_.last() : checked_plan(call);
  if (call.group != nullptr) [[unlikely]]
    return call.group->calls_->add(operation_of(call, plan));
  if (plan.staged || queue_.others_first()) [[unlikely]]
    return await_behind_others(operation_of(call, plan));
  if (!plan.program) [[unlikely]]
    plan.program = planner_.bind(plan.key);
  driver_.execute(*plan.program, buffers_of(plan, call.extras, &planner_.blocks()),
                  planner_.timeout_of(call));
}

void CommunicatorImpl::call(const PlannedCall& call) {
  const Calling calling(*this, call.key.signature.what);
  if (!failure_.usable()) [[unlikely]]
    failure_.check_usable(to_string(call.key.signature.what));
  if (call.staged || queue_.others_first()) [[unlikely]]
    return await_behind_others(queue_.operation_of(call, planner_.blocks()));
  const CallExtras extras = call.extras();
  driver_.execute(*call.program, buffers_of(call, extras, call.blocks.get()), call.timeout);
}

void CommunicatorImpl::await_behind_others(const OperationRef& operation) {
  start(operation);
  if (operation->captured) return;
  driver_.await_operation(*operation, TimePoint::max());
  if (operation->error()) throw *operation->error();
}

Work CommunicatorImpl::call_async(const Call& call) {
  const Calling calling(*this, call.kind.what);
  refuse_in_group(call.group);
  Plan& plan = checked_plan(call);
  if (!plan.program && !queue_.engine_in_use())
    plan.program = planner_.bind(plan.key);  // nothing is pending, so the engine is free
  return start(operation_of(call, plan));
}

Work CommunicatorImpl::call_async(const PlannedCall& call) {
  const Calling calling(*this, call.key.signature.what);
  failure_.check_usable(to_string(call.key.signature.what));
  return start(queue_.operation_of(call, planner_.blocks()));
}

Work CommunicatorImpl::call_async(const TransferCall& call) {
  const Calling calling(*this, call.direction);
  refuse_in_group(call.group);
  return start(queue_.operation_of(checked(call)));
}

TransferCall CommunicatorImpl::checked(const TransferCall& call) {
  failure_.check_usable(to_string(call.direction));
  check_transfer(call, parts_.size);
  TransferCall complete = call;
  recognise_gpu(complete);
  if (call.timeout.count() == 0) complete.timeout = parts_.runtime->config().timeout;
  return complete;
}

Received CommunicatorImpl::call(const TransferCall& call) {
  const Calling calling(*this, call.direction);
  Transfer transfer;
  transfer.call = checked(call);
  if (call.group != nullptr) [[unlikely]] {
    call.group->calls_->add(queue_.operation_of(transfer.call));
    return {};
  }
  if (transfer.call.staged || queue_.others_first()) [[unlikely]] {
    const OperationRef operation = queue_.operation_of(transfer.call);
    await_behind_others(operation);
    return operation->transfer.received;
  }
  Transfer* const one = &transfer;
  transfer_here({&one, 1});
  return transfer.received;
}

// Nothing is pending, so these are the only transfers.
void CommunicatorImpl::transfer_here(std::span<Transfer* const> transfers) {
  failure_.throw_if_any();  // the communicator may have failed since the calls of a group were made
  try {
    for (Transfer* transfer : transfers) messages_.start(*transfer);
    if (!messages_.idle()) driver_.await_transfers(transfers);
    while (const Transfer* ended = messages_.take_ended()) report_received(*ended);
  } catch (...) {
    messages_.record_waiting();
    const Error first = failure_.set(messages_.caught_error());
    messages_.abandon();
    while (messages_.take_ended() != nullptr) continue;
    throw first;
  }
}

PlannedCall CommunicatorImpl::plan_to_repeat(const Call& call) {
  const Calling calling(*this, call.kind.what);
  refuse_in_group(call.group);
  const Plan& plan = checked_plan(call);
  queue_.refuse_in_callback();
  const auto owner = driver_.own_engine();  // the owner of the engine makes the program's channels
  PlannedCall planned = planner_.detached(call, plan);
  planned.program = planner_.bind(plan.key);
  if (call.variable != nullptr)
    planned.blocks = std::make_shared<const BlockTable>(planner_.blocks());
  return planned;
}

void CommunicatorImpl::add_to(Group& group, const PlannedCall& call) {
  const Calling calling(*this, call.key.signature.what);
  failure_.check_usable(to_string(call.key.signature.what));
  group.calls_->add(queue_.operation_of(call, planner_.blocks()));
}

void CommunicatorImpl::add_to(Group& group, const TransferCall& call) {
  const Calling calling(*this, call.direction);
  group.calls_->add(queue_.operation_of(checked(call)));
}

}  // namespace tutti
