// Enumerators by their names.
#pragma once

#include <string>
#include <string_view>

#include <tutti/error.hpp>
#include <tutti/types.hpp>

namespace tutti::python {

/// Returns the enumerator of that name, of `count` that begin with 0. Throws `usage`, which lists
/// them; `what` says what they are.
template <typename Enum>
Enum named(const std::string& name, int count, const char* what) {
  std::string all;
  for (int k = 0; k < count; ++k) {
    const std::string_view other = to_string(static_cast<Enum>(k));
    if (other == name) return static_cast<Enum>(k);
    all.append(k == 0 ? "" : k + 1 < count ? ", " : " and ").append(other);
  }
  throw Error(ErrorKind::usage,
              std::string("no such ") + what + ": \"" + name + "\"; there are " + all);
}

inline Op op_of(const std::string& name) { return named<Op>(name, kOps, "reduction"); }
inline Collective collective_of(const std::string& name) {
  return named<Collective>(name, kCollectives, "collective");
}

}  // namespace tutti::python
