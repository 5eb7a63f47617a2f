#include "runtime/collectives.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "runtime/call.h"
#include "runtime/loans.h"

namespace tutti {
namespace {

// Results of at least this size are in no cache when they are written, so their cache lines are
// prefetched: 16 MiB take 4.6 ms in place of 5.3 on two cores of Cascade Lake, and 1 MiB takes 100
// us in place of 103 on Sapphire Rapids. Smaller results get slower (64 KiB take 9.8 us in place of
// 8.2).
constexpr std::size_t kFetchedBytes = 1u << 20;
// Results of at least this size are streamed past the caches, unless their lines have just been
// read: 64 MiB take 10.5 ms in place of 12.1; in place, they would take 10.7 ms, not 7.9.
constexpr std::size_t kStreamedBytes = 32u << 20;

ResultStores stores_for(std::size_t result_bytes, const void* input, const void* output) {
  if (result_bytes < kFetchedBytes) return ResultStores::cached;
  const auto in = reinterpret_cast<std::uintptr_t>(input);
  const auto out = reinterpret_cast<std::uintptr_t>(output);
  const bool apart = in + result_bytes <= out || out + result_bytes <= in;
  return apart && result_bytes >= kStreamedBytes ? ResultStores::streamed : ResultStores::fetched;
}

}  // namespace

Collectives::Collectives(const CommunicatorParts& parts, std::function<void()> worker_done)
    : parts_(parts),
      transport_(*parts.transport),
      status_page_(parts.transport->own_status_page()),
      leaves_at_once_(parts.transport->leaves_at_once()),
      workers_(std::move(worker_done)),
      stalls_(parts.runtime->config().stall) {}

void Collectives::begin(BoundProgram& bound, CallBuffers& buffers, std::size_t result_bytes,
                        bool in_threads) {
  assert(!explaining());
  if (!bound.program.variable) buffers.blocks = nullptr;
  const std::uint64_t number = next_number_++;
  if (bound.program.lends) buffers.lent = lent_of(parts_, bound.program.call, buffers);
  status_page_.record(number, bound.program.variable ? buffers.blocks->call : bound.program.call);
  const ResultStores stores = stores_for(result_bytes, buffers.input, buffers.output);
  execution_.start(bound, buffers, static_cast<std::uint32_t>(number), stores);
  if (!bound.others.empty()) [[unlikely]]
    workers_.start(bound, buffers, static_cast<std::uint32_t>(number), stores, in_threads);
}

Situation Collectives::situation() const {
  return {transport_, parts_.rank,       parts_.size,
          number(),   execution_.call(), execution_.reduction()};
}

void Collectives::look(TimePoint now, TimePoint deadline, Nanoseconds limit) {
  transport_.progress();
  if (explaining()) return look_for_explanation(now);
  status_page_.waits.store(StatusPage::waiting(number(), execution_.first_awaited()),
                           std::memory_order_release);
  const std::optional<Error> verdict = diagnose_peers(situation());
  if (!verdict && now < deadline) {
    if (now >= stalls_.due(number(), now)) report_stall(now);
    return;
  }
  if (advance()) return;
  if (verdict) throw *verdict;
  if (asked(Inquiry::Reason::deadline, now, patience_at_deadline(limit)))
    throw diagnose_deadline(situation(), execution_, limit);
}

// Returns true once all peers have answered how far they are, or have had `patience` to do so.
bool Collectives::asked(Inquiry::Reason reason, TimePoint now, Nanoseconds patience) {
  if (!inquiry_.is_about(reason, number()))
    inquiry_.begin(reason, number(), parts_.rank, parts_.size, now + patience);
  return inquiry_.look(transport_, now);
}

void Collectives::report_stall(TimePoint now) {
  if (!asked(Inquiry::Reason::stall, now, kStallPatience)) return;
  const bool all_answered = inquiry_.all_answered();
  inquiry_.end();
  if (!all_answered && stalls_.put_off(StallWatch::For::news)) return;
  const Situation here = situation();
  const Reporter reporter = reporter_of_stall(here);
  if (reporter == Reporter::lower && stalls_.put_off(StallWatch::For::another)) return;
  status_page_.reported.store(here.number + 1, std::memory_order_release);
  parts_.runtime->log().write(reporter == Reporter::reported ? LogLevel::info : LogLevel::warn,
                              "{}", describe_stall(here, stalls_.age(now)));
  stalls_.reported(now);
}

TimePoint Collectives::next_look(TimePoint now, TimePoint deadline) {
  if (explaining()) return std::min(explained_by_.value_or(now), now + kAskAgainAfter);
  if (inquiry_.is_about(number())) return std::min(inquiry_.until(), now + kAskAgainAfter);
  return std::min(deadline, stalls_.due(number(), now));
}

std::optional<Error> Collectives::explain() {
  try {
    throw;
  } catch (const MismatchedMessage& message) {
    if (can_explain(situation(), message)) return diagnose_message(situation(), message);
    mismatched_ = message;
    explained_by_.reset();
    return std::nullopt;
  } catch (const ReductionThrew& thrown) {
    return diagnose_reduction(situation(), thrown);
  } catch (const Error& error) {
    return error;
  }
}

// Throws the error for the message that did not match once the peer's status page explains it, or
// once the time for that is over: a page may have to be fetched over the network, and the peer may
// not answer.
void Collectives::look_for_explanation(TimePoint now) {
  if (!explained_by_) explained_by_ = now + kExplanationPatience;
  if (!can_explain(situation(), *mismatched_) && now < *explained_by_) return;
  const auto message = std::exchange(mismatched_, std::nullopt);
  throw diagnose_message(situation(), *message);
}

}  // namespace tutti
