// Starts the library's own threads.
#pragma once

#include <csignal>
#include <future>
#include <optional>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include <tutti/error.hpp>

#include "common/patience.h"

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
/// in time; otherwise returns none. This is for functions of other libraries that can be
/// neither bounded nor interrupted: the thread then outlives the wait, and its result is dropped.
/// So `function` must own everything that it uses.
template <typename Function>
auto call_within(const Patience& patience, Function function)
    -> std::optional<decltype(function())> {
  std::packaged_task<decltype(function())()> task([function = std::move(function)]() mutable {
    // The function and all that it owns are destroyed before the caller learns that it has ended.
    const auto call = std::move(function);
    return call();
  });
  auto result = task.get_future();
  start_without_signals(std::move(task)).detach();
  while (result.wait_until(patience.next_look()) != std::future_status::ready)
    if (patience.over()) return std::nullopt;
  return result.get();
}

}  // namespace tutti
