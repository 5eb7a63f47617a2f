// A Python object as the store through which ranks find each other.
#pragma once

#include <string>
#include <string_view>

#include <nanobind/nanobind.h>

#include <tutti/store.hpp>

namespace tutti::python {

namespace nb = nanobind;

/// Over an object with set(key, value, timeout), get(key, timeout), add(key, amount, timeout) and
/// wait(key, timeout): keys are str, values bytes, timeouts seconds. As thread-safe as that. A
/// TimeoutError of Python's is tutti's, any other exception a `peer_lost`. Made and destroyed with
/// the interpreter's lock, called without.
class Store final : public tutti::Store {
 public:
  /// Throws `usage` where a method is missing.
  explicit Store(nb::object object);

  void set(std::string_view key, std::string_view value, Deadline deadline) override;
  std::string get(std::string_view key, Deadline deadline) override;
  std::int64_t add(std::string_view key, std::int64_t amount, Deadline deadline) override;
  void wait(std::string_view key, Deadline deadline) override;

 private:
  nb::object object_;
};

}  // namespace tutti::python
