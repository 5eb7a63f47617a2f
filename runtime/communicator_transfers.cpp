// Sends and receives of a communicator: in the caller's thread, or behind what is pending.
#include <algorithm>

#include "runtime/communicator_impl.h"
#include "runtime/diagnosis/transfer_diagnosis.h"
#include "runtime/group.h"

namespace tutti {

void CommunicatorImpl::check(const TransferCall& call) const {
  check_usable(call.direction == Direction::send ? "send" : "recv");
  check_transfer(call, parts_.size);
}

namespace {

TransferCall with_timeout(TransferCall call, std::chrono::milliseconds otherwise) {
  if (call.timeout.count() == 0) call.timeout = otherwise;
  return call;
}

}  // namespace

Received CommunicatorImpl::run(const TransferCall& call) {
  interrupted_ = call.interrupted;
  check(call);
  const TransferCall complete = with_timeout(call, parts_.runtime->config().timeout);
  if (call.group != nullptr) [[unlikely]] {
    add_to(*call.group, prepared(complete));
    return {};
  }
  if (pending()) [[unlikely]] {
    refuse_in_callback();
    const OperationRef operation = enqueue(prepared(complete));
    help_heeding(*operation);
    if (operation->error()) throw *operation->error();
    return operation->transfer.received;
  }
  Transfer transfer;
  transfer.call = complete;
  Transfer* const one = &transfer;
  run_now({&one, 1});
  return transfer.received;
}

Work CommunicatorImpl::start(const TransferCall& call) {
  return Work(*enqueue(prepared(prepare(call))));
}

TransferCall CommunicatorImpl::prepare(const TransferCall& call) const {
  refuse_in_group(call.group);
  check(call);
  return with_timeout(call, parts_.runtime->config().timeout);
}

OperationRef CommunicatorImpl::prepared(const TransferCall& call) {
  OperationRef operation = pool_->take(this, {});
  operation->transfer.call = call;
  operation->transfer.operation = operation.get();
  return operation;
}

// In the caller's own thread: nothing is pending, so these are all.
void CommunicatorImpl::run_now(std::span<Transfer* const> transfers) {
  if (failed_.load(std::memory_order_acquire)) throw *failure();  // since a group's were called
  try {
    for (Transfer* transfer : transfers) messages_.start(*transfer);
    if (!messages_.idle()) await_transfers(transfers);
    while (const Transfer* ended = messages_.take_ended()) report(*ended);
  } catch (const Error& error) {
    fail(error);
    messages_.abandon();
    while (messages_.take_ended() != nullptr) continue;
    throw;
  }
}

void CommunicatorImpl::await_transfers(std::span<Transfer* const> transfers) {
  const Clock& clock = parts_.runtime->clock();
  const Transfer* awaited = transfers.size() == 1 ? transfers.front() : nullptr;
  TimePoint deadline = TimePoint::max();
  const auto look = [&] {
    if (deadline == TimePoint::max())  // from the first look, as for collectives
      for (Transfer* transfer : transfers) {
        transfer->deadline = clock.now() + transfer->call.timeout;
        deadline = std::min(deadline, transfer->deadline);
      }
    diagnose_messages();
  };
  wait(
      policy_, clock,
      [&] {
        messages_.advance(awaited);
        return messages_.idle() && (all_left() || clock.now() >= deadline);
      },
      look, [&](auto& attempt) { return sleep(attempt, next_message_look(next_heed(deadline))); });
}

// Throws what keeps a transfer from ever ending.
void CommunicatorImpl::diagnose_messages() {
  if (failed_.load(std::memory_order_acquire)) throw *failure();
  parts_.transport->progress();
  const TransferSituation here{*parts_.transport, messages_, parts_.rank, parts_.size};
  const TimePoint now = parts_.runtime->clock().now();
  const auto verdict = diagnose_transfers(here, now);
  if (verdict) {
    messages_.advance();
    if (!verdict->transfer->done) throw verdict->error;
  } else if (now >= next_message_look(TimePoint::max())) {
    parts_.runtime->log().write(LogLevel::warn, "{}",
                                describe_stall(here, message_stalls_.age(now)));
    message_stalls_.reported(now);
  }
}

// Until when to sleep over the messages under way: the oldest is watched.
TimePoint CommunicatorImpl::next_message_look(TimePoint deadline) {
  const Transfer* const oldest = messages_.live().front();
  if (oldest == nullptr) return deadline;
  const auto id = static_cast<std::uint64_t>(oldest->deadline.time_since_epoch().count());
  return std::min(deadline, message_stalls_.due(id, parts_.runtime->clock().now()));
}

// With engine_mutex_ held, from here on, and only while something is pending: then messages_ is the
// calling thread's again. Callbacks may queue more.
void CommunicatorImpl::advance_transfers() {
  try {
    while (pending() && (!messages_.idle() || !messages_.ended().empty() ||
                         transfer_queue_.front() != nullptr)) {
      if (failed_.load(std::memory_order_acquire)) throw *failure();
      start_transfers();
      messages_.advance();
      if (!end_transfers(std::nullopt)) return;
    }
  } catch (const Error& error) {
    fail_transfers(error);
  }
}

// An operation under way is held once more, until it ends.
void CommunicatorImpl::start_transfers() {
  while (Operation* operation = transfer_queue_.front()) {
    operation->hold();
    transfer_queue_.pop();
    Transfer& transfer = operation->transfer;
    transfer.deadline = parts_.runtime->clock().now() + transfer.call.timeout;
    const TimePoint first = transfer_deadline_.load(std::memory_order_relaxed);
    transfer_deadline_.store(std::min(first, transfer.deadline), std::memory_order_seq_cst);
    parts_.runtime->mind(transfer.deadline);
    messages_.start(transfer);
  }
}

// What has ended by itself ends well, the rest with `error`; whether there was any.
bool CommunicatorImpl::end_transfers(const std::optional<Error>& error) {
  bool any = false;
  const Transfer* const first = messages_.ended().front();
  if (first != nullptr && !error && !all_left() && parts_.runtime->clock().now() < first->deadline)
    return false;
  while (pending()) {
    Transfer* transfer = messages_.take_ended();
    if (transfer == nullptr) return any;
    any = true;
    Operation& operation = *transfer->operation;
    if (transfer->done) report(*transfer);
    end(operation, transfer->done ? std::nullopt : error);
    operation.let_go();
    one_less_pending();
  }
  return any;
}

void CommunicatorImpl::report(const Transfer& ended) {
  if (ended.call.received != nullptr) *ended.call.received = ended.received;
}

void CommunicatorImpl::fail_transfers(const Error& error) {
  if (!failed_.load(std::memory_order_relaxed)) fail(error);
  messages_.abandon();
  end_transfers(error);
  while (Operation* operation = transfer_queue_.front()) {
    transfer_queue_.pop();
    end(*operation, error);
    one_less_pending();
  }
  transfer_deadline_.store(TimePoint::max(), std::memory_order_relaxed);
  advance_queue();  // ends what is queued there
}

void CommunicatorImpl::look_transfers() {
  try {
    if (pending() && !messages_.idle()) {
      diagnose_messages();
      end_transfers(std::nullopt);
    }
  } catch (const Error& error) {
    fail_transfers(error);
  }
  TimePoint first = TimePoint::max();
  for (const LiveTransfers* list : {&messages_.live(), &messages_.ended()})
    for (const Transfer* each = pending() ? list->front() : nullptr; each != nullptr;
         each = list->next(*each))
      first = std::min(first, each->deadline);
  if (pending()) first = next_message_look(first);
  transfer_deadline_.store(first, std::memory_order_relaxed);
}

}  // namespace tutti
