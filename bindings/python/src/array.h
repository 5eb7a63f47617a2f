// Python objects as buffers of tutti's calls.
#pragma once

#include <cstddef>
#include <optional>

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <tutti/types.hpp>

namespace tutti::python {

namespace nb = nanobind;

/// The memory of an object with the buffer protocol (NumPy, bytearray, array) or DLPack (PyTorch,
/// JAX, CuPy). This object keeps the memory alive and in place. Throws `usage` if the memory is not
/// the host's, is not contiguous, has elements of a type that tutti does not have, or is read-only
/// while `writes` is set. The interpreter's lock must be held to create and destroy it.
class Array {
 public:
  Array() = default;  ///< Has no buffer.
  Array(const char* what, nb::handle object, bool writes);
  Array(Array&& other) noexcept;
  Array& operator=(Array&& other) noexcept;
  ~Array();

  void* data = nullptr;
  std::size_t count = 0;
  DataType type = DataType::uint8;

 private:
  void from_buffer(const char* what, nb::handle object, bool writes);
  void from_dlpack(const char* what, nb::handle object);

  std::optional<Py_buffer> view_;
  std::optional<nb::ndarray<nb::ro>> tensor_;
};

}  // namespace tutti::python
