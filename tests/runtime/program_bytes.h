// Converts a program to bytes and back, which is possible because its records hold no pointers.
#pragma once

#include <cstddef>
#include <cstring>
#include <span>
#include <type_traits>
#include <vector>

#include "collectives/schedule/program.h"

namespace tutti::test {

/// Calls `use` with the head and the vectors of a program, in a fixed order.
template <typename AnyProgram, typename Use>
void for_each_part(AnyProgram& program, Use&& use) {
  use(static_cast<std::conditional_t<std::is_const_v<AnyProgram>, const ProgramHead, ProgramHead>&>(
      program));
  use(program.lanes);
  use(program.steps);
  use(program.operands);
  use(program.masks);
  use(program.receives);
  use(program.sends);
}

inline std::vector<std::byte> to_bytes(const Program& program) {
  std::vector<std::byte> bytes;
  const auto append = [&](const void* data, std::size_t size) {
    const auto* first = static_cast<const std::byte*>(data);
    bytes.insert(bytes.end(), first, first + size);
  };
  for_each_part(program, [&](const auto& part) {
    if constexpr (requires { part.size(); }) {
      const std::size_t count = part.size();
      append(&count, sizeof count);
      append(part.data(), count * sizeof part[0]);
    } else {
      append(&part, sizeof part);
    }
  });
  return bytes;
}

inline Program from_bytes(std::span<const std::byte> bytes) {
  Program program;
  const auto take = [&](void* data, std::size_t size) {
    if (size > 0) std::memcpy(data, bytes.data(), size);
    bytes = bytes.subspan(size);
  };
  for_each_part(program, [&](auto& part) {
    if constexpr (requires { part.size(); }) {
      std::size_t count = 0;
      take(&count, sizeof count);
      part.resize(count);
      take(part.data(), count * sizeof part[0]);
    } else {
      take(&part, sizeof part);
    }
  });
  return program;
}

}  // namespace tutti::test
