// Turns exceptions into NCCL's results at the boundary of the library.
#pragma once

#include <new>
#include <stdexcept>
#include <string>
#include <system_error>
#include <tutti/error.hpp>

#include "bindings/nccl/abi.h"

namespace tutti::nccl {

/// An error for which NCCL has a result of its own.
class Failure : public std::runtime_error {
 public:
  Failure(ncclResult_t result, const std::string& message)
      : std::runtime_error(message), result_(result) {}
  ncclResult_t result() const noexcept { return result_; }

 private:
  ncclResult_t result_;
};

/// Throws ncclInvalidArgument with the message unless `condition` holds.
void require(bool condition, const char* message);

/// Returns the result for an error of the library: usage and mismatch are ncclInvalidUsage,
/// unavailable ncclSystemError, peer_lost and timeout ncclRemoteError, corrupt and internal
/// ncclInternalError.
ncclResult_t result_of(ErrorKind kind) noexcept;

/// Keeps `message` for ncclGetLastError in this thread; it is cut after 2047 bytes. A setting of
/// tutti in whose place the program has set an NCCL_ variable gets that name behind its own.
void remember(const char* message) noexcept;
/// The message that was kept last in this thread; if there is none, in the process; or "".
const char* remembered() noexcept;

/// Runs `body`, which returns a result or nothing. Turns an exception into a result, and keeps its
/// message.
template <typename Body>
ncclResult_t guarded(Body&& body) noexcept {
  try {
    if constexpr (std::is_void_v<decltype(body())>) {
      body();
      return ncclSuccess;
    } else {
      return body();
    }
  } catch (const Failure& error) {
    remember(error.what());
    return error.result();
  } catch (const Error& error) {
    remember(error.what());
    return result_of(error.kind());
  } catch (const std::bad_alloc&) {
    remember("out of memory");
    return ncclSystemError;
  } catch (const std::system_error& error) {
    remember(error.what());
    return ncclSystemError;
  } catch (const std::exception& error) {
    remember(error.what());
    return ncclInternalError;
  } catch (...) {
    remember("something was thrown that is no std::exception");
    return ncclInternalError;
  }
}

}  // namespace tutti::nccl
