#include "devices/gpu_driver.h"

#include <dlfcn.h>

#include <fmt/format.h>

#include <tutti/error.hpp>

namespace tutti::cuda {
namespace {

using FindFunction = Result (*)(const char* name, void** function, int version, std::uint64_t flags,
                                int* status);

constexpr int kInterfaceVersion = 12000;

/// Finds the driver's functions, and notes in `driver` the name of one that it lacks.
class Finder {
 public:
  /// `library` stays loaded: this program keeps its handle, which is never closed.
  Finder(void* library, Driver& driver)
      : library_(library),
        by_name_(reinterpret_cast<FindFunction>(dlsym(library, "cuGetProcAddress_v2"))),
        driver_(driver) {}

  template <typename Signature>
  void find(Signature*& function, const char* name) {
    void* found = nullptr;
    if (by_name_ == nullptr || by_name_(name, &found, kInterfaceVersion, 0, nullptr) != kSuccess ||
        found == nullptr) {
      driver_.missing = name;
      found = dlsym(library_, name);
    }
    function = reinterpret_cast<Signature*>(found);
  }

 private:
  void* const library_;
  const FindFunction by_name_;
  Driver& driver_;
};

void find_functions(Finder& finder, Driver& driver) {
  finder.find(driver.pointer_attribute, "cuPointerGetAttribute");
  finder.find(driver.stream_context, "cuStreamGetCtx");
  finder.find(driver.stream_capturing, "cuStreamIsCapturing");
  finder.find(driver.capture_info, "cuStreamGetCaptureInfo");
  finder.find(driver.update_dependencies, "cuStreamUpdateCaptureDependencies");
  finder.find(driver.exchange_capture_mode, "cuThreadExchangeStreamCaptureMode");
  finder.find(driver.create_user_object, "cuUserObjectCreate");
  finder.find(driver.release_user_object, "cuUserObjectRelease");
  finder.find(driver.retain_user_object, "cuGraphRetainUserObject");
  finder.find(driver.retain_context, "cuDevicePrimaryCtxRetain");
  finder.find(driver.release_context, "cuDevicePrimaryCtxRelease");
  finder.find(driver.current_context, "cuCtxGetCurrent");
  finder.find(driver.push_context, "cuCtxPushCurrent");
  finder.find(driver.pop_context, "cuCtxPopCurrent");
  finder.find(driver.allocate_host, "cuMemHostAlloc");
  finder.find(driver.free_host, "cuMemFreeHost");
  finder.find(driver.copy, "cuMemcpyAsync");
  finder.find(driver.wait_value, "cuStreamWaitValue32");
  finder.find(driver.launch_host, "cuLaunchHostFunc");
  finder.find(driver.synchronize, "cuStreamSynchronize");
  finder.find(driver.error_text, "cuGetErrorString");
}

void find_functions_of_kernels(Finder& finder, KernelDriver& driver) {
  finder.find(driver.initialize, "cuInit");
  finder.find(driver.count_devices, "cuDeviceGetCount");
  finder.find(driver.device, "cuDeviceGet");
  finder.find(driver.device_uuid, "cuDeviceGetUuid");
  finder.find(driver.device_attribute, "cuDeviceGetAttribute");
  finder.find(driver.context_number, "cuCtxGetId");
  finder.find(driver.load_module, "cuModuleLoadData");
  finder.find(driver.unload_module, "cuModuleUnload");
  finder.find(driver.find_kernel, "cuModuleGetFunction");
  finder.find(driver.allocate, "cuMemAlloc");
  finder.find(driver.free, "cuMemFree");
  finder.find(driver.register_host, "cuMemHostRegister");
  finder.find(driver.unregister_host, "cuMemHostUnregister");
  finder.find(driver.address_of_host, "cuMemHostGetDevicePointer");
  finder.find(driver.export_memory, "cuIpcGetMemHandle");
  finder.find(driver.map_memory, "cuIpcOpenMemHandle");
  finder.find(driver.unmap_memory, "cuIpcCloseMemHandle");
  finder.find(driver.allocation_of, "cuMemGetAddressRange");
  finder.find(driver.can_access_peer, "cuDeviceCanAccessPeer");
  finder.find(driver.enable_peer_access, "cuCtxEnablePeerAccess");
  finder.find(driver.stream_priorities, "cuCtxGetStreamPriorityRange");
  finder.find(driver.create_stream, "cuStreamCreateWithPriority");
  finder.find(driver.destroy_stream, "cuStreamDestroy");
  finder.find(driver.wait_value_64, "cuStreamWaitValue64");
  finder.find(driver.write_value_64, "cuStreamWriteValue64");
  finder.find(driver.launch, "cuLaunchKernel");
}

}  // namespace

std::unique_ptr<const Driver> Driver::loaded() {
  void* const library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  if (library == nullptr) return nullptr;
  auto driver = std::make_unique<Driver>();
  Finder finder(library, *driver);
  find_functions(finder, *driver);
  if (driver->pointer_attribute == nullptr) return nullptr;  // It is no CUDA driver.
  return driver;
}

std::unique_ptr<const KernelDriver> KernelDriver::load() {
  void* const library = dlopen("libcuda.so.1", RTLD_NOW);
  if (library == nullptr)
    throw Error(ErrorKind::unavailable,
                fmt::format("there is no CUDA driver: {}; install it, or set TUTTI_DEVICE=none",
                            dlerror()));
  auto driver = std::make_unique<KernelDriver>();
  Finder finder(library, *driver);
  find_functions(finder, *driver);
  find_functions_of_kernels(finder, *driver);
  check_complete(*driver);
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
