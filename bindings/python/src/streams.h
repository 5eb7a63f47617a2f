// CUDA streams, as Python programs name them.
#pragma once

#include <cstdint>
#include <initializer_list>

#include <nanobind/nanobind.h>

namespace tutti::python {

namespace nb = nanobind;

/// This is a cudaStream_t or CUstream. Null means that no stream is named.
using Stream = void*;

/// Returns the stream with that handle. Both 0 and 1 are handles of the default stream, which is
/// never null here.
Stream stream_with(std::uintptr_t handle) noexcept;

/// Returns the stream that a program names by `stream=`: an integer, or an object with
/// __cuda_stream__(), ptr or cuda_stream. None names no stream. Throws `usage` for anything else.
Stream stream_of(nb::handle named);
/// Returns the stream whose handle is the integer `handle`; None names no stream. Throws `usage`
/// for what is no handle.
Stream stream_of_handle(nb::handle handle);

class Array;

/// Returns the stream that orders a call on these arrays, or null if none needs to: `named`, which
/// waits for what is now on the arrays' own streams, or else the stream that is the arrays' own.
/// Throws `usage` if none is named and the arrays have several.
Stream stream_for(Stream named, std::initializer_list<const Array*> arrays);

}  // namespace tutti::python
