// The structs and enums of tutti/tutti.h, read as the C++ library's.
#pragma once

#include <tutti/reduction.h>
#include <tutti/tutti.h>

#include <cstring>
#include <span>
#include <tutti/tutti.hpp>

namespace tutti::c {

/// A caller's struct of whatever version as this library's: what the caller's has not is as in
/// `initial`, and what this one does not know must be zero. `first_bytes`: the size of the first
/// version. Throws `usage`.
template <typename Struct>
Struct read(const Struct& given, const Struct& initial, std::size_t first_bytes, const char* name) {
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
/// Throws `usage` as Config::from_env() does.
Config read_config(const tuttiConfig_t* config);

/// All throw `usage` for what is none.
DataType cpp(tuttiDataType_t type);
Op cpp(tuttiOp_t op);
const UserReduction& cpp(tuttiReduction_t reduction);
/// An array with an entry for each rank; null: none.
struct Entries {
  const std::size_t* first;
  tuttiComm_t comm;
};
PerRank cpp(Entries list);
/// What is the same in C and C++.
template <typename T>
T cpp(T value) {
  return value;
}

}  // namespace tutti::c
