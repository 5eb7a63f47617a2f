// Threads of the library's own.
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

/// A thread in which no signal is handled: the program's handlers run in the program's threads.
/// Throws `unavailable`.
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

/// What `function` returns or throws, where it does by the deadline; else none. For calls of other
/// libraries that can be neither bounded nor interrupted: the thread that makes it then outlives
/// the wait, and ends unheard. So `function` owns all that it uses.
template <typename Function>
auto call_within(TimePoint deadline, Function function) -> std::optional<decltype(function())> {
  struct Outcome {
    std::mutex mutex;
    std::condition_variable changed;
    std::optional<decltype(function())> value;  // these two guarded by mutex
    std::exception_ptr error;
  };
  const auto outcome = std::make_shared<Outcome>();
  start_without_signals([outcome, function = std::move(function)]() mutable {
    std::optional<decltype(function())> value;
    std::exception_ptr error;
    try {
      const auto call = std::move(function);  // what it owns goes before anybody hears of its end
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
