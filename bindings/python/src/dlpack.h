// DLPack's C functions for exchanging tensors, which a type may offer beside __dlpack__(): see
// dmlc.github.io/dlpack. The layout of their table is part of its version 1.
#pragma once

#include <cstdint>

namespace tutti::python::dlpack {

struct Version {
  std::uint32_t major;
  std::uint32_t minor;
};

/// Begins a DLManagedTensorVersioned.
struct Managed {
  Version version;
  void* context;
  void (*deleter)(Managed*);
};

struct Exchange {
  Version version;
  const Exchange* previous;  ///< Of an older major version.
  void* allocator;
  int (*managed_from_object)(void* object, Managed** out);  ///< 0, or -1 and a Python exception.
};

inline constexpr std::uint32_t kMajor = 1;
inline constexpr const char* kAttribute = "__dlpack_c_exchange_api__";  ///< Of the type.
inline constexpr const char* kExchange = "dlpack_exchange_api";  ///< Names the attribute's capsule.
inline constexpr const char* kManaged = "dltensor_versioned";    ///< And that of a tensor.

}  // namespace tutti::python::dlpack
