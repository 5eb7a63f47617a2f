// Translates the structs and enums of tutti/tutti.h into those of the C++ library.
#pragma once

#include <tutti/reduction.h>
#include <tutti/tutti.h>

#include <cassert>
#include <cstring>
#include <tutti/tutti.hpp>
#include <type_traits>

namespace tutti::c {

/// Returns a caller's struct of any version as this library's version of it. Fields that the
/// caller's struct lacks have the values of `initial`; fields that this version does not know must
/// be zero. `first_bytes` is the size of the first version. Throws `usage`.
template <typename Struct>
Struct read(const Struct& given, const Struct& initial, std::size_t first_bytes, const char* name) {
  static_assert(std::is_trivially_copyable_v<Struct>);
  assert(first_bytes <= sizeof(Struct) && initial.size == sizeof(Struct));
  const std::size_t size = given.size;
  if (size < first_bytes)
    throw Error(ErrorKind::usage, std::string(name) + "->size is " + std::to_string(size) +
                                      "; begin with its initializer, which sets it");
  const auto* bytes = reinterpret_cast<const unsigned char*>(&given);
  for (std::size_t at = sizeof(Struct); at < size; ++at)
    if (bytes[at] != 0)
      throw Error(ErrorKind::usage, std::string(name) +
                                        " sets something that this version of tutti (" +
                                        std::string(version()) + ") does not know");
  Struct copy = initial;
  std::memcpy(&copy, &given, std::min(size, sizeof(Struct)));
  return copy;
}

CallOptions read_options(const tuttiOptions_t* options);
/// The options of a call with a reduction of the program's own.
struct With {
  const tuttiOptions_t* options;
  tuttiReduction_t reduction;
};
CallOptions read_options(const With& with);
/// Starts from Config::from_env(), and throws `usage` as that does.
Config read_config(const tuttiConfig_t* config);

/// All of these throw `usage` for a value that does not exist.
DataType cpp(tuttiDataType_t type);
Op cpp(tuttiOp_t op);
/// An array with one entry for each rank; a null `first` stands for no array.
struct Entries {
  const std::size_t* first;
  tuttiComm_t comm;
};
PerRank cpp(Entries list);
/// Returns values that are the same in C and C++.
template <typename T>
T cpp(T value) {
  return value;
}

}  // namespace tutti::c
