#include "runtime/communicator_impl.h"

#include <cstring>

#include <fmt/format.h>

#include "collectives/schedule/semantics.h"
#include "runtime/engine/variable_blocks.h"
#include "runtime/group.h"

namespace tutti {
namespace {

// Results from here on are in no cache when they are written, so their lines are fetched ahead: 16
// MiB 5.3 to 4.6 ms on two cores of Cascade Lake, 1 MiB 103 to 100 us on Sapphire Rapids; below, it
// costs (64 KiB 8.2 to 9.8 us).
constexpr std::size_t kFetchedBytes = 1u << 20;
// And from here on they are streamed, unless their lines have just been read: 64 MiB 12.1 to 10.5
// ms, in place 7.9 to 10.7.
constexpr std::size_t kStreamedBytes = 32u << 20;

ResultStores stores_for(std::size_t result_bytes, const void* input, const void* output) {
  if (result_bytes < kFetchedBytes) return ResultStores::cached;
  const auto in = reinterpret_cast<std::uintptr_t>(input);
  const auto out = reinterpret_cast<std::uintptr_t>(output);
  const bool apart = in + result_bytes <= out || out + result_bytes <= in;
  return apart && result_bytes >= kStreamedBytes ? ResultStores::streamed : ResultStores::fetched;
}

std::size_t blocks_moved(Collective what, int size) {
  return collectives::layout_of(what) == Layout::blocks ? static_cast<std::size_t>(size) : 1;
}

// Of a Plan or PlannedCall; `blocks` are for a variable one.
template <typename AnyCall>
CallBuffers buffers_of(const AnyCall& call, const CallExtras& extras, const BlockTable* blocks) {
  return {static_cast<const std::byte*>(call.input), static_cast<std::byte*>(call.output), nullptr,
          blocks, &extras};
}

}  // namespace

CommunicatorImpl::CommunicatorImpl(CommunicatorParts parts)
    : parts_(std::move(parts)),
      policy_(wait_policy(parts_.shared->ranks, parts_.shared->cores,
                          parts_.runtime->config().spin_polls)),
      status_page_(parts_.transport->own_status_page()),
      leaves_at_once_(parts_.transport->leaves_at_once()),
      wants_background_progress_(parts_.transport->background_progress()),
      own_algorithms_(parts_.request()),
      lender_(std::make_shared<Lender>(*parts_.transport)),
      segments_(parts_.transport->registered()),
      programs_(*parts_.transport, own_algorithms_, parts_.request()),
      messages_(*parts_.transport, parts_.rank, parts_.size,
                parts_.shared->ranks > parts_.shared->cores) {
  SharedEndpoint& shared = *parts_.shared;
  if (shared.communicators == 0)  // the first wait that comes to sleep need not make one
    shared.sleepers.give_back(
        shared.sleepers.take(shared.doorbell->fd(), parts_.transport->wait_fd()));
  // This is the last step that may throw: the runtime calls what it was given, constructed or not.
  if (wants_background_progress_) parts_.runtime->add_background(*this);
  ++shared.communicators;
}

CommunicatorImpl::~CommunicatorImpl() {
  lender_->end();
  pool_->abandon();
  if (!parts_.runtime->in_own_process()) {  // a forked child: the channels are the parent's
    static_cast<void>(parts_.transport.release());
    workers_.forget();
    return;
  }
  drain();
  pool_->await_waiters();
  if (registered_ || wants_background_progress_) parts_.runtime->remove(*this);
  --parts_.shared->communicators;
  const std::scoped_lock last_owner(engine_mutex_, mutex_);  // who ended the last one has let go
  parts_.transport->close();
}

bool CommunicatorImpl::usable() const noexcept {
  return parts_.runtime->in_own_process() && !failed_.load(std::memory_order_acquire);
}

// The last call once more, or nearly: nothing to check, nothing to plan.
inline bool CommunicatorImpl::repeats(const Call& call) const noexcept {
  return usable() && last_plan_ && last_plan_->kind == call.kind &&
         last_plan_->algorithm == call.algorithm && last_plan_->checked &&
         last_plan_->input == call.input && last_plan_->output == call.output &&
         is_timeout(call.timeout) && call.extras.reduction == nullptr;
}

CommunicatorImpl::Plan& CommunicatorImpl::plan(const Call& call) {
  check_usable(to_string(call.kind.what));
  if (call.extras.reduction != nullptr) check_reduction(call);
  if (!last_plan_ || last_plan_->kind != call.kind || last_plan_->algorithm != call.algorithm)
    last_plan_ = plan_kind(call.kind, call.algorithm);
  Plan& plan = *last_plan_;
  if (call.variable != nullptr) {
    check_timeout(call);
    plan.result_bytes = lay_out(call, parts_.rank, parts_.size, plan.key.signature, blocks_);
  } else {
    check_buffers(call, parts_.rank, parts_.size);
    plan.checked = true;
  }
  plan.input = call.input;
  plan.output = call.output;
  return plan;
}

CallKey CommunicatorImpl::key_of(const CallKind& kind, std::string_view algorithm) {
  const Choice choice = choose_algorithm(kind, algorithm);
  return {{kind.what, kind.type, kind.op, kind.root, kind.variable ? 0 : kind.count,
           choice.algorithm, kind.variable ? kPairLengths : 0, kind.reduction,
           accumulates_in_f32(kind), sums_reproducibly(kind)},
          choice.message_bytes,
          lends(),
          stripes_of(kind, choice.algorithm)};
}

CommunicatorImpl::Plan CommunicatorImpl::plan_kind(const CallKind& kind,
                                                   std::string_view algorithm) {
  check_kind(kind, parts_.size);
  const std::size_t bytes = kind.count * element_bytes(kind) * blocks_moved(kind.what, parts_.size);
  Plan plan{kind, std::string(algorithm), key_of(kind, algorithm), bytes};
  return plan;
}

std::chrono::milliseconds CommunicatorImpl::timeout_of(const Call& call) const {
  return call.timeout.count() > 0 ? call.timeout : parts_.runtime->config().timeout;
}

void CommunicatorImpl::begin(BoundProgram& bound, CallBuffers& buffers, std::size_t result_bytes) {
  buffers.scratch = programs_.scratch(bound);
  if (!bound.program.variable) buffers.blocks = nullptr;
  const std::uint64_t number = next_number_++;
  if (bound.program.lends) buffers.lent = lent_of(bound.program.call, buffers);
  status_page_.record(number, bound.program.variable ? buffers.blocks->call : bound.program.call);
  const ResultStores stores = stores_for(result_bytes, buffers.input, buffers.output);
  execution_.start(bound, buffers, static_cast<std::uint32_t>(number), stores);
  if (!bound.others.empty()) [[unlikely]]
    workers_.start(bound, buffers, static_cast<std::uint32_t>(number), stores, !under_way_);
}

void CommunicatorImpl::begin(const PlannedCall& call, const BlockTable* blocks) {
  const CallExtras extras = call.extras();
  CallBuffers buffers = buffers_of(call, extras, blocks);
  begin(*call.program, buffers, call.result_bytes);
}

void CommunicatorImpl::complete() noexcept {
  status_page_.completed.store(next_number_, std::memory_order_release);
}

void CommunicatorImpl::run(const Call& call) {
  interrupted_ = call.interrupted;
  Plan& plan = repeats(call) ? *last_plan_ : this->plan(call);
  if (call.group != nullptr) [[unlikely]]
    return add_to(*call.group, prepared(planned(call, plan)));
  if (pending()) [[unlikely]]
    return run_behind(planned(call, plan));
  if (!plan.program) [[unlikely]]
    plan.program = programs_.get(plan.key);
  run_now(*plan.program, buffers_of(plan, call.extras, &blocks_), plan.result_bytes,
          timeout_of(call));
}

void CommunicatorImpl::run(const PlannedCall& call) {
  interrupted_ = nullptr;
  if (!usable()) [[unlikely]]
    check_usable(to_string(call.key.signature.what));
  if (pending()) [[unlikely]]
    return run_behind(call);
  run_now(call);
}

// In the caller's own thread, from here on: nothing is pending.
void CommunicatorImpl::run_now(BoundProgram& bound, CallBuffers&& buffers, std::size_t result_bytes,
                               std::chrono::milliseconds timeout) {
  begin(bound, buffers, result_bytes);
  finish_now(timeout);
}

void CommunicatorImpl::run_now(const PlannedCall& call) {
  begin(call, call.blocks.get());
  finish_now(call.timeout);
}

void CommunicatorImpl::finish_now(std::chrono::milliseconds timeout) {
  try {
    await_execution(timeout);
  } catch (...) {
    workers_.stop();
    const Error error = diagnose_thrown();
    fail(error);
    throw error;
  }
  complete();
}

PlannedCall CommunicatorImpl::prepare(const Call& call) {
  refuse_in_group(call.group);
  const Plan& plan = this->plan(call);
  refuse_in_callback();
  const std::lock_guard owner(engine_mutex_);  // the program's channels are the engine's
  PlannedCall prepared = planned(call, plan);
  prepared.program = programs_.get(plan.key);
  if (!under_way_) programs_.scratch(*prepared.program);
  if (call.variable != nullptr) prepared.blocks = std::make_shared<const BlockTable>(blocks_);
  return prepared;
}

PlannedCall CommunicatorImpl::planned(const Call& call, const Plan& plan) const {
  PlannedCall planned{plan.key,          call.input,   call.output, timeout_of(call),
                      plan.result_bytes, plan.program, nullptr,     call.extras.reduction};
  if (call.extras.premultiplier != nullptr)
    std::memcpy(planned.premultiplier.data(), call.extras.premultiplier, size_of(call.kind.type));
  return planned;
}

void CommunicatorImpl::await_execution(std::chrono::milliseconds timeout) {
  const Clock& clock = parts_.runtime->clock();
  std::optional<TimePoint>
      deadline;  // counted from the first look, so that a short call never reads the clock
  wait(
      policy_, clock, [this] { return advance_call(); },
      [&] {
        if (!deadline) deadline = clock.now() + timeout;
        look(*deadline, timeout);
      },
      [&](auto& attempt) { return sleep(attempt, next_look(next_heed(*deadline))); });
}

void CommunicatorImpl::begin_queued(Operation& operation) {
  PlannedCall& call = operation.call;
  if (!call.program) call.program = programs_.get(call.key);
  under_way_ = true;
  begin(call, &operation.blocks());
  operation.deadline = parts_.runtime->clock().now() + call.timeout;
  const TimePoint first_look = next_look(operation.deadline);
  deadline_.store(first_look, std::memory_order_seq_cst);
  parts_.runtime->mind(first_look);
}

Communicator CommunicatorImpl::make(CommunicatorParts parts) {
  return Communicator(std::make_unique<CommunicatorImpl>(std::move(parts)));
}

}  // namespace tutti
