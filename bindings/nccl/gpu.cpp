#include "bindings/nccl/gpu.h"

#include <dlfcn.h>

#include <map>
#include <set>
#include <string>

#include "bindings/nccl/errors.h"
#include "bindings/nccl/process.h"

namespace tutti::nccl {
namespace {

using Address = unsigned long long;  // CUdeviceptr
using Context = struct CUctx_st*;

constexpr int kMemoryType = 2;         // CU_POINTER_ATTRIBUTE_MEMORY_TYPE
constexpr unsigned kDeviceMemory = 2;  // CU_MEMORYTYPE_DEVICE
constexpr int kIsManaged = 8;          // CU_POINTER_ATTRIBUTE_IS_MANAGED

Address address_of(const void* memory) { return reinterpret_cast<Address>(memory); }

void check(int result, const char* function) {
  if (result != 0)
    throw Failure(ncclUnhandledCudaError,
                  std::string(function) + " of the CUDA driver returned " + std::to_string(result));
}

// Keeps what allocate() holds: a primary context, without which its memory would be lost, for each
// device as long as the process lives, and the devices of the memory.
struct Held {
  std::set<int> devices;
  std::map<Address, int> device_of;
};

template <typename Function>
bool look_up(void* library, const char* name, Function*& function) {
  function = reinterpret_cast<Function*>(dlsym(library, name));
  return function != nullptr;
}

}  // namespace

struct Gpu::Functions {
  int (*init)(unsigned);
  int (*device_count)(int*);
  int (*retain)(Context*, int);
  int (*release)(int);
  int (*push)(Context);
  int (*pop)(Context*);
  int (*current)(Context*);
  int (*device)(int*);
  int (*attribute)(void*, int, Address);
  int (*allocate)(Address*, std::size_t);
  int (*free)(Address);
  int (*copy)(Address, Address, std::size_t, cudaStream_t);
  int (*synchronize)(cudaStream_t);
  int (*is_capturing)(cudaStream_t, int*);

  bool load() {
    void* const library = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
    if (library == nullptr) return false;
    // The library stays loaded: it is never closed.
    int devices = 0;
    return look_up(library, "cuInit", init) && look_up(library, "cuDeviceGetCount", device_count) &&
           look_up(library, "cuDevicePrimaryCtxRetain", retain) &&
           look_up(library, "cuDevicePrimaryCtxRelease_v2", release) &&
           look_up(library, "cuCtxPushCurrent_v2", push) &&
           look_up(library, "cuCtxPopCurrent_v2", pop) &&
           look_up(library, "cuCtxGetCurrent", current) &&
           look_up(library, "cuCtxGetDevice", device) &&
           look_up(library, "cuPointerGetAttribute", attribute) &&
           look_up(library, "cuMemAlloc_v2", allocate) && look_up(library, "cuMemFree_v2", free) &&
           look_up(library, "cuMemcpyAsync", copy) &&
           look_up(library, "cuStreamSynchronize", synchronize) &&
           look_up(library, "cuStreamIsCapturing", is_capturing) && init(0) == 0 &&
           device_count(&devices) == 0 && devices > 0;
  }
};

// Makes the primary context of a device the thread's current one.
class Gpu::Entered {
 public:
  Entered(const Functions& functions, int device) : functions_(functions), device_(device) {
    Context context = nullptr;
    check(functions_.retain(&context, device_), "cuDevicePrimaryCtxRetain");
    if (const int result = functions_.push(context); result != 0) {
      functions_.release(device_);
      check(result, "cuCtxPushCurrent");
    }
  }
  ~Entered() {
    Context context = nullptr;
    functions_.pop(&context);
    functions_.release(device_);
  }
  Entered(const Entered&) = delete;
  Entered& operator=(const Entered&) = delete;

 private:
  const Functions& functions_;
  const int device_;
};

WithContext::WithContext(const Gpu* gpu, int device) {
  Context context = nullptr;
  if (gpu == nullptr || (gpu->functions_.current(&context) == 0 && context != nullptr)) return;
  entered_ = std::make_unique<Gpu::Entered>(gpu->functions_, device);
}

WithContext::~WithContext() = default;

const Gpu* Gpu::find() {
  void* const library = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
  if (library == nullptr) return nullptr;
  dlclose(library);
  static const struct Found {
    Functions functions{};
    const bool there = functions.load();
  } found;
  static const Gpu gpu(found.functions);
  return found.there ? &gpu : nullptr;
}

int Gpu::count() const {
  int devices = 0;
  check(functions_.device_count(&devices), "cuDeviceGetCount");
  return devices;
}

int Gpu::current_device() const {
  Context context = nullptr;
  int device = 0;
  if (functions_.current(&context) == 0 && context != nullptr && functions_.device(&device) == 0)
    return device;
  using GetDevice = int(int*);
  const auto of_runtime = reinterpret_cast<GetDevice*>(dlsym(RTLD_DEFAULT, "cudaGetDevice"));
  return of_runtime != nullptr && of_runtime(&device) == 0 ? device : 0;
}

bool Gpu::owns(const void* address) const {
  unsigned type = 0, managed = 0;
  if (address == nullptr || functions_.attribute(&type, kMemoryType, address_of(address)) != 0)
    return false;
  if (type == kDeviceMemory) return true;
  return functions_.attribute(&managed, kIsManaged, address_of(address)) == 0 && managed != 0;
}

bool Gpu::knows(const void* address) const {
  unsigned type = 0;
  return address != nullptr && functions_.attribute(&type, kMemoryType, address_of(address)) == 0;
}

void* Gpu::allocate(std::size_t bytes) const {
  const int device = current_device();
  const Entered entered(functions_, device);
  auto& held = of_process<Held>();
  const std::lock_guard lock(held.mutex);
  if (!held.value.devices.contains(device)) {
    Context context = nullptr;
    check(functions_.retain(&context, device), "cuDevicePrimaryCtxRetain");
    held.value.devices.insert(device);
  }
  Address memory = 0;
  check(functions_.allocate(&memory, bytes), "cuMemAlloc");
  held.value.device_of.insert_or_assign(memory, device);
  return reinterpret_cast<void*>(memory);
}

void Gpu::free(void* memory) const {
  auto& held = of_process<Held>();
  const std::lock_guard lock(held.mutex);
  const auto its = held.value.device_of.find(address_of(memory));
  require(its != held.value.device_of.end(), "the memory is none of ncclMemAlloc");
  const Entered entered(functions_, its->second);
  check(functions_.free(its->first), "cuMemFree");
  held.value.device_of.erase(its);
}

void Gpu::copy(void* to, const void* from, std::size_t bytes, int device,
               cudaStream_t stream) const {
  const Entered entered(functions_, device);
  check(functions_.copy(address_of(to), address_of(from), bytes, stream), "cuMemcpyAsync");
}

void Gpu::read(void* to, const void* from, std::size_t bytes, int device,
               cudaStream_t stream) const {
  const Entered entered(functions_, device);
  int capturing = 0;
  check(functions_.is_capturing(stream, &capturing), "cuStreamIsCapturing");
  if (capturing != 0)
    throw Failure(
        ncclInvalidUsage,
        "the scalar of a reduction is on the GPU, and the stream is being captured into a "
        "CUDA graph: give the scalar in host memory (ncclScalarHostImmediate)");
  check(functions_.copy(address_of(to), address_of(from), bytes, stream), "cuMemcpyAsync");
  check(functions_.synchronize(stream), "cuStreamSynchronize");
}

}  // namespace tutti::nccl
