// The way into the library from C, and out of it.
#pragma once

#include <tutti/tutti.h>

#include <new>
#include <tutti/error.hpp>

namespace tutti::c {

/// Keeps `message` for tuttiGetLastError in this thread; cut after 2047 bytes.
void remember(const char* message) noexcept;
/// What was kept last in this thread, or "".
const char* remembered() noexcept;

/// Runs `body`; what it throws becomes a result and a remembered message.
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
