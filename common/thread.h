// Starts the library's own threads.
#pragma once

#include <condition_variable>
#include <csignal>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include <tutti/error.hpp>

#include "common/clock.h"

namespace tutti {

/// Starts a thread in which all signals are blocked, so that the program's handlers run in the
/// program's threads. Throws `unavailable` if there is no thread to be had.
template <typename Function>
std::thread start_without_signals(Function function) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread thread;
  std::string why_not;
  try {
    thread = std::thread(std::move(function));
  } catch (const std::system_error& error) {
    why_not = error.what();
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (!thread.joinable())
    throw Error(ErrorKind::unavailable, fmt::format("the kernel gives no thread: {}", why_not));
  return thread;
}

/// Runs `function` in a thread of its own. Returns its result, or throws its exception, if it ends
/// by the deadline; otherwise returns none. This is for functions of other libraries that can be
/// neither bounded nor interrupted: the thread then outlives the wait, and its result is dropped.
/// So `function` must own everything that it uses.
template <typename Function>
auto call_within(TimePoint deadline, Function function) -> std::optional<decltype(function())> {
  struct Outcome {
    std::mutex mutex;
    std::condition_variable changed;
    std::optional<decltype(function())> value;  // `value` and `error` are guarded by `mutex`
    std::exception_ptr error;
  };
  const auto outcome = std::make_shared<Outcome>();
  start_without_signals([outcome, function = std::move(function)]() mutable {
    std::optional<decltype(function())> value;
    std::exception_ptr error;
    try {
      // The function and all that it owns are destroyed before the caller learns that it has ended.
      const auto call = std::move(function);
      value = call();
    } catch (...) {
      error = std::current_exception();
    }
    const std::lock_guard lock(outcome->mutex);
    outcome->value = std::move(value);
    outcome->error = error;
    outcome->changed.notify_all();
  }).detach();
  std::unique_lock lock(outcome->mutex);
  outcome->changed.wait_until(lock, deadline,
                              [&] { return outcome->value.has_value() || outcome->error; });
  if (outcome->error) std::rethrow_exception(outcome->error);
  return std::move(outcome->value);
}

}  // namespace tutti
