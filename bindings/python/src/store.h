// A Python object as the store through which ranks find each other.
#pragma once

#include <string>
#include <string_view>

#include <nanobind/nanobind.h>

#include <tutti/store.hpp>

namespace tutti::python {

namespace nb = nanobind;

/// Calls a Python object with the methods set(key, value, timeout), get(key, timeout), add(key,
/// amount, timeout) and wait(key, timeout), in which keys are str, values are bytes and timeouts
/// are seconds. It is as thread-safe as that object. A Python TimeoutError becomes `timeout`, every
/// other exception `peer_lost`. The interpreter's lock must be held to create and destroy it, and
/// must not be held to call it.
class Store final : public tutti::Store {
 public:
  /// Throws `usage` if the object lacks a method.
  explicit Store(nb::object object);

  void set(std::string_view key, std::string_view value, Deadline deadline) override;
  std::string get(std::string_view key, Deadline deadline) override;
  std::int64_t add(std::string_view key, std::int64_t amount, Deadline deadline) override;
  void wait(std::string_view key, Deadline deadline) override;

 private:
  nb::object object_;
};

}  // namespace tutti::python
