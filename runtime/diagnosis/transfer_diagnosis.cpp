#include "runtime/diagnosis/transfer_diagnosis.h"

#include <algorithm>
#include <cassert>

#include <fmt/format.h>

#include "runtime/diagnosis/diagnosis.h"

namespace tutti {
namespace {

std::string heading(const TransferSituation& at, const Transfer& transfer) {
  return fmt::format("rank {} of {}: {}", at.rank, at.size, describe(transfer.call));
}

std::optional<Error> failed_or_lost(const TransferSituation& at, const Transfer& transfer, int peer,
                                    const PeerStatus& status) {
  if (status.state == PeerStatus::State::alive || status.state == PeerStatus::State::closed)
    return std::nullopt;
  return diagnose_state(heading(at, transfer), at.transport, peer, status);
}

// Whether the peer has closed its communicator, and all that it sent before has been taken. The
// payload of a message may take several calls of RecvChannel::get().
bool has_nothing_left(const TransferSituation& at, int peer, const PeerStatus& status) {
  return status.state == PeerStatus::State::closed && !at.messages.has_arrived(peer);
}

// For a receive from any rank: it fails if one rank is lost, which might have been the source, or
// if all have closed, which leaves no source.
std::optional<Error> diagnose_any_source(const TransferSituation& at, const Transfer& transfer) {
  int closed = 0;
  for (int peer = 0; peer < at.size; ++peer) {
    if (peer == at.rank) continue;
    const PeerStatus status = at.transport.status(peer);
    if (auto error = failed_or_lost(at, transfer, peer, status)) return error;
    if (has_nothing_left(at, peer, status)) ++closed;
  }
  if (closed == 0 || closed + 1 < at.size) return std::nullopt;
  return Error(ErrorKind::peer_lost, fmt::format("{}: all other ranks have closed their "
                                                 "communicators without sending it",
                                                 heading(at, transfer)));
}

std::optional<Error> diagnose_peer(const TransferSituation& at, const Transfer& transfer) {
  const int peer = transfer.watched;
  if (peer == kAnySource) return diagnose_any_source(at, transfer);
  assert(peer >= 0 && peer < at.size);
  if (peer == at.rank) return std::nullopt;
  const PeerStatus status = at.transport.status(peer);
  if (status.state != PeerStatus::State::closed) return failed_or_lost(at, transfer, peer, status);
  if (!has_nothing_left(at, peer, status)) return std::nullopt;
  const bool sends = transfer.call.direction == Direction::send;
  return Error(ErrorKind::peer_lost,
               fmt::format("{}: rank {} has closed its communicator without {} it",
                           heading(at, transfer), peer, sends ? "receiving" : "sending"));
}

std::string how_far(const TransferSituation& at, const Transfer& transfer) {
  const TransferCall& call = transfer.call;
  if (transfer.moved > 0)
    return fmt::format("{} bytes have {}", transfer.moved,
                       call.direction == Direction::send ? "left" : "come");
  if (call.direction == Direction::send)
    return fmt::format("rank {} has called no recv for it", call.peer);
  if (transfer.received.source != kAnySource)
    return fmt::format("rank {} has announced it, and not sent it", transfer.received.source);
  std::string text = call.peer == kAnySource
                         ? "no rank has sent such a message"
                         : fmt::format("rank {} has sent no such message", call.peer);
  if (const UnexpectedMessage* other = at.messages.matching().oldest_from(call.peer))
    text += fmt::format("; rank {} has sent {} x {} with tag {}, which waits for its recv",
                        other->source, other->count, to_string(other->type), other->tag);
  return text;
}

Error passed_deadline(const TransferSituation& at, const Transfer& transfer) {
  return Error(ErrorKind::timeout,
               fmt::format("{} did not end within {} ms: {}. {}", heading(at, transfer),
                           transfer.call.timeout.count(), how_far(at, transfer),
                           advice_at_deadline(transfer.call.timeout, at.timeout)));
}

}  // namespace

bool awaited_ranks_are_alive(const TransferSituation& at) {
  const auto alive = [&](int peer) {
    return peer == at.rank || at.transport.status(peer).state == PeerStatus::State::alive;
  };
  if (at.messages.awaits_any_rank())
    for (int peer = 0; peer < at.size; ++peer)
      if (!alive(peer)) return false;
  const std::vector<int>& awaited = at.messages.awaited_ranks();
  return std::all_of(awaited.begin(), awaited.end(), alive);
}

std::optional<TransferVerdict> diagnose_transfers(const TransferSituation& at, TimePoint now) {
  const LiveTransfers& live = at.messages.live();
  for (const Transfer* each = live.front(); each != nullptr; each = live.next(*each)) {
    assert(!each->done);
    if (auto error = diagnose_peer(at, *each)) return TransferVerdict{each, *error};
    if (now >= each->deadline) return TransferVerdict{each, passed_deadline(at, *each)};
  }
  return std::nullopt;
}

std::string describe_stall(const TransferSituation& at, Nanoseconds age) {
  constexpr int kMostReported = 8;
  const LiveTransfers& live = at.messages.live();
  int reported = 0;
  std::string text = fmt::format("rank {} of {}: messages have been under way for {:.1f} s",
                                 at.rank, at.size, std::chrono::duration<double>(age).count());
  for (const Transfer* each = live.front(); each != nullptr; each = live.next(*each)) {
    if (++reported > kMostReported) return text + "\n  and more";
    text += fmt::format("\n  {}: {}", describe(each->call), how_far(at, *each));
  }
  return text;
}

}  // namespace tutti
