// What the stand-in knows about addresses.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>

namespace tutti::stand_in {

using Address = std::uint64_t;

struct Allocation {
  enum class Kind { device, managed, host, registered, imported };
  Kind kind;
  Address begin;
  std::size_t bytes;
  int ordinal;  ///< Of the device.
  int file;     ///< A memfd, or -1.
};

/// All memory of all devices, and pinned memory. It may be used by any thread. Kernels run in this
/// process, so that the host could touch the memory of a device, too.
class Memory {
 public:
  /// Returns 0 if there is no memory. What it holds is not zero.
  Address allocate(Allocation::Kind kind, std::size_t bytes, int ordinal);
  /// Knows of memory that is there: `registered`, or `imported` with a file.
  bool add(const Allocation& allocation);
  /// Frees what begins there and is of that kind.
  bool remove(Address begin, Allocation::Kind kind);
  std::optional<Allocation> find(Address address) const;
  /// Whether these bytes do not begin in an allocation, or lie within it.
  bool holds(Address address, std::size_t bytes) const;

  static Address map(int file, std::size_t bytes);

 private:
  mutable std::mutex mutex_;
  std::map<Address, Allocation> allocations_;
};

}  // namespace tutti::stand_in
