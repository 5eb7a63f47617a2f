// Threads of the library's own.
#pragma once

#include <csignal>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include <tutti/error.hpp>

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
    throw Error(ErrorKind::unavailable, fmt::format("the store gets no thread: {}", why_not));
  return thread;
}

}  // namespace tutti
