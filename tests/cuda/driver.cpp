// Devices, contexts, and how functions are found.
#include "tests/cuda/driver.h"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <string>

#include "tests/cuda/graph.h"

namespace tutti::stand_in {

Driver::Driver() {
  for (int ordinal = 0; ordinal < settings().devices; ++ordinal)
    contexts.push_back(std::make_unique<Context>(ordinal));
}

Driver& driver() { return only<Driver>(); }

// The stack of a thread that exits is never destroyed: the program's globals may still call the
// driver after that.
std::vector<Context*>& context_stack() {
  thread_local auto& stack = *new std::vector<Context*>;
  return stack;
}

Context* current(CUresult* refusal) {
  *refusal = in_host_function() ? CUDA_ERROR_NOT_PERMITTED : CUDA_ERROR_INVALID_CONTEXT;
  if (in_host_function() || context_stack().empty()) return nullptr;
  *refusal = CUDA_SUCCESS;
  return context_stack().back();
}

// A stream's handle is known in its own context, whichever is current.
std::shared_ptr<Stream> find_stream(CUstream handle, CUresult* refusal) {
  Context* const context = current(refusal);
  if (context == nullptr) return nullptr;
  if (auto found = context->stream(handle)) return found;
  for (const auto& each : driver().contexts)
    if (auto found = each->stream(handle)) return found;
  *refusal = CUDA_ERROR_INVALID_HANDLE;
  return nullptr;
}

CUresult submit(CUstream handle, CUgraphNodeType type, std::function<void()> work) {
  CUresult refusal = CUDA_SUCCESS;
  const std::shared_ptr<Stream> stream = find_stream(handle, &refusal);
  if (stream == nullptr || record(stream, type, work, &refusal)) return refusal;
  stream->context().submit(*stream, std::move(work));
  return CUDA_SUCCESS;
}

namespace {

bool is_device(CUdevice device) {
  return device >= 0 && static_cast<std::size_t>(device) < driver().contexts.size();
}

int attribute_of(CUdevice device, CUdevice_attribute attribute) {
  switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X:
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y: return 1024;
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z: return 64;
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X: return 0x7fffffff;
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y:
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z: return 65535;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK: return 49152;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN: return 232448;
    case CU_DEVICE_ATTRIBUTE_WARP_SIZE: return static_cast<int>(kWarp);
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: return settings().blocks;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: return 9;
    case CU_DEVICE_ATTRIBUTE_PCI_BUS_ID: return device + 1;
    case CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING:
    case CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY:
    case CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY:
    case CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS:
    case CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM:
    case CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS: return 1;
    default: return 0;
  }
}

}  // namespace
}  // namespace tutti::stand_in

using namespace tutti::stand_in;

CUresult cuInit(unsigned) {
  const std::lock_guard lock(driver().mutex);
  driver().initialized = true;
  return settings().devices == 0 ? CUDA_ERROR_NO_DEVICE : CUDA_SUCCESS;
}

CUresult cuDriverGetVersion(int* version) {
  *version = 13000;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetCount(int* count) {
  *count = settings().devices;
  return driver().initialized ? CUDA_SUCCESS : CUDA_ERROR_NOT_INITIALIZED;
}

CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  if (!driver().initialized) return CUDA_ERROR_NOT_INITIALIZED;
  *device = ordinal;
  return is_device(ordinal) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice device) {
  if (!is_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  *value = attribute_of(device, attribute);
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetName(char* name, int bytes, CUdevice device) {
  if (!is_device(device) || bytes <= 0) return CUDA_ERROR_INVALID_VALUE;
  const std::string text = "stand-in " + std::to_string(device);
  std::strncpy(name, text.c_str(), static_cast<std::size_t>(bytes));
  name[bytes - 1] = 0;
  return CUDA_SUCCESS;
}

// It is the same in every process.
CUresult cuDeviceGetUuid(CUuuid* uuid, CUdevice device) {
  if (!is_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  std::memcpy(uuid->bytes, "cuda stand-in ", 14);
  uuid->bytes[14] = 0;
  uuid->bytes[15] = static_cast<char>(device);
  return CUDA_SUCCESS;
}

CUresult cuDeviceTotalMem(std::size_t* bytes, CUdevice device) {
  *bytes = std::size_t{16} << 30;
  return is_device(device) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuDeviceCanAccessPeer(int* can, CUdevice device, CUdevice other) {
  *can = device != other && settings().peers != "none" ? 1 : 0;
  return is_device(device) && is_device(other) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuCtxEnablePeerAccess(CUcontext, unsigned) { return CUDA_SUCCESS; }

CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  if (!driver().initialized) return CUDA_ERROR_NOT_INITIALIZED;
  if (!is_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  const std::lock_guard lock(driver().mutex);
  Context& found = *driver().contexts[static_cast<std::size_t>(device)];
  if (found.retained++ == 0) found.generation = ++driver().context_numbers;
  *context = handle_of(&found);
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRelease(CUdevice device) {
  if (!is_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  const std::lock_guard lock(driver().mutex);
  Context& found = *driver().contexts[static_cast<std::size_t>(device)];
  if (found.retained == 0) return CUDA_ERROR_INVALID_CONTEXT;
  --found.retained;
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned* flags, int* active) {
  if (!is_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  const std::lock_guard lock(driver().mutex);
  *flags = 0;
  *active = driver().contexts[static_cast<std::size_t>(device)]->retained > 0 ? 1 : 0;
  return CUDA_SUCCESS;
}

CUresult cuCtxGetCurrent(CUcontext* context) {
  *context = context_stack().empty() ? nullptr : handle_of(context_stack().back());
  return driver().initialized ? CUDA_SUCCESS : CUDA_ERROR_NOT_INITIALIZED;
}

CUresult cuCtxSetCurrent(CUcontext context) {
  if (!context_stack().empty()) context_stack().pop_back();
  if (context != nullptr) context_stack().push_back(context_of(context));
  return CUDA_SUCCESS;
}

CUresult cuCtxPushCurrent(CUcontext context) {
  if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  context_stack().push_back(context_of(context));
  return CUDA_SUCCESS;
}

CUresult cuCtxPopCurrent(CUcontext* context) {
  if (context_stack().empty()) return CUDA_ERROR_INVALID_CONTEXT;
  if (context != nullptr) *context = handle_of(context_stack().back());
  context_stack().pop_back();
  return CUDA_SUCCESS;
}

CUresult cuCtxGetId(CUcontext handle, unsigned long long* number) {
  const std::lock_guard lock(driver().mutex);
  for (const auto& context : driver().contexts)
    if (handle_of(context.get()) == handle) {
      *number = context->generation;
      return CUDA_SUCCESS;
    }
  return CUDA_ERROR_INVALID_CONTEXT;
}

CUresult cuCtxGetDevice(CUdevice* device) {
  CUresult refusal = CUDA_SUCCESS;
  Context* const context = current(&refusal);
  if (context != nullptr) *device = context->device().ordinal();
  return refusal;
}

CUresult cuCtxSynchronize() {
  CUresult refusal = CUDA_SUCCESS;
  Context* const context = current(&refusal);
  if (context != nullptr) refusal = check_safe();
  if (refusal == CUDA_SUCCESS) context->synchronize();
  return refusal;
}

CUresult cuGetErrorName(CUresult error, const char** text) {
  switch (error) {
    case CUDA_SUCCESS: *text = "CUDA_SUCCESS"; break;
    case CUDA_ERROR_INVALID_VALUE: *text = "CUDA_ERROR_INVALID_VALUE"; break;
    case CUDA_ERROR_OUT_OF_MEMORY: *text = "CUDA_ERROR_OUT_OF_MEMORY"; break;
    case CUDA_ERROR_NOT_INITIALIZED: *text = "CUDA_ERROR_NOT_INITIALIZED"; break;
    case CUDA_ERROR_NO_DEVICE: *text = "CUDA_ERROR_NO_DEVICE"; break;
    case CUDA_ERROR_INVALID_DEVICE: *text = "CUDA_ERROR_INVALID_DEVICE"; break;
    case CUDA_ERROR_INVALID_IMAGE: *text = "CUDA_ERROR_INVALID_IMAGE"; break;
    case CUDA_ERROR_INVALID_CONTEXT: *text = "CUDA_ERROR_INVALID_CONTEXT"; break;
    case CUDA_ERROR_INVALID_HANDLE: *text = "CUDA_ERROR_INVALID_HANDLE"; break;
    case CUDA_ERROR_NOT_FOUND: *text = "CUDA_ERROR_NOT_FOUND"; break;
    case CUDA_ERROR_NOT_READY: *text = "CUDA_ERROR_NOT_READY"; break;
    case CUDA_ERROR_NOT_PERMITTED: *text = "CUDA_ERROR_NOT_PERMITTED"; break;
    case CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED:
      *text = "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED";
      break;
    case CUDA_ERROR_STREAM_CAPTURE_INVALIDATED:
      *text = "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED";
      break;
    case CUDA_ERROR_NOT_SUPPORTED: *text = "CUDA_ERROR_NOT_SUPPORTED"; break;
    default: *text = "an error of the stand-in"; break;
  }
  return CUDA_SUCCESS;
}

CUresult cuGetErrorString(CUresult error, const char** text) { return cuGetErrorName(error, text); }

// This library has the newest version of each function, and besides those of CUDA 12.0 of two that
// have data of edges since CUDA 12.3.
CUresult cuGetProcAddress(const char* name, void** function, int version, cuuint64_t,
                          CUdriverProcAddressQueryResult* status) {
  static void* const self = [] {
    Dl_info info{};
    dladdr(reinterpret_cast<void*>(&cuInit), &info);
    return dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD);
  }();
  *function = nullptr;
  std::vector<const char*> suffixes = {"_v2", ""};
  if (name == std::string("cuStreamGetCaptureInfo") && version >= 12030) suffixes = {"_v3"};
  if (name == std::string("cuStreamUpdateCaptureDependencies") && version < 12030) suffixes = {""};
  for (const char* const suffix : suffixes)
    if (*function == nullptr) *function = dlsym(self, (std::string(name) + suffix).c_str());
  if (status != nullptr)
    *status =
        *function != nullptr ? CU_GET_PROC_ADDRESS_SUCCESS : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  return *function != nullptr ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}
