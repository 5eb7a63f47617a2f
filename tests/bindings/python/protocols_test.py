#!/usr/bin/env python3
"""Tests what the Python package makes of arrays and streams whose protocols say odd things, on a stand-in for the CUDA driver (gpu.py)."""

import ctypes
import gc
import sys
import threading
import unittest

import gpu
import numpy
import report
from gpu import CudaArray, DlpackArray, Stream

import tutti


class Odd(DlpackArray):
    """Has a tensor that differs from what the array is by `told`."""

    told = {}
    major = 1

    def managed(self):
        managed = super().managed()
        managed.major = self.major
        for name, value in self.told.items():
            setattr(managed.tensor, name, value)
        return managed


class OddShape(DlpackArray):
    def managed(self):
        managed = super().managed()
        for k, length in enumerate(self.lengths):
            managed.tensor.shape[k] = length
        return managed


def changed(**entries):
    data = CudaArray(numpy.zeros((2, 4)))
    data.changed = entries
    return data


def odd(kind=Odd, dtype="float64", **attributes):
    data = kind(numpy.zeros((2, 4), dtype))
    vars(data).update(attributes)
    return data


class Protocols(unittest.TestCase):
    def setUp(self):
        (self.comm,) = tutti.Communicator.in_process(1, timeout=60)

    def tearDown(self):
        self.comm.close()
        gc.collect()
        self.assertFalse(gpu._exported, "tensors of DLPack were not released")

    def refused(self, words, array, kind=tutti.UsageError, **options):
        with self.assertRaises(kind) as raised:
            self.comm.all_reduce(array, "max", **options)
        self.assertIn(words, str(raised.exception))

    def test_a_buffer_that_is_refused_is_let_go_of(self):
        memory = bytearray(16)
        self.refused("contiguous", memoryview(memory)[::2])
        gc.collect()
        memory.extend(b"grows, since nobody has its buffer")
        for array in (numpy.zeros((4, 4))[:, ::2], numpy.zeros(3, [("field", "i4")])):
            before = sys.getrefcount(array)
            for _ in range(10):
                with self.assertRaises(tutti.UsageError):
                    self.comm.all_reduce(array)
            self.assertEqual(sys.getrefcount(array), before)

    def test_elements_that_are_no_whole_bytes_are_refused(self):
        for code, bits in ((0, 4), (1, 4), (1, 7), (6, 1), (4, 12), (0, 0)):
            with self.subTest(code=code, bits=bits):
                self.refused("no type", odd(dtype="int8", told={"code": code, "bits": bits}))
        for lanes in (0, 2):
            self.refused("no type", odd(told={"lanes": lanes}))

    def test_what_dlpack_returns_is_a_capsule(self):
        class Returning(DlpackArray):
            def __dlpack__(self, **options):
                return self.returned

        for returned in (None, 7, numpy.zeros(3), odd()):
            array = odd(Returning, returned=returned)
            self.refused(f"{type(returned).__name__}, and is to return a capsule", array)

    def test_a_copy_is_not_written(self):
        self.refused("has made a copy", odd(flags=2))
        self.comm.all_reduce(odd(flags=2), output=odd())

    def test_another_version_of_dlpack_is_refused(self):
        for major in (0, 2):
            self.refused(f"version {major} of DLPack", odd(major=major, flags=1, told={"ndim": -1}))

    def test_lengths_that_no_memory_has_are_refused(self):
        for lengths in ((-1, 4), (-2, -4), (2**32, 2**32), (2**61 + 1, 8), (2**60, 1)):
            with self.subTest(lengths=lengths):
                self.refused("shape", changed(shape=lengths))
                self.refused("shape", odd(OddShape, lengths=lengths))

    def test_ctrl_c_is_no_answer_of_an_array(self):
        def raising(name, base, *arguments):
            """Returns an object whose method `name` raises an error; with a ! before the name, an attribute."""
            def fail(self, *arguments, **options):
                raise error

            return type("Raises", (base,), {name.strip("!"): property(fail) if name.startswith("!") else fail})(*arguments)

        class Entries(dict):
            def get(self, *arguments):
                raise error

        class Shape:
            def __iter__(self):
                raise error

        class Type(type):
            @property
            def __dlpack_c_exchange_api__(cls):
                raise error

        numbers = numpy.zeros((2, 4))
        for error in (KeyboardInterrupt("now"), SystemExit("now")):
            arrays = {name: raising(name, DlpackArray, numbers)
                      for name in ("!__cuda_array_interface__", "!__dlpack__", "__dlpack__", "!__dlpack_device__", "__dlpack_device__")}
            arrays["an entry"] = type("Raises", (), {"__cuda_array_interface__": Entries()})()
            arrays["a shape"] = changed(shape=Shape())
            arrays["a length"] = changed(shape=(raising("__index__", object),))
            arrays["a type"] = Type("Raises", (DlpackArray,), {})(numbers)
            for name, array in arrays.items():
                with self.subTest(error=type(error).__name__, array=name):
                    self.refused("now", array, kind=type(error))
            for name in ("!__cuda_stream__", "__cuda_stream__", "!ptr", "!cuda_stream", "__index__"):
                with self.subTest(error=type(error).__name__, stream=name):
                    self.refused("now", numbers, kind=type(error), stream=raising(name, object))

    def test_an_error_has_the_reason_that_an_array_gives(self):
        class Raises:
            @property
            def __cuda_array_interface__(self):
                raise RuntimeError("lent to \ud800")

        class RaisesBoth(Raises, DlpackArray):
            pass

        class RaisesStream:
            @property
            def ptr(self):
                raise RuntimeError("was destroyed")

        self.refused("__cuda_array_interface__ fails: lent to \\ud800", Raises())
        self.comm.all_reduce(RaisesBoth(numpy.zeros(3)))  # The array has DLPack as well.
        self.refused("ptr fails: was destroyed", numpy.zeros(3), stream=RaisesStream())

    def test_a_device_of_another_type_is_refused(self):
        class Device(DlpackArray):
            def __dlpack_device__(self):
                return self.device

        for device in (None, 2, (), ("gpu", 0), (2**40, 0), (None, None)):
            with self.subTest(device=device):
                self.refused("__dlpack_device__", odd(Device, device=device))

    def test_a_stream_is_named_by_an_integer(self):
        def named(name, value):
            return type("Named", (), {name: value})()

        data, stream = CudaArray(numpy.zeros(3)), Stream()
        for wrong in (10**5000, -(10**5000), 2**64, named("ptr", None), named("cuda_stream", None), named("__cuda_stream__", (0, None)),
                      numpy.float64(1), named("ptr", "1")):
            self.refused("stream", data, stream=wrong)
        self.refused("stream", changed(stream=10**5000))
        for taken in (numpy.int64(1), numpy.uint64(stream.ptr), named("ptr", numpy.int64(1))):
            self.comm.all_reduce(data, stream=taken)

    def test_default_streams_need_not_wait_for_each_other(self):
        data, failed = changed(stream=2), []

        def call():  # This thread has no context of CUDA, in which an event could be made.
            try:
                for stream in (1, 2):
                    self.comm.all_reduce(data, stream=stream)
            except tutti.Error as error:
                failed.append(error)

        thread = threading.Thread(target=call)
        thread.start()
        thread.join()
        self.assertEqual(failed, [])

    def test_functions_of_dlpack_that_fail(self):
        table = gpu._Exchange

        @table._from_object
        def nothing(array, result):
            result[0] = None
            return 0

        @table._from_object
        def failing(array, result):
            return -1

        @table._current_stream
        def without_reason(device_type, device_id, result):
            return -1

        make, current = gpu._managed_from_object, gpu._current_stream

        def array(made, told):
            functions = table(1, 3, None, None, made, None, None, told)
            capsule = gpu._python.PyCapsule_New(ctypes.addressof(functions), gpu._EXCHANGE, gpu._Deleter())
            kind = type("Exchanged", (DlpackArray,), {"__dlpack_c_exchange_api__": capsule, "functions": functions})
            return kind(numpy.zeros(3))

        for made, told in ((table._from_object(), current), (make, table._current_stream()), (nothing, current), (failing, current)):
            self.comm.all_reduce(data := array(made, told))
            self.assertEqual(data.asked_for, gpu.DEFAULT_STREAM)  # by __dlpack__()
        self.refused("does not tell its stream", array(make, without_reason))

    def test_read_only_is_a_truth_value(self):
        pointer = CudaArray(numpy.zeros((2, 4)))
        for flag in (0, numpy.bool_(False), None):
            self.comm.all_reduce(changed(data=(pointer.pointer, flag)))
        self.refused("read-only", changed(data=(pointer.pointer, 1)))

    def test_only_an_older_dlpack_is_asked_twice(self):
        class Failing(DlpackArray):
            calls = 0

            def __dlpack__(self, **options):
                self.calls += 1
                raise self.error("lent to another")

        for error, calls in ((TypeError, 2), (BufferError, 2), (RuntimeError, 1)):
            array = odd(Failing, error=error)
            self.refused("fails: lent to another", array)
            self.assertEqual(array.calls, calls)


if __name__ == "__main__":
    report.main()
