// The errors that calls are expected to throw, for the tests of all rooms.
#pragma once

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <functional>
#include <string>

#include <tutti/error.hpp>

namespace tutti {

/// Returns the error that `call` throws. The test fails if it throws none.
inline Error error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "no error was thrown";
  return Error(ErrorKind::internal, "none");
}

/// Returns the error that `call` throws while this process may open nothing. Look at it only once
/// it has been returned: a sanitizer opens a pipe to do so.
inline Error error_without_descriptors(const std::function<void()>& call) {
  rlimit before{};
  EXPECT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit none{0, before.rlim_max};
  EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  Error error = error_of(call);
  EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  return error;
}

/// Returns the text of the error that `call` throws. The test fails if the error is of another
/// kind.
inline std::string message_of(ErrorKind kind, const std::function<void()>& call) {
  const Error error = error_of(call);
  EXPECT_EQ(error.kind(), kind) << error.what();
  return error.what();
}

/// Returns the text of the `usage` error that `call` throws.
inline std::string usage_error(const std::function<void()>& call) {
  return message_of(ErrorKind::usage, call);
}

/// Returns `text` with `by` in place of the first `what`. The test fails if there is none.
inline std::string replaced(const std::string& text, const std::string& what,
                            const std::string& by) {
  const std::size_t at = text.find(what);
  if (at == std::string::npos) {
    ADD_FAILURE() << "there is no " << what;
    return text;
  }
  return std::string(text).replace(at, what.size(), by);
}

}  // namespace tutti
