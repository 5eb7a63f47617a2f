// The public classes Work (a call under way) and Persistent (a call that is started many times).
#include <algorithm>
#include <cassert>
#include <chrono>
#include <optional>
#include <variant>

#include <tutti/work.hpp>

#include "runtime/calling.h"
#include "runtime/communicator_impl.h"
#include "runtime/group.h"

namespace tutti {

namespace {

// Waits for at most `limit`, or without an end, in the time of the runtime.
bool await(const Operation& operation, std::optional<std::chrono::milliseconds> limit = {}) {
  assert(operation.owner != nullptr);
  const Operation::Waiter waiter(operation);
  if (!waiter.owner_stays()) return true;
  CommunicatorImpl& owner = *operation.owner;
  const TimePoint until = limit ? owner.parts().runtime->clock().now() + *limit : TimePoint::max();
  return owner.driver().await_operation(operation, until);
}

}  // namespace

Work::Work(Operation& operation) noexcept : operation_(&operation) { operation.hold(); }
Work::Work(const Work& other) noexcept : operation_(other.operation_) {
  if (operation_ != nullptr) operation_->hold();
}
Work::Work(Work&& other) noexcept : operation_(std::exchange(other.operation_, nullptr)) {}
Work& Work::operator=(Work other) noexcept {
  std::swap(operation_, other.operation_);
  return *this;
}
Work::~Work() {
  if (operation_ != nullptr) operation_->let_go();
}

bool Work::done() const noexcept { return operation_ == nullptr || operation_->done(); }

void Work::wait() {
  if (!done()) await(*operation_);
  if (operation_ != nullptr && operation_->error()) throw *operation_->error();
}

void Work::wait(std::chrono::milliseconds limit) {
  if (!wait_for(limit))
    throw Error(ErrorKind::timeout,
                "the operation had not ended within the time that was given to wait for it; it "
                "goes on, and can be waited for again");
}

bool Work::wait_for(std::chrono::milliseconds limit) {
  if (!done() && !await(*operation_, std::min(limit, kLongestTimeout))) return false;
  wait();
  return true;
}

void Work::then(Callback callback) {
  if (operation_ == nullptr)
    callback(nullptr);
  else
    operation_->then(std::move(callback));
}

/// Holds a collective, a send or a receive in the form in which the communicator runs it.
struct Persistent::Prepared {
  CommunicatorImpl& communicator;
  std::variant<PlannedCall, TransferCall> call;
};

Persistent::Persistent(std::unique_ptr<Prepared> prepared) : prepared_(std::move(prepared)) {}
Persistent::Persistent(Persistent&&) noexcept = default;
Persistent& Persistent::operator=(Persistent&&) noexcept = default;
Persistent::~Persistent() = default;
void Persistent::run() {
  std::visit([&](const auto& call) { prepared_->communicator.call(call); }, prepared_->call);
}
Work Persistent::start() {
  const auto start = [&](const auto& call) { return prepared_->communicator.call_async(call); };
  return std::visit(start, prepared_->call);
}

void Persistent::add_to(Group& group) {
  std::visit([&](const auto& call) { prepared_->communicator.add_to(group, call); },
             prepared_->call);
}

Persistent CommunicatorImpl::make_persistent(const Call& call) {
  return Persistent(
      std::make_unique<Persistent::Prepared>(Persistent::Prepared{*this, plan_to_repeat(call)}));
}
Persistent CommunicatorImpl::make_persistent(const TransferCall& call) {
  const Calling calling(*this, call.direction);
  refuse_in_group(call.group);
  return Persistent(
      std::make_unique<Persistent::Prepared>(Persistent::Prepared{*this, checked(call)}));
}

}  // namespace tutti
