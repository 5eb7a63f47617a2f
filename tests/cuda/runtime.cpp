// Stands in for the CUDA runtime (libcudart.so.13) of programs that link it, such as PyTorch's
// build for GPUs, over the stand-in for the driver: devices, memory, streams, events, host
// functions, graphs, and those kernels that are translated (FAKE_CUDA_KERNELS). A launch of another
// kernel is an error that names it.
#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstdio>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#undef cudaGetDeviceProperties
#define EXPORT extern "C" __attribute__((visibility("default")))

namespace {

thread_local int current_device = 0;
thread_local cudaError_t last_error = cudaSuccess;

CUdeviceptr address_of(const void* memory) { return reinterpret_cast<CUdeviceptr>(memory); }

cudaError_t result(CUresult of_driver) {
  const auto error = static_cast<cudaError_t>(of_driver);  // They have the same numbers.
  if (error != cudaSuccess && error != cudaErrorNotReady) last_error = error;
  return error;
}

// Makes the context of the thread's device the current one, as each function of the runtime does.
void enter() {
  CUcontext context = nullptr;
  cuInit(0);
  cuDevicePrimaryCtxRetain(&context, current_device);
  cuCtxSetCurrent(context);
}

template <typename Function, typename... Each>
cudaError_t call(Function function, Each... arguments) {
  enter();
  return result(function(arguments...));
}

// Finds the names of kernels by the addresses of the functions that stand for them in the program.
std::map<const void*, std::string>& kernels() {
  static auto* const names = new std::map<const void*, std::string>;
  return *names;
}

// Holds what stands between <<< and >>>, until the launch that follows takes it.
struct Configuration {
  dim3 grid, block;
  std::size_t shared_bytes;
  void* stream;
};
thread_local Configuration configuration{};

// Returns a module. One is enough: each has all kernels that are translated, whatever its image.
CUmodule module_of_kernels() {
  static const CUmodule only = [] {
    CUmodule module = nullptr;
    cuModuleLoadData(&module, "//");
    return module;
  }();
  return only;
}

cudaError_t launch(const char* name, dim3 grid, dim3 block, void** arguments,
                   std::size_t shared_bytes, cudaStream_t stream) {
  enter();
  CUfunction function = nullptr;
  if (cuModuleGetFunction(&function, module_of_kernels(), name) != CUDA_SUCCESS) {
    std::fprintf(stderr, "the stand-in for the CUDA runtime has no kernel %s\n", name);
    return last_error = cudaErrorNotSupported;
  }
  return result(cuLaunchKernel(function, grid.x, grid.y, grid.z, block.x, block.y, block.z,
                               static_cast<unsigned>(shared_bytes), stream, arguments, nullptr));
}

}  // namespace

// --- Devices and errors ---
EXPORT cudaError_t cudaGetDeviceCount(int* count) { return call(cuDeviceGetCount, count); }
EXPORT cudaError_t cudaSetDevice(int device) {
  int count = 0;
  cudaGetDeviceCount(&count);
  if (device < 0 || device >= count) return last_error = cudaErrorInvalidDevice;
  current_device = device;
  enter();
  return cudaSuccess;
}
EXPORT cudaError_t cudaGetDevice(int* device) { return *device = current_device, cudaSuccess; }
EXPORT cudaError_t cudaDriverGetVersion(int* version) { return *version = 13000, cudaSuccess; }
EXPORT cudaError_t cudaRuntimeGetVersion(int* version) { return *version = 13000, cudaSuccess; }
EXPORT cudaError_t cudaGetLastError() {
  const cudaError_t error = last_error;
  last_error = cudaSuccess;
  return error;
}
EXPORT cudaError_t cudaPeekAtLastError() { return last_error; }
EXPORT const char* cudaGetErrorName(cudaError_t) { return "an error of the stand-in"; }
EXPORT const char* cudaGetErrorString(cudaError_t error) {
  thread_local std::string text;
  text = "error " + std::to_string(error) + " of the stand-in for the CUDA runtime";
  return text.c_str();
}
EXPORT cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  *properties = {};
  std::snprintf(properties->name, sizeof properties->name, "stand-in %d", device);
  properties->major = 9;
  properties->totalGlobalMem = std::size_t{8} << 30;
  properties->multiProcessorCount = 16;
  properties->warpSize = 32;
  properties->maxThreadsPerBlock = properties->maxThreadsDim[0] = properties->maxThreadsDim[1] =
      1024;
  properties->maxThreadsDim[2] = 64;
  properties->maxThreadsPerMultiProcessor = 2048;
  properties->sharedMemPerBlock = 49152;
  properties->regsPerBlock = 65536;
  properties->unifiedAddressing = 1;
  properties->pciBusID = device + 1;
  properties->uuid.bytes[0] = static_cast<char>(device + 1);
  properties->maxGridSize[0] = 1 << 30;
  properties->maxGridSize[1] = properties->maxGridSize[2] = 65535;
  properties->textureAlignment = 512;
  return cudaSuccess;
}
EXPORT cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  return call(cuDeviceGetAttribute, value, static_cast<CUdevice_attribute>(attribute), device);
}
EXPORT cudaError_t cudaDeviceGetPCIBusId(char* text, int bytes, int device) {
  std::snprintf(text, static_cast<std::size_t>(bytes), "0000:%02x:00.0", device + 1);
  return cudaSuccess;
}
EXPORT cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int other) {
  return call(cuDeviceCanAccessPeer, can, device, other);
}
EXPORT cudaError_t cudaDeviceEnablePeerAccess(int, unsigned) { return cudaSuccess; }
EXPORT cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0, *greatest = -5;
  return cudaSuccess;
}
EXPORT cudaError_t cudaDeviceSynchronize() { return call(cuCtxSynchronize); }
EXPORT cudaError_t cudaDeviceReset() { return cudaSuccess; }

// --- Memory ---
EXPORT cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  return call(cuMemGetInfo, free, total);
}
EXPORT cudaError_t cudaMalloc(void** memory, std::size_t bytes) {
  return call(cuMemAlloc, reinterpret_cast<CUdeviceptr*>(memory), bytes);
}
EXPORT cudaError_t cudaFree(void* memory) { return call(cuMemFree, address_of(memory)); }
EXPORT cudaError_t cudaHostAlloc(void** memory, std::size_t bytes, unsigned flags) {
  return call(cuMemHostAlloc, memory, bytes, flags);
}
EXPORT cudaError_t cudaFreeHost(void* memory) { return call(cuMemFreeHost, memory); }
EXPORT cudaError_t cudaHostRegister(void* memory, std::size_t bytes, unsigned flags) {
  return call(cuMemHostRegister, memory, bytes, flags);
}
EXPORT cudaError_t cudaHostUnregister(void* memory) { return call(cuMemHostUnregister, memory); }
EXPORT cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind,
                                   cudaStream_t stream) {
  return call(cuMemcpyAsync, address_of(to), address_of(from), bytes, stream);
}
EXPORT cudaError_t cudaMemcpyPeerAsync(void* to, int, const void* from, int, std::size_t bytes,
                                       cudaStream_t stream) {
  return call(cuMemcpyAsync, address_of(to), address_of(from), bytes, stream);
}
EXPORT cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind) {
  return call(cuMemcpy, address_of(to), address_of(from), bytes);
}
EXPORT cudaError_t cudaMemsetAsync(void* to, int value, std::size_t bytes, cudaStream_t stream) {
  return call(cuMemsetD8Async, address_of(to), static_cast<unsigned char>(value), bytes, stream);
}
EXPORT cudaError_t cudaMemset(void* to, int value, std::size_t bytes) {
  return call(cuMemsetD8, address_of(to), static_cast<unsigned char>(value), bytes);
}
EXPORT cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* found, const void* memory) {
  *found = {};
  unsigned type = 0;
  enter();
  const CUresult known =
      cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address_of(memory));
  if (known != CUDA_SUCCESS) return cudaSuccess;  // It is unregistered.
  found->type = type == CU_MEMORYTYPE_HOST ? cudaMemoryTypeHost : cudaMemoryTypeDevice;
  found->devicePointer = found->hostPointer = const_cast<void*>(memory);
  cuPointerGetAttribute(&found->device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, address_of(memory));
  return cudaSuccess;
}

// --- Streams and events ---
EXPORT cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags,
                                                int priority) {
  return call(cuStreamCreateWithPriority, stream, flags, priority);
}
EXPORT cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  return call(cuStreamCreate, stream, flags);
}
EXPORT cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  return call(cuStreamCreate, stream, 0u);
}
EXPORT cudaError_t cudaStreamDestroy(cudaStream_t stream) { return call(cuStreamDestroy, stream); }
EXPORT cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  return call(cuStreamSynchronize, stream);
}
EXPORT cudaError_t cudaStreamQuery(cudaStream_t stream) { return call(cuStreamQuery, stream); }
EXPORT cudaError_t cudaStreamGetPriority(cudaStream_t stream, int* priority) {
  return call(cuStreamGetPriority, stream, priority);
}
EXPORT cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags) {
  return call(cuStreamWaitEvent, stream, event, flags);
}
EXPORT cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  return call(cuEventCreate, event, flags);
}
EXPORT cudaError_t cudaEventCreate(cudaEvent_t* event) { return call(cuEventCreate, event, 0u); }
EXPORT cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return call(cuEventRecord, event, stream);
}
EXPORT cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream,
                                            unsigned flags) {
  return call(cuEventRecordWithFlags, event, stream, flags);
}
EXPORT cudaError_t cudaEventQuery(cudaEvent_t event) { return call(cuEventQuery, event); }
EXPORT cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  return call(cuEventSynchronize, event);
}
EXPORT cudaError_t cudaEventDestroy(cudaEvent_t event) { return call(cuEventDestroy, event); }
EXPORT cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end) {
  return call(cuEventElapsedTime, milliseconds, begin, end);
}
EXPORT cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* argument) {
  return call(cuLaunchHostFunc, stream, function, argument);
}
EXPORT cudaError_t cudaGetDriverEntryPointByVersion(const char* name, void** function,
                                                    unsigned version, unsigned long long flags,
                                                    cudaDriverEntryPointQueryResult* found) {
  cuGetProcAddress(name, function, static_cast<int>(version), flags, nullptr);
  if (found != nullptr)
    *found =
        *function != nullptr ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
  return cudaSuccess;
}

// --- Captures and graphs ---
EXPORT cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  return call(cuThreadExchangeStreamCaptureMode, reinterpret_cast<CUstreamCaptureMode*>(mode));
}
EXPORT cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  return call(cuStreamBeginCapture, stream, static_cast<CUstreamCaptureMode>(mode));
}
EXPORT cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  return call(cuStreamEndCapture, stream, graph);
}
EXPORT cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  return call(cuStreamIsCapturing, stream, reinterpret_cast<CUstreamCaptureStatus*>(status));
}
EXPORT cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, cudaStreamCaptureStatus* status,
                                            unsigned long long* id, cudaGraph_t* graph,
                                            const cudaGraphNode_t** last,
                                            const cudaGraphEdgeData** edges, std::size_t* count) {
  cuuint64_t number = 0;
  const cudaError_t error =
      call(cuStreamGetCaptureInfo, stream, reinterpret_cast<CUstreamCaptureStatus*>(status),
           &number, graph, last, reinterpret_cast<const CUgraphEdgeData**>(edges), count);
  if (id != nullptr) *id = number;
  return error;
}
EXPORT cudaError_t cudaStreamUpdateCaptureDependencies(cudaStream_t stream, cudaGraphNode_t* nodes,
                                                       const cudaGraphEdgeData*, std::size_t count,
                                                       unsigned flags) {
  return call(cuStreamUpdateCaptureDependencies, stream, nodes, nullptr, count, flags);
}
EXPORT cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph,
                                        unsigned long long flags) {
  return call(cuGraphInstantiate, exec, graph, flags);
}
EXPORT cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* exec, cudaGraph_t graph,
                                                 unsigned long long flags) {
  return call(cuGraphInstantiate, exec, graph, flags);
}
EXPORT cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
  return call(cuGraphLaunch, exec, stream);
}
EXPORT cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
  return call(cuGraphExecDestroy, exec);
}
EXPORT cudaError_t cudaGraphDestroy(cudaGraph_t graph) { return call(cuGraphDestroy, graph); }
EXPORT cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t* nodes,
                                     std::size_t* count) {
  return call(cuGraphGetNodes, graph, nodes, count);
}
EXPORT cudaError_t cudaUserObjectCreate(cudaUserObject_t* object, void* pointer,
                                        cudaHostFn_t destroy, unsigned count, unsigned flags) {
  return call(cuUserObjectCreate, object, pointer, destroy, count, flags);
}
EXPORT cudaError_t cudaUserObjectRelease(cudaUserObject_t object, unsigned count) {
  return call(cuUserObjectRelease, object, count);
}
EXPORT cudaError_t cudaGraphRetainUserObject(cudaGraph_t graph, cudaUserObject_t object,
                                             unsigned count, unsigned flags) {
  return call(cuGraphRetainUserObject, graph, object, count, flags);
}

// --- Kernels: what nvcc has a program call ---
EXPORT void** __cudaRegisterFatBinary(void*) {
  static void* handle = nullptr;
  return &handle;
}
EXPORT void __cudaRegisterFatBinaryEnd(void**) {}
EXPORT void __cudaUnregisterFatBinary(void**) {}
EXPORT char __cudaInitModule(void**) { return 1; }
EXPORT void __cudaRegisterVar(void**, char*, char*, const char*, int, std::size_t, int, int) {}
EXPORT void __cudaRegisterFunction(void**, const char* function, char*, const char* name, int,
                                   uint3*, uint3*, dim3*, dim3*, int*) {
  kernels()[function] = name;
}
EXPORT unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, std::size_t shared_bytes,
                                            void* stream) {
  configuration = {grid, block, shared_bytes, stream};
  return 0;
}
EXPORT cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, std::size_t* shared_bytes,
                                              void* stream) {
  *grid = configuration.grid, *block = configuration.block;
  *shared_bytes = configuration.shared_bytes;
  *static_cast<void**>(stream) = configuration.stream;
  return cudaSuccess;
}
EXPORT cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* function) {
  *kernel = reinterpret_cast<cudaKernel_t>(const_cast<char*>(kernels()[function].c_str()));
  return cudaSuccess;
}
EXPORT cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void** arguments,
                                      std::size_t shared_bytes, cudaStream_t stream) {
  return launch(reinterpret_cast<const char*>(kernel), grid, block, arguments, shared_bytes,
                stream);
}
EXPORT cudaError_t cudaLaunchKernel(const void* function, dim3 grid, dim3 block, void** arguments,
                                    std::size_t shared_bytes, cudaStream_t stream) {
  return launch(kernels()[function].c_str(), grid, block, arguments, shared_bytes, stream);
}
