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
/// JAX, CuPy), which it keeps alive and in place. Throws `usage` where the memory is not the
/// host's, not in one piece, of a type that tutti does not have, or not to be written where
/// `writes`. Made and destroyed with the interpreter's lock.
class Array {
 public:
  Array() = default;  ///< No buffer.
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
