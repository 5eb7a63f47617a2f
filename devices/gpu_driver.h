// The functions of the CUDA driver that the library calls. They are found in the process, where the
// program has loaded the driver, or in the driver that this library loads where it is to launch
// kernels; nothing links it, and none of its headers is needed. Names, values and types are those
// of the driver's binary interface (CUDA 12 and later).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

namespace tutti::cuda {

using Result = int;
using Stream = void*;
using Context = void*;
using Device = int;
using Address = std::uint64_t;
using HostFunction = void (*)(void*);
using Graph = void*;
using GraphNode = void*;
using UserObject = void*;
using Module = void*;
using Function = void*;
using Uuid = std::array<std::byte, 16>;
using IpcHandle = std::array<std::byte, 64>;  // passed by value, as the driver's struct is

inline constexpr Result kSuccess = 0;
inline constexpr int kPointerContext = 1, kPointerMemoryType = 2, kPointerManaged = 8,
                     kPointerDevice = 9;
inline constexpr int kPciBus = 33, kPciDevice = 34, kPciDomain = 50;  // CU_DEVICE_ATTRIBUTE_PCI_...
inline constexpr unsigned kMemoryOfDevice = 2;                        // CU_MEMORYTYPE_DEVICE
inline constexpr unsigned kHostPortable = 1;                          // CU_MEMHOSTALLOC_PORTABLE
inline constexpr unsigned kWaitUntilAtLeast = 0;                      // CU_STREAM_WAIT_VALUE_GEQ
inline constexpr unsigned kHostMapped =
    2;  // CU_MEMHOSTALLOC_DEVICEMAP, CU_MEMHOSTREGISTER_DEVICEMAP
inline constexpr unsigned kStreamNonBlocking = 1;  // CU_STREAM_NON_BLOCKING
inline constexpr unsigned kIpcPeerAccess = 1;      // CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS
inline constexpr Result kPeerAccessAlready = 704;  // CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED
inline constexpr int kCaptureActive = 1;           // CU_STREAM_CAPTURE_STATUS_ACTIVE
inline constexpr int kCaptureModeRelaxed = 2;      // CU_STREAM_CAPTURE_MODE_RELAXED
inline constexpr unsigned kAddDependencies = 0;    // CU_STREAM_ADD_CAPTURE_DEPENDENCIES
inline constexpr unsigned kNoDestructorSync = 1;   // CU_USER_OBJECT_NO_DESTRUCTOR_SYNC
inline constexpr unsigned kMoveReferences = 1;     // CU_GRAPH_USER_OBJECT_MOVE
/// The default streams have these handles; null stands for the first of them.
inline constexpr std::uintptr_t kLegacyStream = 1, kStreamOfThread = 2;

inline bool is_default_stream(Stream stream) noexcept {
  return reinterpret_cast<std::uintptr_t>(stream) <= kStreamOfThread;
}

inline Address address_of(const void* memory) noexcept {
  return reinterpret_cast<std::uintptr_t>(memory);
}

/// A table of functions. It may be used by any thread.
struct Driver {
  Result (*pointer_attribute)(void* value, int attribute, Address address) = nullptr;
  Result (*stream_context)(Stream, Context*) = nullptr;
  Result (*stream_capturing)(Stream, int* status) = nullptr;
  Result (*capture_info)(Stream, int* status, std::uint64_t* capture, Graph*,
                         const GraphNode** last, std::size_t* count) = nullptr;
  Result (*update_dependencies)(Stream, GraphNode*, std::size_t count, unsigned flags) = nullptr;
  Result (*exchange_capture_mode)(int* mode) = nullptr;
  Result (*create_user_object)(UserObject*, void*, HostFunction destroy, unsigned references,
                               unsigned flags) = nullptr;
  Result (*release_user_object)(UserObject, unsigned references) = nullptr;
  Result (*retain_user_object)(Graph, UserObject, unsigned references, unsigned flags) = nullptr;
  Result (*retain_context)(Context*, Device) = nullptr;
  Result (*release_context)(Device) = nullptr;
  Result (*current_context)(Context*) = nullptr;
  Result (*push_context)(Context) = nullptr;
  Result (*pop_context)(Context*) = nullptr;
  Result (*allocate_host)(void** memory, std::size_t bytes, unsigned flags) = nullptr;
  Result (*free_host)(void* memory) = nullptr;
  Result (*copy)(Address to, Address from, std::size_t bytes, Stream) = nullptr;
  Result (*wait_value)(Stream, Address word, std::uint32_t value, unsigned flags) = nullptr;
  Result (*launch_host)(Stream, HostFunction, void* argument) = nullptr;
  Result (*synchronize)(Stream) = nullptr;
  Result (*error_text)(Result, const char** text) = nullptr;

  /// The name of a function that the driver lacks, since it is older than CUDA 12; then only
  /// pointer_attribute() may be called. Null if it has all.
  const char* missing = nullptr;

  /// Returns the driver that this process has loaded, or null if it has loaded none.
  static std::unique_ptr<const Driver> loaded();
};

/// The functions by which kernels are launched, besides. It may be used by any thread.
struct KernelDriver : Driver {
  Result (*initialize)(unsigned flags) = nullptr;
  Result (*count_devices)(int* count) = nullptr;
  Result (*device)(Device*, int ordinal) = nullptr;
  Result (*device_uuid)(Uuid*, Device) = nullptr;
  Result (*device_attribute)(int* value, int attribute, Device) = nullptr;
  Result (*context_number)(Context, std::uint64_t* number) = nullptr;
  Result (*load_module)(Module*, const void* image) = nullptr;
  Result (*unload_module)(Module) = nullptr;
  Result (*find_kernel)(Function*, Module, const char* name) = nullptr;
  Result (*allocate)(Address*, std::size_t bytes) = nullptr;
  Result (*free)(Address) = nullptr;
  Result (*register_host)(void* memory, std::size_t bytes, unsigned flags) = nullptr;
  Result (*unregister_host)(void* memory) = nullptr;
  Result (*address_of_host)(Address*, void* memory, unsigned flags) = nullptr;
  Result (*export_memory)(IpcHandle*, Address) = nullptr;
  Result (*map_memory)(Address*, IpcHandle, unsigned flags) = nullptr;
  Result (*unmap_memory)(Address) = nullptr;
  Result (*allocation_of)(Address* begin, std::size_t* bytes, Address) = nullptr;
  Result (*can_access_peer)(int* can, Device, Device peer) = nullptr;
  Result (*enable_peer_access)(Context peer, unsigned flags) = nullptr;
  Result (*stream_priorities)(int* least, int* greatest) = nullptr;
  Result (*create_stream)(Stream*, unsigned flags, int priority) = nullptr;
  Result (*destroy_stream)(Stream) = nullptr;
  Result (*wait_value_64)(Stream, Address word, std::uint64_t value, unsigned flags) = nullptr;
  Result (*write_value_64)(Stream, Address word, std::uint64_t value, unsigned flags) = nullptr;
  Result (*launch)(Function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                   unsigned block_y, unsigned block_z, unsigned shared_bytes, Stream,
                   void** arguments, void** extra) = nullptr;

  /// Loads the driver, unless the program has. Throws `unavailable` if there is none, or if it is
  /// older than CUDA 12.
  static std::unique_ptr<const KernelDriver> load();
};

/// Throws `unavailable` if the driver lacks a function.
void check_complete(const Driver& driver);
/// Throws `unavailable`, with `what` and the driver's text, if `result` is an error.
void check(const Driver& driver, Result result, const char* what);

}  // namespace tutti::cuda
