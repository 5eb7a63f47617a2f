#include "runtime/failure.h"

#include <cassert>

#include <fmt/format.h>

#include "common/sync.h"
#include "runtime/diagnosis/diagnosis.h"

namespace tutti {

std::optional<Error> Failure::error() const {
  const std::lock_guard lock(mutex_);
  return error_;
}

void Failure::refuse_in_child(std::string_view what) const {
  if (!parts_.runtime->in_own_process())
    throw Error(ErrorKind::usage,
                fmt::format("{}: this process was forked after the communicator was made; make one "
                            "after the fork",
                            what));
}

void Failure::check_usable(std::string_view what) const {
  refuse_in_child(what);
  throw_if_any();
}

const Error& Failure::set(const Error& error) noexcept {
  bool first = false;
  {
    const std::lock_guard lock(mutex_);
    first = !error_;
    if (first) error_ = error;
    StatusPage& page = parts_.transport->own_status_page();
    if (page.state.load(std::memory_order_relaxed) == StatusPageState::open)
      page.fail(error.kind(), error.what());
    assert(error_ && page.state.load(std::memory_order_relaxed) != StatusPageState::open);
  }
  exists_.store(true, std::memory_order_seq_cst);
  // This comes before the caller writes to the memory of its messages: see RecvRing::still_valid().
  sync::fence(std::memory_order_seq_cst);
  for (int peer = 0; peer < parts_.size; ++peer) {
    if (peer == parts_.rank) continue;
    parts_.transport->revoke(peer);
    parts_.transport->wake(peer);
  }
  if (first) {
    parts_.recorder->failed(error.kind(), error.what());
    parts_.runtime->log().write(LogLevel::info, "communicator failed: {}", error.what());
    parts_.runtime->dump_after_failure();
  }
  return *error_;  // constant once it is set
}

void Failure::notice_failed_peers() noexcept {
  if (exists()) return;
  try {
    if (const auto error = diagnose_failed(*parts_.transport, parts_.rank, parts_.size))
      set(*error);
  } catch (...) {  // the next call meets the same error, and reports it to its caller
    return;
  }
}

void Failure::abort(std::string_view why) {
  if (!parts_.runtime->in_own_process()) return;
  set(Error(ErrorKind::peer_lost,
            fmt::format("rank {} aborted the communicator: {}", parts_.rank, why)));
  parts_.wake_sleepers();  // threads that sleep find the failure now, and others find it at their
                           // last look before they sleep
  parts_.runtime->poke();
}

}  // namespace tutti
