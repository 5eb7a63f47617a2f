// Modules and launches of kernels.
#include <dlfcn.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstring>
#include <map>
#include <sstream>
#include <string>

#include "tests/cuda/driver.h"

using namespace tutti::stand_in;

namespace {

constexpr std::uint32_t kMostShared = 49152, kMostSharedAsked = 232448, kMostThreads = 1024;

struct Function {
  const Kernel* kernel = nullptr;
  std::atomic<std::uint32_t> most_dynamic{kMostShared};
};

struct Module {
  std::mutex mutex;
  std::map<std::string, std::unique_ptr<Function>> functions;
};

/// The image of a module only has to look like one: all modules hold the kernels that
/// FAKE_CUDA_KERNELS names.
struct Library {
  Library() {
    std::istringstream paths(settings().kernels);
    for (std::string path; std::getline(paths, path, ':');) {
      void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
      void* const function = library == nullptr ? nullptr : dlsym(library, kKernelsFunction);
      if (function == nullptr) {
        std::fprintf(stderr, "stand-in: FAKE_CUDA_KERNELS: %s\n", dlerror());
        _exit(86);
      }
      const Kernels& found = *reinterpret_cast<const Kernels* (*)()>(function)();
      for (std::size_t each = 0; each < found.count; ++each)
        kernels.emplace(found.kernels[each].name, &found.kernels[each]);
    }
  }
  std::map<std::string, const Kernel*> kernels;
};

Function& function_of(CUfunction handle) { return *reinterpret_cast<Function*>(handle); }

bool is_image(const void* image) {
  constexpr std::uint32_t kFatBinary = 0xba55ed50, kElf = 0x464c457f, kWrapper = 0x466243b1;
  std::uint32_t begin = 0;
  std::memcpy(&begin, image, sizeof begin);
  return begin == kFatBinary || begin == kElf || begin == kWrapper ||
         std::memcmp(image, "//", 2) == 0 || std::memcmp(image, ".ver", 4) == 0;
}

std::vector<std::byte> parameters_of(const Kernel& kernel, void** arguments) {
  std::vector<std::byte> copied;
  for (std::uint32_t each = 0; each < kernel.parameter_count; ++each) {
    const Parameter& parameter = kernel.parameters[each];
    copied.resize(std::size_t{parameter.offset} + parameter.bytes);
    std::memcpy(copied.data() + parameter.offset, arguments[each], parameter.bytes);
  }
  return copied;
}

bool parameters_in_buffer(const Kernel& kernel, void** extra, std::vector<std::byte>* copied) {
  const void* buffer = nullptr;
  std::size_t bytes = 0;
  for (; *extra != CU_LAUNCH_PARAM_END; extra += 2) {
    if (*extra == CU_LAUNCH_PARAM_BUFFER_POINTER) buffer = extra[1];
    if (*extra == CU_LAUNCH_PARAM_BUFFER_SIZE) bytes = *static_cast<std::size_t*>(extra[1]);
  }
  const Parameter last = kernel.parameters[kernel.parameter_count - 1];
  if (buffer == nullptr || bytes < std::size_t{last.offset} + last.bytes) return false;
  copied->assign(static_cast<const std::byte*>(buffer),
                 static_cast<const std::byte*>(buffer) + bytes);
  return true;
}

CUresult launch(Function& function, Size3 grid, Size3 block, unsigned shared, CUstream handle,
                std::vector<std::byte> parameters) {
  const Kernel& kernel = *function.kernel;
  if (grid.count() == 0 || block.count() == 0 || block.count() > kMostThreads || block.z > 64)
    return CUDA_ERROR_INVALID_VALUE;
  if (shared > function.most_dynamic || kernel.shared_bytes + shared > kMostSharedAsked)
    return CUDA_ERROR_INVALID_VALUE;
  if (block.count() > kernel.most_threads) return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
  CUresult refusal = CUDA_SUCCESS;
  const auto stream = find_stream(handle, &refusal);
  if (stream == nullptr) return refusal;
  static std::atomic<std::uint64_t> launches{0};
  const std::uint64_t seed =
      settings().jitter == 0 ? 0 : settings().jitter + launches++ * 0x9e3779b9;
  Device& device = stream->context().device();
  return submit(handle, CU_GRAPH_NODE_TYPE_KERNEL,
                [&device, launched = Launch{&kernel, grid, block, shared, std::move(parameters),
                                            seed}] { device.run(launched); });
}

}  // namespace

CUresult cuModuleLoadData(CUmodule* module, const void* image) {
  CUresult refusal = CUDA_SUCCESS;
  if (current(&refusal) == nullptr) return refusal;
  if (!is_image(image)) return CUDA_ERROR_INVALID_IMAGE;
  *module = reinterpret_cast<CUmodule>(new Module);
  return CUDA_SUCCESS;
}

CUresult cuModuleLoadDataEx(CUmodule* module, const void* image, unsigned, CUjit_option*, void**) {
  return cuModuleLoadData(module, image);
}
CUresult cuModuleLoadFatBinary(CUmodule* module, const void* image) {
  return cuModuleLoadData(module, image);
}

CUresult cuModuleGetFunction(CUfunction* function, CUmodule handle, const char* name) {
  const auto& kernels = only<Library>().kernels;
  const auto found = kernels.find(name);
  if (found == kernels.end()) return CUDA_ERROR_NOT_FOUND;
  Module& module = *reinterpret_cast<Module*>(handle);
  const std::lock_guard lock(module.mutex);
  std::unique_ptr<Function>& known = module.functions[name];
  if (known == nullptr) {
    known = std::make_unique<Function>();
    known->kernel = found->second;
    known->most_dynamic = kMostShared - std::min(kMostShared, found->second->shared_bytes);
  }
  *function = reinterpret_cast<CUfunction>(known.get());
  return CUDA_SUCCESS;
}

CUresult cuModuleUnload(CUmodule module) {
  delete reinterpret_cast<Module*>(module);
  return CUDA_SUCCESS;
}

CUresult cuFuncGetAttribute(int* value, CUfunction_attribute attribute, CUfunction handle) {
  const Function& function = function_of(handle);
  switch (attribute) {
    case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
      *value = static_cast<int>(function.kernel->most_threads);
      break;
    case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES:
      *value = static_cast<int>(function.kernel->shared_bytes);
      break;
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
      *value = static_cast<int>(function.most_dynamic);
      break;
    case CU_FUNC_ATTRIBUTE_NUM_REGS: *value = 32; break;
    case CU_FUNC_ATTRIBUTE_PTX_VERSION:
    case CU_FUNC_ATTRIBUTE_BINARY_VERSION: *value = 90; break;
    case CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES:
    case CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES: *value = 0; break;
    default: return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

CUresult cuFuncSetAttribute(CUfunction handle, CUfunction_attribute attribute, int value) {
  if (attribute != CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES) return CUDA_SUCCESS;
  if (value < 0 || static_cast<std::uint32_t>(value) > kMostSharedAsked)
    return CUDA_ERROR_INVALID_VALUE;
  function_of(handle).most_dynamic = static_cast<std::uint32_t>(value);
  return CUDA_SUCCESS;
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, CUfunction, int, std::size_t) {
  *blocks = 1;
  return CUDA_SUCCESS;
}

CUresult cuLaunchKernel(CUfunction handle, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                        unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                        CUstream stream, void** arguments, void** extra) {
  if (handle == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  Function& function = function_of(handle);
  const Kernel& kernel = *function.kernel;
  std::vector<std::byte> parameters;
  if (kernel.parameter_count != 0 && arguments == nullptr) {
    if (extra == nullptr || !parameters_in_buffer(kernel, extra, &parameters))
      return CUDA_ERROR_INVALID_VALUE;
  } else {
    parameters = parameters_of(kernel, arguments);
  }
  return launch(function, {grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, shared_bytes,
                stream, std::move(parameters));
}
