// Turns exceptions into results at the boundary between C and the library.
#pragma once

#include <tutti/tutti.h>

#include <new>
#include <string>
#include <tutti/error.hpp>

namespace tutti::c {

/// Keeps `message` for tuttiGetLastError in this thread. It is cut after 2047 bytes.
void remember(const char* message) noexcept;
/// Returns the last message that was kept in this thread, or "".
const char* remembered() noexcept;

/// Returns what a function of the program returned, for an error: "3 (mismatch)".
std::string text_of(tuttiResult_t result);

/// Runs `body`. Turns an exception into a result, and keeps its message.
template <typename Body>
tuttiResult_t guarded(Body&& body) noexcept {
  try {
    body();
    return tuttiSuccess;
  } catch (const Error& error) {
    remember(error.what());
    return static_cast<tuttiResult_t>(error.kind());
  } catch (const std::bad_alloc&) {
    remember("out of memory");
    return tuttiErrorUnavailable;
  } catch (const std::exception& error) {
    remember(error.what());
    return tuttiErrorInternal;
  } catch (...) {
    remember("something was thrown that is no std::exception");
    return tuttiErrorInternal;
  }
}

}  // namespace tutti::c
