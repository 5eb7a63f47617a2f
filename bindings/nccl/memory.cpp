// Implements memory for programs, and its registration: buffers and windows.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <new>
#include <set>
#include <utility>

#include "bindings/nccl/communicator.h"
#include "bindings/nccl/errors.h"
#include "bindings/nccl/group.h"
#include "bindings/nccl/process.h"

namespace tutti::nccl {
namespace {

// Lists the memory that ncclMemAlloc has allocated on the host.
using HostBlocks = std::set<void*>;

void* allocate_on_host(std::size_t bytes) {
  constexpr std::size_t kPage = 4096;
  if (bytes > std::numeric_limits<std::size_t>::max() - kPage) throw std::bad_alloc();
  void* const memory = std::aligned_alloc(kPage, (bytes + kPage - 1) / kPage * kPage);
  if (memory == nullptr) throw std::bad_alloc();
  std::memset(memory, 0, bytes);
  auto& blocks = of_process<HostBlocks>();
  const std::lock_guard lock(blocks.mutex);
  blocks.value.insert(memory);
  return memory;
}

bool free_on_host(void* memory) {
  auto& blocks = of_process<HostBlocks>();
  const std::lock_guard lock(blocks.mutex);
  if (blocks.value.erase(memory) == 0) return false;
  std::free(memory);
  return true;
}

// Network devices work with the host's memory that is registered, so that long messages to other
// machines are not copied there. Returns the handle.
Registered* register_buffer(ncclComm& comm, void* buffer, std::size_t bytes, bool is_window) {
  require(buffer != nullptr && bytes > 0, "the buffer is null, or its size is 0");
  require(bytes <= std::numeric_limits<std::ptrdiff_t>::max() &&
              bytes <= std::numeric_limits<std::uintptr_t>::max() -
                           reinterpret_cast<std::uintptr_t>(buffer),
          "the size of the buffer is more than memory can hold");
  const Calling calling(comm);
  auto registered = std::make_unique<Registered>(Registered{buffer, is_window, {}});
  if (comm.gpu == nullptr || !comm.gpu->owns(buffer))
    registered->memory = tutti::RegisteredMemory::of(calling.communicator(), buffer, bytes);
  comm.registered.push_back(std::move(registered));
  return comm.registered.back().get();
}

// Returns the place of a handle in the list, whose lock the caller holds.
auto find_registered(ncclComm& comm, const void* handle, bool is_window) {
  return std::find_if(comm.registered.begin(), comm.registered.end(), [&](const auto& each) {
    return each.get() == handle && each->is_window == is_window;
  });
}

void deregister(ncclComm& comm, const void* handle, bool is_window, const char* refusal) {
  if (handle == nullptr) return;
  const std::lock_guard lock(comm.calls);
  const auto its = find_registered(comm, handle, is_window);
  require(its != comm.registered.end(), refusal);
  comm.registered.erase(its);
}

}  // namespace
}  // namespace tutti::nccl

using namespace tutti::nccl;

NCCL_FUNCTION(ncclResult_t, ncclMemAlloc, void** memory, size_t bytes) {
  return guarded([&] {
    require(memory != nullptr, "the place for the address is null");
    *memory = nullptr;
    if (bytes == 0) return;
    const Gpu* const gpu = Gpu::find();
    *memory = gpu != nullptr ? gpu->allocate(bytes) : allocate_on_host(bytes);
  });
}

NCCL_FUNCTION(ncclResult_t, ncclMemFree, void* memory) {
  return guarded([&] {
    if (memory == nullptr || free_on_host(memory)) return;
    const Gpu* const gpu = Gpu::find();
    require(gpu != nullptr, "the memory is none of ncclMemAlloc");
    gpu->free(memory);
  });
}

NCCL_FUNCTION(ncclResult_t, ncclCommRegister, const ncclComm_t comm, void* buffer, size_t bytes,
              void** handle) {
  return guarded([&] {
    const auto its = ready(comm);
    require(handle != nullptr, "the place for the handle is null");
    *handle = register_buffer(*its, buffer, bytes, false);
  });
}

NCCL_FUNCTION(ncclResult_t, ncclCommDeregister, const ncclComm_t comm, void* handle) {
  return guarded([&] {
    deregister(*whole(comm), handle, false,
               "the handle is none of ncclCommRegister for this communicator");
  });
}

// A window is a registered buffer: ranks need not agree on it, since nobody but the library reads
// or writes it.
NCCL_FUNCTION(ncclResult_t, ncclCommWindowRegister, ncclComm_t comm, void* buffer, size_t bytes,
              ncclWindow_t* window, int flags) {
  return in_group([&] {
    const auto its = ready(comm);
    require(window != nullptr, "the place for the window is null");
    *window = nullptr;
    require((flags & ~kWindowFlags) == 0,
            "winFlags are neither NCCL_WIN_DEFAULT nor made of NCCL_WIN_COLL_SYMMETRIC and "
            "NCCL_WIN_STRICT_ORDERING");
    *window = reinterpret_cast<ncclWindow_t>(register_buffer(*its, buffer, bytes, true));
  });
}

NCCL_FUNCTION(ncclResult_t, ncclCommWindowDeregister, ncclComm_t comm, ncclWindow_t window) {
  return in_group([&] {
    deregister(*whole(comm), window, true,
               "the window is none of ncclCommWindowRegister for this communicator");
  });
}

NCCL_FUNCTION(ncclResult_t, ncclWinGetUserPtr, ncclComm_t comm, ncclWindow_t window,
              void** buffer) {
  return guarded([&] {
    const auto its = whole(comm);
    require(buffer != nullptr, "the place for the address is null");
    const std::lock_guard lock(its->calls);
    const auto found = find_registered(*its, window, true);
    require(found != its->registered.end(),
            "the window is none of ncclCommWindowRegister for this communicator");
    *buffer = (*found)->buffer;
  });
}
