#include "devices/gpu.h"

#include <link.h>

#include <cstdint>

namespace tutti {
namespace {

// Returns the number of libraries that this process has ever loaded.
unsigned long long count_libraries() {
  unsigned long long count = 0;
  dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* result) {
        *static_cast<unsigned long long*>(result) = info->dlpi_adds;
        return 1;  // All entries have the same number.
      },
      &count);
  return count;
}

bool is_default_stream(cuda::Stream stream) {
  return reinterpret_cast<std::uintptr_t>(stream) <= cuda::kStreamOfThread;
}

}  // namespace

const cuda::Driver* Gpu::driver() {
  if (driver_ != nullptr) return driver_.get();
  const unsigned long long libraries = count_libraries();
  if (libraries == libraries_) return nullptr;
  driver_ = cuda::Driver::loaded();
  libraries_ = libraries;
  return driver_.get();
}

// The driver does not know addresses of ordinary host memory, which is an error of the call.
bool Gpu::in_memory(const cuda::Driver& driver, const void* address) {
  unsigned type = 0;
  return driver.pointer_attribute(&type, cuda::kPointerMemoryType, cuda::address_of(address)) ==
             cuda::kSuccess &&
         type == cuda::kMemoryOfDevice;
}

StreamContext::StreamContext(const cuda::Driver& driver, cuda::Stream stream, const void* address)
    : driver_(driver) {
  if (!is_default_stream(stream)) {
    check(driver, driver.stream_context(stream, &context_), "CallOptions::stream");
  } else if (address == nullptr) {
    check(driver, driver.current_context(&context_), "the current context");
  } else if (driver.pointer_attribute(&context_, cuda::kPointerContext,
                                      cuda::address_of(address)) != cuda::kSuccess ||
             context_ == nullptr) {
    // Memory of a pool belongs to a device, and to no context.
    cuda::Device device = -1;
    check(driver,
          driver.pointer_attribute(&device, cuda::kPointerDevice, cuda::address_of(address)),
          "the device of a buffer");
    check(driver, driver.retain_context(&context_, device), "the context of a buffer's device");
    retained_ = device;
  }
  const cuda::Result pushed = driver.push_context(context_);
  if (pushed != cuda::kSuccess && retained_ >= 0) driver.release_context(retained_);
  check(driver, pushed, "the context of a stream");
}

StreamContext::~StreamContext() {
  cuda::Context popped = nullptr;
  driver_.pop_context(&popped);
  if (retained_ >= 0) driver_.release_context(retained_);
}

}  // namespace tutti
