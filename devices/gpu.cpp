#include "devices/gpu.h"

#include <link.h>

#include <cstdint>
#include <string_view>

namespace tutti {
namespace {

struct Libraries {
  unsigned long long ever_loaded = 0;
  bool maybe_driver = false;
};

Libraries list_libraries() {
  Libraries found;
  dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* result) {
        auto& libraries = *static_cast<Libraries*>(result);
        libraries.ever_loaded = info->dlpi_adds;
        if (std::string_view(info->dlpi_name).find("libcuda") != std::string_view::npos)
          libraries.maybe_driver = true;
        return 0;
      },
      &found);
  return found;
}

}  // namespace

void Gpu::look() {
  if (driver_ != nullptr) return;
  const Libraries libraries = list_libraries();
  if (libraries.ever_loaded == libraries_) return;
  libraries_ = libraries.ever_loaded;
  if (libraries.maybe_driver) driver_ = cuda::Driver::loaded();
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
  if (!cuda::is_default_stream(stream)) {
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

StreamContext::StreamContext(const cuda::Driver& driver, cuda::Context context)
    : driver_(driver), context_(context) {
  cuda::check(driver, driver.push_context(context), "the context of a stream");
}

StreamContext::~StreamContext() {
  cuda::Context popped = nullptr;
  driver_.pop_context(&popped);
  if (retained_ >= 0) driver_.release_context(retained_);
}

}  // namespace tutti
