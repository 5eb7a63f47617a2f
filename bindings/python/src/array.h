// Python objects as buffers of tutti's calls.
#pragma once

#include <cstddef>
#include <optional>

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <tutti/types.hpp>

#include "streams.h"

namespace tutti::python {

namespace nb = nanobind;

/// Holds the memory of an object with the buffer protocol (NumPy, bytearray, array), the CUDA array
/// interface (CuPy, Numba) or DLPack (PyTorch, JAX). This object keeps the memory alive and in
/// place. Throws `usage` if the memory is neither the host's nor a GPU's that CUDA knows, is not
/// contiguous, has elements of a type that tutti does not have, or is read-only while `writes` is
/// set. The interpreter's lock must be held to create and destroy it.
class Array {
 public:
  Array() = default;  ///< Has no buffer.
  /// `named` is the stream that the program has named for the call, or null.
  Array(const char* what, nb::handle object, bool writes, Stream named);
  Array(Array&& other) noexcept;
  Array& operator=(Array&& other) noexcept;
  ~Array();

  void* data = nullptr;
  std::size_t count = 0;
  DataType type = DataType::uint8;
  bool on_gpu = false;
  /// Returns the stream that orders the program's work on the array, or null if none is known.
  Stream stream = nullptr;

 private:
  void from_buffer(const char* what, nb::handle object, bool writes);
  /// Returns whether the object's type has DLPack's C functions, and they serve it.
  bool from_exchange(const char* what, nb::handle object, bool writes);
  /// Returns whether the object has the CUDA array interface, with elements that tutti knows or
  /// that only this interface describes.
  bool from_cuda_interface(const char* what, nb::handle object, bool writes);
  /// Calls __dlpack__(), or takes the object for a capsule that it has returned.
  void from_method(const char* what, nb::handle object, bool writes, Stream named);
  /// Takes over the tensor of the capsule.
  void from_dlpack(const char* what, nb::handle capsule, bool writes);

  std::optional<Py_buffer> view_;
  std::optional<nb::ndarray<nb::ro>> tensor_;
  nb::object owner_;  // It is set where neither of these keeps the memory.
};

}  // namespace tutti::python
