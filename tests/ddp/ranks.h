// Runs a function on several ranks of this process, one for each thread.
#pragma once

#include <gtest/gtest.h>

#include <optional>
#include <thread>
#include <vector>

#include <tutti/tutti.hpp>

namespace tutti::ddp {

/// Calls `body(communicator)` on each rank. Each thread owns its communicator and destroys it at
/// the end. Returns each rank's error.
template <typename Body>
std::vector<std::optional<Error>> run_ranks(int size, Body body) {
  std::vector<Communicator> communicators = Communicator::in_process(size);
  std::vector<std::optional<Error>> errors(static_cast<std::size_t>(size));
  std::vector<std::thread> threads;
  for (std::size_t r = 0; r < communicators.size(); ++r)
    threads.emplace_back([&body, &error = errors[r], mine = std::move(communicators[r])]() mutable {
      Communicator communicator =
          std::move(mine);  // destroyed when this body ends, not when all have ended
      try {
        body(communicator);
      } catch (const Error& thrown) {
        error = thrown;
      }
    });
  for (std::thread& thread : threads) thread.join();
  return errors;
}

/// Does the same for a body that may not fail on any rank.
template <typename Body>
void on_ranks(int size, Body body) {
  const auto errors = run_ranks(size, body);
  for (std::size_t r = 0; r < errors.size(); ++r)
    EXPECT_FALSE(errors[r]) << "rank " << r << ": " << errors[r]->what();
}

/// Returns the message of the error of kind `kind` that `call` must throw.
template <typename Call>
std::string message_of(ErrorKind kind, Call call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(to_string(error.kind()), to_string(kind)) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return "";
}

}  // namespace tutti::ddp
