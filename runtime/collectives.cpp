#include "runtime/collectives.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "runtime/call.h"
#include "runtime/zero_copy.h"

namespace tutti {

Collectives::Collectives(const CommunicatorParts& parts, Engine& engine)
    : parts_(parts),
      transport_(*parts.transport),
      status_page_(parts.transport->own_status_page()),
      leaves_at_once_(parts.transport->leaves_at_once()),
      engine_(engine),
      stalls_(parts.runtime->config().stall) {}

Situation Collectives::situation() const {
  return {transport_, parts_.rank, parts_.size, number(), engine_.call(), engine_.reduction()};
}

void Collectives::look(TimePoint now, TimePoint deadline, Nanoseconds limit) {
  transport_.progress();
  if (explaining()) return look_for_explanation(now);
  const int awaited = engine_.awaited(-1);
  status_page_.waits.store(StatusPage::waiting(number(), awaited), std::memory_order_release);
  parts_.recorder->waits(awaited, now);
  const std::optional<Error> verdict = diagnose_peers(situation());
  if (!verdict && now < deadline) {
    if (now >= stalls_.due(number(), now)) report_stall(now);
    return;
  }
  if (verdict) transport_.progress();  // the last channel of a peer may just have arrived
  if (advance(1)) return;
  if (verdict) throw *verdict;
  if (asked(Inquiry::Reason::deadline, now, patience_at_deadline(limit)))
    throw diagnose_deadline(situation(), engine_, limit, parts_.runtime->config().timeout);
}

// Returns true once all peers have answered how far they are, or have had `patience` to do so.
bool Collectives::asked(Inquiry::Reason reason, TimePoint now, Nanoseconds patience) {
  if (!inquiry_.is_about(reason, number()))
    inquiry_.begin(reason, number(), parts_.rank, parts_.size, now + patience);
  return inquiry_.look(transport_, now);
}

void Collectives::report_stall(TimePoint now) {
  if (!asked(Inquiry::Reason::stall, now, kStallPatience)) return;
  assert(inquiry_.is_about(Inquiry::Reason::stall, number()));
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
  std::optional<Error> error = explain_thrown();
  if (error) engine_.record_failure(error->kind());
  return error;
}

std::optional<Error> Collectives::explain_thrown() {
  try {
    throw;
  } catch (const MismatchedMessage& message) {
    if (can_explain(situation(), message)) return diagnose_message(situation(), message);
    assert(!explaining() && message.peer != parts_.rank);
    mismatched_ = message;
    explained_by_.reset();
    return std::nullopt;
  } catch (const ReductionThrew& thrown) {
    return diagnose_reduction(situation(), thrown);
  } catch (...) {
    return caught_error(
        fmt::format("rank {} of {}: operation #{}", parts_.rank, parts_.size, number()));
  }
}

// Throws the error for the message that did not match once the peer's status page explains it, or
// once the time for that is over: a page may have to be fetched over the network, and the peer may
// not answer.
void Collectives::look_for_explanation(TimePoint now) {
  assert(explaining());
  if (!explained_by_) explained_by_ = now + kExplanationPatience;
  if (!can_explain(situation(), *mismatched_) && now < *explained_by_) return;
  const auto message = std::exchange(mismatched_, std::nullopt);
  throw diagnose_message(situation(), *message);
}

}  // namespace tutti
