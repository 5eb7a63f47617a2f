#include "devices/gpu_driver.h"

#include <dlfcn.h>

#include <type_traits>

#include <fmt/format.h>

#include <tutti/error.hpp>

namespace tutti::cuda {
namespace {

using FindFunction = Result (*)(const char* name, void** function, int version, std::uint64_t flags,
                                int* status);

constexpr int kInterfaceVersion = 12000;

}  // namespace

std::unique_ptr<const Driver> Driver::loaded() {
  void* const library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  if (library == nullptr) return nullptr;
  // The program keeps the driver loaded, and so does this handle, which is never closed.
  const auto by_name = reinterpret_cast<FindFunction>(dlsym(library, "cuGetProcAddress_v2"));
  auto driver = std::make_unique<Driver>();
  const auto find = [&](auto*& function, const char* name) {
    void* found = nullptr;
    if (by_name == nullptr || by_name(name, &found, kInterfaceVersion, 0, nullptr) != kSuccess ||
        found == nullptr) {
      driver->missing = name;
      found = dlsym(library, name);
    }
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(found);
  };
  find(driver->pointer_attribute, "cuPointerGetAttribute");
  if (driver->pointer_attribute == nullptr) return nullptr;  // It is no CUDA driver.
  find(driver->stream_context, "cuStreamGetCtx");
  find(driver->stream_capturing, "cuStreamIsCapturing");
  find(driver->retain_context, "cuDevicePrimaryCtxRetain");
  find(driver->release_context, "cuDevicePrimaryCtxRelease");
  find(driver->current_context, "cuCtxGetCurrent");
  find(driver->push_context, "cuCtxPushCurrent");
  find(driver->pop_context, "cuCtxPopCurrent");
  find(driver->allocate_host, "cuMemHostAlloc");
  find(driver->free_host, "cuMemFreeHost");
  find(driver->copy, "cuMemcpyAsync");
  find(driver->wait_value, "cuStreamWaitValue32");
  find(driver->launch_host, "cuLaunchHostFunc");
  find(driver->synchronize, "cuStreamSynchronize");
  find(driver->error_text, "cuGetErrorString");
  return driver;
}

void check_complete(const Driver& driver) {
  if (driver.missing != nullptr)
    throw Error(
        ErrorKind::unavailable,
        fmt::format("the CUDA driver in this process lacks {} as of CUDA 12: install a newer "
                    "driver, or give buffers in host memory",
                    driver.missing));
}

void check(const Driver& driver, Result result, const char* what) {
  if (result == kSuccess) return;
  const char* text = nullptr;
  if (driver.error_text(result, &text) != kSuccess || text == nullptr) text = "unknown error";
  throw Error(ErrorKind::unavailable,
              fmt::format("{}: the CUDA driver says: {} (error {})", what, text, result));
}

}  // namespace tutti::cuda
