// Declares what the package uses of DLPack: see dmlc.github.io/dlpack. The layouts are part of
// DLPack's version 1.
#pragma once

#include <cstdint>

#include <nanobind/nanobind.h>

#include "streams.h"

namespace tutti::python::dlpack {

namespace nb = nanobind;

struct Version {
  std::uint32_t major;
  std::uint32_t minor;
};

/// The first members of a DLManagedTensorVersioned.
struct Managed {
  Version version;
  void* context;
  void (*deleter)(Managed*);
  std::uint64_t flags;
};

/// C functions for exchanging tensors, which a type may offer beside __dlpack__().
struct Exchange {
  Version version;
  const Exchange* previous;  ///< The table of an older major version.
  void* allocator;
  /// Returns 0, or -1 and sets a Python exception.
  int (*managed_from_object)(void* object, Managed** out);
  void* object_from_managed;
  void* tensor_from_object;
  /// Stores the stream by which the program's work on a device is ordered at this time, with the
  /// results of managed_from_object().
  int (*current_stream)(std::int32_t device_type, std::int32_t device, void** out);
};

inline constexpr std::uint32_t kMajor = 1;
inline constexpr std::uint64_t kReadOnly = 1, kCopied = 2;     ///< Flags of a tensor.
inline constexpr const char* kManaged = "dltensor_versioned";  ///< Name of a tensor's capsule.
/// These are types of devices: pinned memory of the host, memory that the host and GPUs share, a
/// GPU's.
inline constexpr std::int32_t kHost = 1, kGpu = 2, kPinned = 3, kManagedMemory = 13;

inline bool on_gpu(std::int32_t device_type) {
  return device_type == kGpu || device_type == kManagedMemory;
}

/// Returns the functions that the type of the object offers, or null. They live as long as the
/// process.
const Exchange* exchange_of(nb::handle object);

/// Returns a capsule with the object's tensor, made by these functions; invalid if they refuse, and
/// __dlpack__() then says why. It takes a tenth of the time of __dlpack__().
nb::object exchanged(const Exchange& table, nb::handle object);

/// Returns the capsule that the object's __dlpack__() makes. If the tensor is on a GPU, it has been
/// made for use on `stream`. Throws `usage`, with `what`, if the object refuses.
nb::object exported(const char* what, nb::handle object, Stream stream);

/// Returns the tensor of the capsule; null if that is of a time before DLPack had versions, or if
/// the object is no capsule.
const Managed* managed_of(nb::handle capsule);

}  // namespace tutti::python::dlpack
