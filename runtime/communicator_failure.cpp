// What keeps a communicator's call from ending, and how the rest of the job learns of it.
#include <fmt/format.h>

#include <tutti/error.hpp>

#include "runtime/communicator_impl.h"
#include "runtime/diagnosis/diagnosis.h"
#include "runtime/membership/setup.h"
#include "runtime/membership/shrink.h"

namespace tutti {

std::optional<Error> CommunicatorImpl::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

void CommunicatorImpl::check_usable(std::string_view what) const {
  if (!parts_.runtime->in_own_process())
    throw Error(ErrorKind::usage,
                fmt::format("{}: this process was forked after the communicator was made; make one "
                            "after the fork",
                            what));
  if (failed_.load(std::memory_order_acquire)) throw *failure();
}

Situation CommunicatorImpl::situation() const {
  return {*parts_.transport, parts_.runtime->clock(), parts_.rank,           parts_.size,
          next_number_ - 1,  execution_.call(),       execution_.reduction()};
}

Communicator CommunicatorImpl::shrink(std::chrono::milliseconds patience) {
  if (parts_.name.empty())
    throw Error(ErrorKind::usage,
                "shrink: this communicator was split off another or made in one process; shrink "
                "the one that came from the environment or from a store, and split that");
  if (!is_timeout(patience)) throw Error(ErrorKind::usage, "shrink: " + not_a_timeout(patience));
  refuse_in_callback();
  const TimePoint until = parts_.runtime->clock().now() + patience;
  if (!drain(until)) {
    abort("it called shrink() with calls under way that did not end");
    drain();
  }
  const auto lost = [this] {
    const std::lock_guard owned(engine_mutex_);
    parts_.transport->progress();
    std::vector<bool> gone(static_cast<std::size_t>(parts_.size));
    for (int peer = 0; peer < parts_.size; ++peer) {
      if (peer == parts_.rank) continue;
      // A rank that failed and then ended still shows `failed` on its status page, hence `gone`.
      const PeerStatus status = parts_.transport->status(peer);
      gone[static_cast<std::size_t>(peer)] =
          status.gone || status.state == PeerStatus::State::closed;
    }
    return gone;
  };
  std::optional<CommunicatorParts> made;
  const auto join = [&](const Survivors& survivors, std::shared_ptr<Store> store,
                        TimePoint deadline) {
    made.reset();
    made = join_survivors(parts_, survivors.members, survivors.name, std::move(store), deadline);
  };
  if (!shrinking_) {
    shrinking_ = std::make_unique<Shrinking>(parts_.store, parts_.name + "/shrink", parts_.rank,
                                             parts_.size);
  }
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(
      until - std::min(until, parts_.runtime->clock().now()));
  shrinking_->run(left, lost, join);
  return make(std::move(*made));
}

void CommunicatorImpl::look(TimePoint deadline, Nanoseconds limit) {
  if (failed_.load(std::memory_order_acquire)) throw *failure();
  parts_.transport->progress();
  const std::uint64_t number = next_number_ - 1;
  status_page_.waits.store(StatusPage::waiting(number, execution_.first_awaited()),
                           std::memory_order_release);
  const std::optional<Error> verdict = diagnose_peers(situation());
  const TimePoint now = parts_.runtime->clock().now();
  if (!verdict && now < deadline) {
    if (now >= stalls_.due(number, now)) report_stall(now);
    return;
  }
  if (advance_call()) return;
  if (verdict) throw *verdict;
  throw diagnose_deadline(situation(), execution_, limit);
}

void CommunicatorImpl::report_stall(TimePoint now) {
  const Situation here = situation();
  if (!ask_peers(here) && stalls_.put_off(StallWatch::For::news)) return;
  const Reporter reporter = reporter_of_stall(here);
  if (reporter == Reporter::lower && stalls_.put_off(StallWatch::For::another)) return;
  status_page_.reported.store(here.number + 1, std::memory_order_release);
  parts_.runtime->log().write(reporter == Reporter::reported ? LogLevel::info : LogLevel::warn,
                              "{}", describe_stall(here, stalls_.age(now)));
  stalls_.reported(now);
}

// Until when to sleep over the operation under way.
TimePoint CommunicatorImpl::next_look(TimePoint deadline) {
  return std::min(deadline, stalls_.due(next_number_ - 1, parts_.runtime->clock().now()));
}

// In a handler: the error for what is being handled.
Error CommunicatorImpl::diagnose_thrown() const {
  try {
    throw;
  } catch (const MismatchedMessage& message) {
    return diagnose_message(situation(), message);
  } catch (const ReductionThrew& thrown) {
    return diagnose_reduction(situation(), thrown);
  } catch (const Error& error) {
    return error;
  }
}

// Passes the error on: to peers by the status page, to later calls by failure_, to queued
// operations by their own.
void CommunicatorImpl::fail(const Error& error) noexcept {
  {
    const std::lock_guard lock(mutex_);
    if (!failure_) failure_ = error;
    if (status_page_.state.load(std::memory_order_relaxed) == StatusPageState::open)
      status_page_.fail(error.kind(), error.what());
  }
  failed_.store(true, std::memory_order_seq_cst);
  // Before the caller writes to what was lent: see RecvRing::still_lent().
  std::atomic_thread_fence(std::memory_order_seq_cst);
  for (int peer = 0; peer < parts_.size; ++peer) {
    if (peer == parts_.rank) continue;
    parts_.transport->revoke(peer);
    parts_.transport->wake(peer);
  }
  parts_.runtime->log().write(LogLevel::info, "communicator failed: {}", error.what());
}

void CommunicatorImpl::abort(std::string_view why) {
  if (!parts_.runtime->in_own_process()) return;
  fail(Error(ErrorKind::peer_lost,
             fmt::format("rank {} aborted the communicator: {}", parts_.rank, why)));
  wake_waiters();  // they find it failed, or have not yet looked for the last time
  parts_.runtime->poke();
}

// Until when a blocking call may sleep before it asks again whether it is interrupted.
TimePoint CommunicatorImpl::next_heed(TimePoint deadline) {
  constexpr std::chrono::milliseconds kEvery{100};
  if (interrupted_ == nullptr) return deadline;
  if (interrupted_()) abort("interrupted");
  return std::min(deadline, parts_.runtime->clock().now() + kEvery);
}

}  // namespace tutti
