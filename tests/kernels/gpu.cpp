#include "gpu.h"

#include <dlfcn.h>

#include <cstdlib>
#include <cstring>
#include <new>
#include <stdexcept>

#include "runtime/engine/device/kernels.h"

namespace tutti::device {
namespace {

template <class F>
void find(void* library, F*& function, const char* name) {
  function = reinterpret_cast<F*>(dlsym(library, name));
}
void check(int result, const char* call) {
  if (result != 0)
    throw std::runtime_error(std::string(call) + ": error " + std::to_string(result));
}

}  // namespace

struct Gpu::Driver {
  int (*init)(unsigned);
  int (*retain)(void** context, int device);
  int (*set_current)(void* context);
  int (*host_alloc)(void** memory, std::size_t bytes, unsigned flags);
  int (*free_host)(void* memory);
  int (*load)(void** module, const void* image);
  int (*function)(void** function, void* module, const char* name);
  int (*launch)(void* function, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                unsigned, void* stream, void** arguments, void** extra);
  int (*create)(void** stream, unsigned flags);
  int (*destroy)(void* stream);
  int (*synchronize)(void* stream);
  void* context = nullptr;
  void* module = nullptr;

  explicit Driver(void* library) {
    find(library, init, "cuInit");
    find(library, retain, "cuDevicePrimaryCtxRetain");
    find(library, set_current, "cuCtxSetCurrent");
    find(library, host_alloc, "cuMemHostAlloc");
    find(library, free_host, "cuMemFreeHost");
    find(library, load, "cuModuleLoadData");
    find(library, function, "cuModuleGetFunction");
    find(library, launch, "cuLaunchKernel");
    find(library, create, "cuStreamCreate");
    find(library, destroy, "cuStreamDestroy_v2");
    if (destroy == nullptr) find(library, destroy, "cuStreamDestroy");
    find(library, synchronize, "cuStreamSynchronize");
  }
};

Gpu::Gpu(std::unique_ptr<Driver> driver) : driver_(std::move(driver)) {}

Gpu* Gpu::get(std::string& missing) {
  static std::string why;
  static const std::unique_ptr<Gpu> gpu = []() -> std::unique_ptr<Gpu> {
    const char* const path = std::getenv("TUTTI_TEST_CUDA");
    void* const library = dlopen(path != nullptr ? path : "libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
    if (library == nullptr) {
      why = dlerror();
      return nullptr;
    }
    auto driver = std::make_unique<Driver>(library);
    check(driver->init(0), "cuInit");
    check(driver->retain(&driver->context, 0), "cuDevicePrimaryCtxRetain");
    check(driver->set_current(driver->context), "cuCtxSetCurrent");
    const auto image = kernels();
    if (image.empty()) {
      why = "the library was built without nvcc";
      return nullptr;
    }
    check(driver->load(&driver->module, image.data()), "cuModuleLoadData");
    return std::unique_ptr<Gpu>(new Gpu(std::move(driver)));
  }();
  missing = why;
  return gpu.get();
}

std::shared_ptr<std::byte> Gpu::allocate(std::size_t bytes) {
  constexpr std::size_t kPage = 4096;
  const std::size_t whole = (bytes + kPage - 1) / kPage * kPage + kPage;
  void* memory = nullptr;
  check(driver_->set_current(driver_->context), "cuCtxSetCurrent");
  check(driver_->host_alloc(&memory, whole, 0), "cuMemHostAlloc");
  std::memset(memory, 0, whole);
  auto* const begin = static_cast<std::byte*>(memory);
  const std::size_t skipped = (kPage - reinterpret_cast<std::uintptr_t>(begin) % kPage) % kPage;
  return {begin + skipped, [this, memory](std::byte*) { driver_->free_host(memory); }};
}

bool Gpu::has_kernel(const std::string& name) {
  void* function = nullptr;
  return driver_->function(&function, driver_->module, name.c_str()) == 0;
}

Gpu::Stream::Stream(Gpu& gpu) : gpu_(gpu) {
  check(gpu_.driver_->set_current(gpu_.driver_->context), "cuCtxSetCurrent");
  check(gpu_.driver_->create(&stream_, 1), "cuStreamCreate");
}
Gpu::Stream::~Stream() { gpu_.driver_->destroy(stream_); }

void Gpu::Stream::run(const std::string& kernel, const CallRecord& call, std::uint32_t threads) {
  void* function = nullptr;
  Driver& driver = *gpu_.driver_;
  check(driver.set_current(driver.context), "cuCtxSetCurrent");
  check(driver.function(&function, driver.module, kernel.c_str()), "cuModuleGetFunction");
  CallRecord copy = call;
  void* arguments[] = {&copy};
  check(driver.launch(function, call.blocks, 1, 1, threads, 1, 1, 0, stream_, arguments, nullptr),
        "cuLaunchKernel");
  check(driver.synchronize(stream_), "cuStreamSynchronize");
}

}  // namespace tutti::device
