// Declares DLPack's C functions for exchanging tensors, which a type may offer beside __dlpack__():
// see dmlc.github.io/dlpack. The layout of their table is part of DLPack's version 1.
#pragma once

#include <cstdint>

namespace tutti::python::dlpack {

struct Version {
  std::uint32_t major;
  std::uint32_t minor;
};

/// The first members of a DLManagedTensorVersioned.
struct Managed {
  Version version;
  void* context;
  void (*deleter)(Managed*);
};

struct Exchange {
  Version version;
  const Exchange* previous;  ///< The table of an older major version.
  void* allocator;
  /// Returns 0, or -1 and sets a Python exception.
  int (*managed_from_object)(void* object, Managed** out);
};

inline constexpr std::uint32_t kMajor = 1;
inline constexpr const char* kAttribute = "__dlpack_c_exchange_api__";  ///< Attribute of the type.
inline constexpr const char* kExchange = "dlpack_exchange_api";         ///< Name of its capsule.
inline constexpr const char* kManaged = "dltensor_versioned";  ///< Name of a tensor's capsule.

}  // namespace tutti::python::dlpack
