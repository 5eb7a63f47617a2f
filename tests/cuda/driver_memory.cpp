// Memory: allocations, copies, what a pointer is, and memory of another process.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <string>

#include "tests/cuda/graph.h"

using namespace tutti::stand_in;

namespace {

using Kind = Allocation::Kind;

CUresult allocate(Address* address, Kind kind, std::size_t bytes) {
  CUresult refusal = CUDA_SUCCESS;
  Context* const context = current(&refusal);
  if (context == nullptr) return refusal;
  if (bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  refusal = check_safe();
  if (refusal != CUDA_SUCCESS) return refusal;
  *address = driver().memory.allocate(kind, bytes, context->device().ordinal());
  return *address != 0 ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult remove(Address address, Kind kind) {
  CUresult refusal = CUDA_SUCCESS;
  Context* const context = current(&refusal);
  if (context == nullptr) return refusal;
  refusal = check_safe();
  if (refusal != CUDA_SUCCESS) return refusal;
  if (settings().free_waits) context->synchronize();
  return driver().memory.remove(address, kind) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

bool pageable(Address address) { return !driver().memory.find(address); }

bool is_captured(const Stream& stream) {
  const std::lock_guard lock(captures().mutex);
  return captures().of(stream) != nullptr;
}

// As the driver does, a copy from memory that is not pinned reads it before the function returns,
// and a copy to such memory has ended when it returns.
CUresult copy(Address to, Address from, std::size_t bytes, CUstream stream) {
  Memory& memory = driver().memory;
  if (!memory.holds(to, bytes) || !memory.holds(from, bytes)) return CUDA_ERROR_INVALID_VALUE;
  CUresult refusal = CUDA_SUCCESS;
  const auto found = find_stream(stream, &refusal);
  if (found == nullptr) return refusal;
  const bool captured = is_captured(*found);
  if (pageable(from) && !pageable(to) && !captured) {
    auto staged =
        std::make_shared<std::vector<std::byte>>(at<std::byte>(from), at<std::byte>(from) + bytes);
    return submit(stream, CU_GRAPH_NODE_TYPE_MEMCPY,
                  [=] { std::memcpy(at<void>(to), staged->data(), staged->size()); });
  }
  const CUresult result = submit(stream, CU_GRAPH_NODE_TYPE_MEMCPY,
                                 [=] { std::memmove(at<void>(to), at<void>(from), bytes); });
  return result == CUDA_SUCCESS && pageable(to) && !captured ? cuStreamSynchronize(stream) : result;
}

CUresult copy_now(Address to, Address from, std::size_t bytes) {
  const CUresult result = copy(to, from, bytes, nullptr);
  return result == CUDA_SUCCESS ? cuStreamSynchronize(nullptr) : result;
}

Address address_of(const void* memory) { return reinterpret_cast<Address>(memory); }

CUresult attribute_of(void* value, CUpointer_attribute attribute, const Allocation& found,
                      CUdeviceptr address) {
  const bool of_host = found.kind == Kind::host || found.kind == Kind::registered;
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
      *static_cast<CUcontext*>(value) =
          handle_of(driver().contexts[static_cast<std::size_t>(found.ordinal)].get());
      break;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      *static_cast<unsigned*>(value) = of_host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
      break;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER: *static_cast<CUdeviceptr*>(value) = address; break;
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
      if (!of_host && found.kind != Kind::managed) return CUDA_ERROR_INVALID_VALUE;
      *static_cast<CUdeviceptr*>(value) = address;
      break;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
      *static_cast<unsigned long long*>(value) = found.begin;
      break;
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
      *static_cast<unsigned*>(value) = found.kind == Kind::managed ? 1 : 0;
      break;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL: *static_cast<int*>(value) = found.ordinal; break;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
      *static_cast<CUdeviceptr*>(value) = found.begin;
      break;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE: *static_cast<std::size_t*>(value) = found.bytes; break;
    default: return CUDA_ERROR_NOT_SUPPORTED;
  }
  return CUDA_SUCCESS;
}

/// What an IPC handle holds: where the file of the memory is.
struct Shared {
  std::uint64_t magic;
  std::int32_t process, file, ordinal, padding;
  std::uint64_t bytes, inode;
};
constexpr std::uint64_t kMagic = 0x7475747469697063;
static_assert(sizeof(Shared) <= sizeof(CUipcMemHandle));

/// Stands in for a machine whose GPUs do not reach each other as they say: of what is written to
/// the memory of a peer nothing arrives ("lost"), or only each second page ("damaged").
void lose_writes(Address begin, std::size_t bytes, int file) {
  constexpr std::size_t kPage = 4096;
  const std::string& peers = settings().peers;
  if (peers != "lost" && peers != "damaged") return;
  for (std::size_t from = peers == "lost" ? 0 : kPage; from < bytes;
       from += peers == "lost" ? kPage : 2 * kPage)
    mmap(at<void>(begin + from), kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED, file,
         static_cast<off_t>(from));
}

std::uint64_t inode_of(int file) {
  struct stat status {};
  return fstat(file, &status) == 0 ? status.st_ino : 0;
}

}  // namespace

CUresult cuMemAlloc(CUdeviceptr* address, std::size_t bytes) {
  CUresult refusal = CUDA_SUCCESS;
  Context* const context = current(&refusal);
  if (context != nullptr && context->device().ordinal() == settings().full_device)
    return CUDA_ERROR_OUT_OF_MEMORY;
  Address result = 0;
  const CUresult error = allocate(&result, Kind::device, bytes);
  *address = result;
  return error;
}

CUresult cuMemAllocManaged(CUdeviceptr* address, std::size_t bytes, unsigned) {
  Address result = 0;
  const CUresult error = allocate(&result, Kind::managed, bytes);
  *address = result;
  return error;
}

CUresult cuMemFree(CUdeviceptr address) {
  if (address == 0) return CUDA_SUCCESS;
  const CUresult result = remove(address, Kind::device);
  return result == CUDA_ERROR_INVALID_VALUE ? remove(address, Kind::managed) : result;
}

CUresult cuMemHostAlloc(void** memory, std::size_t bytes, unsigned) {
  Address result = 0;
  const CUresult error = allocate(&result, Kind::host, bytes);
  *memory = at<void>(result);
  return error;
}

CUresult cuMemAllocHost(void** memory, std::size_t bytes) {
  return cuMemHostAlloc(memory, bytes, 0);
}

CUresult cuMemFreeHost(void* memory) { return remove(address_of(memory), Kind::host); }

CUresult cuMemHostRegister(void* memory, std::size_t bytes, unsigned) {
  CUresult refusal = CUDA_SUCCESS;
  Context* const context = current(&refusal);
  if (context == nullptr) return refusal;
  if (bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  refusal = check_safe();
  if (refusal != CUDA_SUCCESS) return refusal;
  const Address address = address_of(memory);
  if (!pageable(address) || !pageable(address + bytes - 1))
    return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
  driver().memory.add({Kind::registered, address, bytes, context->device().ordinal(), -1});
  return CUDA_SUCCESS;
}

CUresult cuMemHostUnregister(void* memory) {
  const CUresult result = remove(address_of(memory), Kind::registered);
  return result == CUDA_ERROR_INVALID_VALUE ? CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED : result;
}

CUresult cuMemHostGetDevicePointer(CUdeviceptr* address, void* memory, unsigned flags) {
  const auto found = driver().memory.find(address_of(memory));
  if (!found || flags != 0 || (found->kind != Kind::host && found->kind != Kind::registered))
    return CUDA_ERROR_INVALID_VALUE;
  *address = address_of(memory);
  return CUDA_SUCCESS;
}

CUresult cuMemGetInfo(std::size_t* free, std::size_t* total) {
  *free = *total = std::size_t{16} << 30;
  return CUDA_SUCCESS;
}

CUresult cuMemGetAddressRange(CUdeviceptr* begin, std::size_t* bytes, CUdeviceptr address) {
  const auto found = driver().memory.find(address);
  if (!found) return CUDA_ERROR_NOT_FOUND;
  if (begin != nullptr) *begin = found->begin;
  if (bytes != nullptr) *bytes = found->bytes;
  return CUDA_SUCCESS;
}

CUresult cuPointerGetAttribute(void* value, CUpointer_attribute attribute, CUdeviceptr address) {
  const auto found = driver().memory.find(address);
  return found ? attribute_of(value, attribute, *found, address) : CUDA_ERROR_INVALID_VALUE;
}

// For an address that is not known it succeeds, with zeros.
CUresult cuPointerGetAttributes(unsigned count, CUpointer_attribute* attributes, void** values,
                                CUdeviceptr address) {
  const auto found = driver().memory.find(address);
  for (unsigned each = 0; each < count; ++each) {
    if (found) {
      attribute_of(values[each], attributes[each], *found, address);
    } else if (attributes[each] == CU_POINTER_ATTRIBUTE_CONTEXT ||
               attributes[each] == CU_POINTER_ATTRIBUTE_DEVICE_POINTER ||
               attributes[each] == CU_POINTER_ATTRIBUTE_HOST_POINTER) {
      *static_cast<void**>(values[each]) = nullptr;
    } else {
      *static_cast<int*>(values[each]) =
          attributes[each] == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL ? -2 : 0;
    }
  }
  return CUDA_SUCCESS;
}

CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, std::size_t bytes, CUstream stream) {
  return copy(to, from, bytes, stream);
}
CUresult cuMemcpyHtoDAsync(CUdeviceptr to, const void* from, std::size_t bytes, CUstream stream) {
  return copy(to, address_of(from), bytes, stream);
}
CUresult cuMemcpyDtoHAsync(void* to, CUdeviceptr from, std::size_t bytes, CUstream stream) {
  return copy(address_of(to), from, bytes, stream);
}
CUresult cuMemcpyDtoDAsync(CUdeviceptr to, CUdeviceptr from, std::size_t bytes, CUstream stream) {
  return copy(to, from, bytes, stream);
}
CUresult cuMemcpy(CUdeviceptr to, CUdeviceptr from, std::size_t bytes) {
  return copy_now(to, from, bytes);
}
CUresult cuMemcpyHtoD(CUdeviceptr to, const void* from, std::size_t bytes) {
  return copy_now(to, address_of(from), bytes);
}
CUresult cuMemcpyDtoH(void* to, CUdeviceptr from, std::size_t bytes) {
  return copy_now(address_of(to), from, bytes);
}
CUresult cuMemcpyDtoD(CUdeviceptr to, CUdeviceptr from, std::size_t bytes) {
  return copy_now(to, from, bytes);
}

CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, std::size_t bytes, CUstream stream) {
  if (!driver().memory.holds(to, bytes) || pageable(to)) return CUDA_ERROR_INVALID_VALUE;
  return submit(stream, CU_GRAPH_NODE_TYPE_MEMSET,
                [=] { std::memset(at<void>(to), value, bytes); });
}
CUresult cuMemsetD8(CUdeviceptr to, unsigned char value, std::size_t bytes) {
  const CUresult result = cuMemsetD8Async(to, value, bytes, nullptr);
  return result == CUDA_SUCCESS ? cuStreamSynchronize(nullptr) : result;
}

CUresult cuIpcGetMemHandle(CUipcMemHandle* handle, CUdeviceptr address) {
  const auto found = driver().memory.find(address);
  if (!found || found->kind != Kind::device) return CUDA_ERROR_INVALID_VALUE;
  const Shared shared{kMagic, getpid(),     found->file,          found->ordinal,
                      0,      found->bytes, inode_of(found->file)};
  std::memset(handle, 0, sizeof *handle);
  std::memcpy(handle, &shared, sizeof shared);
  return CUDA_SUCCESS;
}

CUresult cuIpcOpenMemHandle(CUdeviceptr* address, CUipcMemHandle handle, unsigned flags) {
  CUresult refusal = CUDA_SUCCESS;
  if (current(&refusal) == nullptr) return refusal;
  Shared shared{};
  std::memcpy(&shared, &handle, sizeof shared);
  if (shared.magic != kMagic || flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS)
    return CUDA_ERROR_INVALID_VALUE;
  if (shared.process == getpid()) return CUDA_ERROR_INVALID_CONTEXT;
  const std::string name =
      "/proc/" + std::to_string(shared.process) + "/fd/" + std::to_string(shared.file);
  const int file = open(name.c_str(), O_RDWR | O_CLOEXEC);
  Address mapped = 0;
  if (file >= 0 && inode_of(file) == shared.inode && settings().peers != "none")
    mapped = Memory::map(file, shared.bytes);
  if (mapped == 0) {
    if (file >= 0) close(file);
    return CUDA_ERROR_INVALID_VALUE;
  }
  lose_writes(mapped, shared.bytes, file);
  driver().memory.add({Kind::imported, mapped, shared.bytes, shared.ordinal, file});
  *address = mapped;
  return CUDA_SUCCESS;
}

CUresult cuIpcCloseMemHandle(CUdeviceptr address) { return remove(address, Kind::imported); }
