#include "runtime/messages.h"

#include <algorithm>
#include <cassert>
#include <optional>

#include "runtime/diagnosis/diagnosis.h"
#include "runtime/diagnosis/transfer_diagnosis.h"
#include "runtime/engine/wait.h"

namespace tutti {
namespace {

Recorder::TransferEntry entry_of(const TransferCall& call) noexcept {
  return {call.direction == Direction::send ? Record::kSend : Record::kReceive, call.type,
          call.count, call.peer, call.tag};
}

}  // namespace

Messages::Messages(const CommunicatorParts& parts)
    : parts_(parts),
      protocol_(*parts.transport, parts.rank, parts.size,
                parts.machine_ranks > parts.machine_cores),
      stalls_(parts.runtime->config().stall),
      soon_polls_(std::clamp(
          wait_policy(parts.machine_ranks, parts.machine_cores, parts.runtime->config().spin_polls)
              .polls,
          1, Record::kSoonPolls)) {}

void Messages::start(Transfer& transfer) {
  if (transfer.call.count > Record::kSoonCount) {
    record(transfer);
  } else {
    transfer.recorded = Transfer::kUnrecorded;
    ++unrecorded_;
  }
  first_deadline_ = std::min(first_deadline_, transfer.deadline);
  protocol_.start(transfer);
}

void Messages::record(Transfer& transfer) noexcept {
  transfer.recorded = parts_.recorder->begin_transfer(entry_of(transfer.call), transfer.called);
}

// Most of them are the last ones that have started. Some may have ended and not been taken: they
// are still under way where their messages have not left.
void Messages::record_waiting() noexcept {
  Transfer* first = nullptr;
  for (Transfer* each = protocol_.live().back(); unrecorded_ > 0 && each != nullptr;
       each = LiveTransfers::previous(*each)) {
    if (each->recorded != Transfer::kUnrecorded) continue;
    first = each;
    --unrecorded_;
  }
  for (; first != nullptr; first = LiveTransfers::next(*first))
    if (first->recorded == Transfer::kUnrecorded) record(*first);
  polls_ = 0;
  if (unrecorded_ == 0) return;
  const bool left = parts_.transport->all_left();
  for (Transfer* each = protocol_.ended().front(); each != nullptr;
       each = LiveTransfers::next(*each)) {
    if (each->recorded != Transfer::kUnrecorded) continue;
    if (left) {
      record_soon(*each);
      each->recorded = Transfer::kEndRecorded;
    } else {
      record(*each);
    }
  }
  unrecorded_ = 0;
}

void Messages::record_end(const Transfer& transfer) noexcept {
  if (transfer.recorded == Transfer::kEndRecorded) return;
  if (transfer.recorded != Transfer::kUnrecorded)
    return parts_.recorder->end(transfer.recorded,
                                transfer.done ? Record::kGood : Record::kAbandoned);
  assert(unrecorded_ > 0 && transfer.done);
  if (--unrecorded_ == 0) polls_ = 0;
  record_soon(transfer);
}

// The clock is read for an asynchronous transfer in any case, since it may have waited for long
// before it began.
void Messages::record_soon(const Transfer& transfer) noexcept {
  constexpr std::uint64_t kLong = 16 * Record::kQueuedTicks;  // some microseconds
  Recorder& recorder = *parts_.recorder;
  const Recorder::TransferEntry entry = entry_of(transfer.call);
  if (transfer.called == 0) {
    if (!recorder.transfer_repeats(entry)) recorder.transfer_soon(entry, ticks());
    return;
  }
  const std::uint64_t now = ticks();
  if (now > transfer.called + kLong)
    recorder.late_transfer_soon(entry, transfer.called, now);
  else if (!recorder.transfer_repeats(entry))
    recorder.transfer_soon(entry, now);
}

void Messages::look(TimePoint now) {
  if (unrecorded_ > 0) record_waiting();
  parts_.transport->progress();
  const TransferSituation here{*parts_.transport, protocol_, parts_.rank, parts_.size,
                               parts_.runtime->config().timeout};
  std::optional<TransferVerdict> verdict;
  if (now >= first_deadline(now) || !awaited_ranks_are_alive(here))
    verdict = diagnose_transfers(here, now);
  if (verdict) {
    // The last messages of a peer that has ended may just have arrived, and its last channel.
    parts_.transport->progress();
    protocol_.advance();
    if (!verdict->transfer->done) throw verdict->error;
  } else if (const auto failed = diagnose_failed(*parts_.transport, parts_.rank, parts_.size,
                                                 ": sends and receives")) {
    throw *failed;  // a peer that no transfer waits for has failed, and the communicator with it
  } else if (now >= next_look(now, TimePoint::max())) {
    parts_.runtime->log().write(LogLevel::warn, "{}", describe_stall(here, stalls_.age(now)));
    stalls_.reported(now);
  }
}

Error Messages::caught_error() const {
  return tutti::caught_error(
      fmt::format("rank {} of {}: sends and receives", parts_.rank, parts_.size));
}

// A stall is reported for the oldest transfer.
TimePoint Messages::next_look(TimePoint now, TimePoint deadline) {
  const Transfer* const oldest = protocol_.live().front();
  if (oldest == nullptr) return deadline;
  const auto id = static_cast<std::uint64_t>(oldest->deadline.time_since_epoch().count());
  return std::min(deadline, stalls_.due(id, now));
}

TimePoint Messages::first_deadline(TimePoint now) noexcept {
  if (now < first_deadline_) return first_deadline_;
  first_deadline_ = TimePoint::max();
  for (const LiveTransfers* list : {&protocol_.live(), &protocol_.ended()})
    for (const Transfer* each = list->front(); each != nullptr; each = list->next(*each))
      first_deadline_ = std::min(first_deadline_, each->deadline);
  return first_deadline_;
}

void report_received(const Transfer& ended) {
  assert(ended.done && ended.received.count <= ended.call.count);
  if (ended.call.received != nullptr) *ended.call.received = ended.received;
}

}  // namespace tutti
