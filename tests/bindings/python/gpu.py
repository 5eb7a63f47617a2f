"""Arrays on a GPU, made with the CUDA driver alone: what CuPy and Numba are to a program, these are to the tests.

The environment's TUTTI_TEST_CUDA names the driver, which is a stand-in.
"""

import ctypes
import os
import threading

import numpy

DEFAULT_STREAM = 1
CUDA, CUDA_HOST, CUDA_MANAGED = 2, 3, 13  # DLPack's types of devices
_DLPACK_CODES = {"i": 0, "u": 1, "f": 2, "c": 5, "b": 6}

_driver = ctypes.CDLL(os.environ["TUTTI_TEST_CUDA"])
_here = threading.local()


def _find(name):
    function = ctypes.c_void_p()
    if _driver.cuGetProcAddress_v2(name.encode(), ctypes.byref(function), 12000, ctypes.c_uint64(0), None) != 0:
        raise RuntimeError(f"the driver has no {name}")
    return ctypes.CFUNCTYPE(ctypes.c_int)(function.value)


def call(name, *arguments):
    """Calls a function of the driver, for which the context of GPU 0 is the thread's current one. Integers are 64 bits long."""
    if not hasattr(_here, "context"):
        context = ctypes.c_void_p()
        for each in (("cuInit", 0), ("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0), ("cuCtxPushCurrent", context)):
            assert _find(each[0])(*each[1:]) == 0, each
        _here.context = context
    result = _find(name)(*(ctypes.c_uint64(each) if isinstance(each, int) else each for each in arguments))
    assert result == 0, f"{name} returns {result}"


class Pinned:
    """Host memory that streams read and write in their order."""

    def __init__(self, numbers):
        memory = ctypes.c_void_p()
        call("cuMemHostAlloc", ctypes.byref(memory), max(numbers.nbytes, 8), 0)
        self.pointer = memory.value
        self.numbers = numpy.frombuffer((ctypes.c_byte * numbers.nbytes).from_address(self.pointer), numbers.dtype)
        self.numbers[...] = numbers.ravel()

    def __del__(self):
        call("cuMemFreeHost", ctypes.c_void_p(self.pointer))


class Gate:
    """Holds up a stream from close() to open()."""

    def __init__(self, stream):
        self.stream, self._word = stream, Pinned(numpy.zeros(1, numpy.uint32))

    def close(self):
        self._word.numbers[0] = 0
        call("cuStreamWaitValue32", self.stream, self._word.pointer, 1, 0)

    def open(self):
        self._word.numbers[0] = 1


class Stream:
    def __init__(self):
        handle = ctypes.c_void_p()
        call("cuStreamCreate", ctypes.byref(handle), 1)
        self.ptr = handle.value
        self._kept = []
        gate = Gate(self.ptr)
        self.close, self.open = gate.close, gate.open

    def __del__(self):
        self.open()
        self.synchronize()
        call("cuStreamDestroy", self.ptr)

    def copy(self, to, source, bytes):
        call("cuMemcpyAsync", to, source, bytes, self.ptr)

    def fill(self, array, value):
        """Has the stream fill the array when it comes to that."""
        source = Pinned(numpy.full(array.shape, value, array.dtype))
        self._kept.append(source)
        self.copy(array.pointer, source.pointer, array.nbytes)

    def read(self, array):
        """Returns memory into which the stream copies the array when it comes to that."""
        into = Pinned(numpy.zeros(array.shape, array.dtype))
        self._kept.append(into)
        self.copy(into.pointer, array.pointer, array.nbytes)
        return into.numbers

    def synchronize(self):
        call("cuStreamSynchronize", self.ptr)


def has_graphs():
    """Returns whether the driver has CUDA graphs."""
    return _driver.cuGetProcAddress_v2(b"cuGraphLaunch", ctypes.byref(ctypes.c_void_p()), 12000, ctypes.c_uint64(0), None) == 0


class Graph:
    """A CUDA graph of what a stream is given in a `with` block."""

    def __init__(self, stream):
        self._stream, self._graph, self._executable = stream, ctypes.c_void_p(), ctypes.c_void_p()

    def __enter__(self):
        call("cuStreamBeginCapture", self._stream.ptr, 1)  # in the mode of this thread

    def __exit__(self, *raised):
        call("cuStreamEndCapture", self._stream.ptr, ctypes.byref(self._graph))
        call("cuGraphInstantiateWithFlags", ctypes.byref(self._executable), self._graph, 0)

    def __del__(self):
        call("cuGraphExecDestroy", self._executable)
        call("cuGraphDestroy", self._graph)

    def launch(self):
        call("cuGraphLaunch", self._executable, self._stream.ptr)


class Array:
    """Memory of a GPU. Subclasses have the protocols by which libraries exchange arrays."""

    def __init__(self, numbers, stream=None):
        numbers = numpy.ascontiguousarray(numbers)
        self.shape, self.dtype, self.nbytes = numbers.shape, numbers.dtype, numbers.nbytes
        self.stream = stream
        address = ctypes.c_uint64()
        call("cuMemAlloc", ctypes.byref(address), max(self.nbytes, 1))
        self.pointer = address.value
        call("cuMemcpyAsync", self.pointer, numbers.ctypes.data, self.nbytes, DEFAULT_STREAM)
        call("cuStreamSynchronize", DEFAULT_STREAM)

    def __del__(self):
        call("cuMemFree", self.pointer)

    def numpy(self):
        numbers = numpy.empty(self.shape, self.dtype)
        call("cuMemcpyAsync", numbers.ctypes.data, self.pointer, self.nbytes, DEFAULT_STREAM)
        call("cuStreamSynchronize", DEFAULT_STREAM)
        return numbers


class CudaArray(Array):
    """Has the CUDA array interface. `changed` holds entries that differ from what the array is."""

    changed = {}

    @property
    def __cuda_array_interface__(self):
        entries = {"shape": self.shape, "typestr": self.dtype.str, "data": (self.pointer, False), "strides": None, "version": 3,
                   "stream": None if self.stream is None else self.stream.ptr}
        return entries | self.changed


class _Tensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
                ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
                ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)),
                ("byte_offset", ctypes.c_uint64)]


_Deleter = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)


class Managed(ctypes.Structure):
    """A DLManagedTensorVersioned."""

    _fields_ = [("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("context", ctypes.c_void_p),
                ("deleter", _Deleter), ("flags", ctypes.c_uint64), ("tensor", _Tensor)]


_python = ctypes.pythonapi
_python.PyCapsule_New.restype = ctypes.py_object
_python.PyCapsule_New.argtypes = [ctypes.c_void_p, ctypes.c_char_p, _Deleter]
_python.PyCapsule_IsValid.argtypes = [ctypes.c_void_p, ctypes.c_char_p]
_exported = {}  # the tensors that are under way, by their addresses
_TENSOR, _EXCHANGE = b"dltensor_versioned", b"dlpack_exchange_api"  # A capsule does not copy its name.


@_Deleter
def _release(address):
    _exported.pop(address)[0].released += 1


class Capsules:
    """Counts the tensors of an array that were exported, and those that were released again."""

    device_type, flags, strides, code, device_id = CUDA, 0, None, None, 0
    exported = released = 0

    def managed(self):
        """Returns a new tensor, which keeps this array until it is released."""
        self.exported += 1
        dimensions = ctypes.c_int64 * len(self.shape)
        shape, strides = dimensions(*self.shape), self.strides and dimensions(*self.strides)
        code = _DLPACK_CODES[self.dtype.kind] if self.code is None else self.code
        tensor = _Tensor(self.pointer, self.device_type, self.device_id, len(self.shape), code, 8 * self.dtype.itemsize, 1,
                         ctypes.cast(shape, ctypes.POINTER(ctypes.c_int64)),
                         ctypes.cast(strides, ctypes.POINTER(ctypes.c_int64)) if strides else None, 0)
        managed = Managed(1, 0, None, _release, self.flags, tensor)
        _exported[ctypes.addressof(managed)] = (self, managed, shape, strides)
        return managed


@_Deleter
def _end_of_capsule(capsule):
    if _python.PyCapsule_IsValid(capsule, _TENSOR):  # Nobody has taken the tensor over.
        _python.PyCapsule_GetPointer.restype = ctypes.c_void_p
        _release(_python.PyCapsule_GetPointer(ctypes.c_void_p(capsule), _TENSOR))


class DlpackArray(Capsules, Array):
    """Has DLPack's methods alone."""

    def __dlpack__(self, *, stream=None, max_version=None):
        assert max_version is not None and max_version[0] == 1, max_version
        self.asked_for = stream
        return _python.PyCapsule_New(ctypes.addressof(self.managed()), _TENSOR, _end_of_capsule)

    def __dlpack_device__(self):
        return (self.device_type, self.device_id)


class _Exchange(ctypes.Structure):
    """A DLPackExchangeAPI."""

    _from_object = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.POINTER(ctypes.c_void_p))
    _current_stream = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_int32, ctypes.c_int32, ctypes.POINTER(ctypes.c_void_p))
    _fields_ = [("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("previous", ctypes.c_void_p),
                ("allocator", ctypes.c_void_p), ("managed_from_object", _from_object), ("to_object", ctypes.c_void_p),
                ("tensor_from_object", ctypes.c_void_p), ("current_stream", _current_stream)]


def set_current(stream):
    """Makes it the stream by which this thread's ExchangedArrays are ordered, as torch.cuda.set_stream() does."""
    _here.current = stream


@_Exchange._from_object
def _managed_from_object(array, result):
    result[0] = ctypes.addressof(array.managed())
    return 0


@_Exchange._current_stream
def _current_stream(device_type, device_id, result):
    assert (device_type, device_id) == (CUDA, 0)
    result[0] = _here.current.ptr
    return 0


_exchange = _Exchange(1, 3, None, None, _managed_from_object, None, None, _current_stream)


class ExchangedArray(Capsules, Array):
    """Has DLPack's C functions, as PyTorch's tensors do."""

    __dlpack_c_exchange_api__ = _python.PyCapsule_New(ctypes.addressof(_exchange), _EXCHANGE, _Deleter())
