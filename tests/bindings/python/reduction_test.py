#!/usr/bin/env python3
"""Tests reductions that a program defines in Python."""

import ctypes
import gc
import unittest
import weakref

import numpy
import report
from rank_threads import run

import tutti


def larger(left, right):
    """right = whichever is larger, by absolute values."""
    out = numpy.asarray(right)
    numpy.copyto(out, left, where=numpy.abs(left) > numpy.abs(out))


def append(left, right):
    """Elements are strings of up to 16 bytes: right = left + right. It is associative, and not commutative."""
    for at in range(0, len(right), 16):
        text = bytes(left[at : at + 16]).rstrip(b"\0") + bytes(right[at : at + 16]).rstrip(b"\0")
        right[at : at + 16] = text.ljust(16, b"\0")[:16]


class Reductions(unittest.TestCase):
    def test_every_operation_and_form(self):
        largest = tutti.Reduction("largest", larger, "f64")
        self.assertEqual((repr(largest), largest.element_bytes), ("<Reduction 'largest'>", 8))

        def body(comm):
            values = numpy.arange(30_000.0) * (-1) ** comm.rank * (comm.rank + 1)
            wanted = numpy.arange(30_000.0) * 3
            out = numpy.empty_like(values)
            comm.all_reduce(values, largest, out)
            numpy.testing.assert_array_equal(out, wanted)
            comm.all_reduce_async(values, op=largest, output=out, algorithm="ring").wait(20)
            numpy.testing.assert_array_equal(out, wanted)
            out[:] = 0
            call = comm.all_reduce_init(values, largest, out)
            gc.collect()
            for _ in range(2):
                call.run()
            numpy.testing.assert_array_equal(out, wanted)
            comm.reduce(values, 1, largest, out if comm.rank == 1 else None)
            part = numpy.empty(10_000)
            comm.reduce_scatter(values, part, largest)
            numpy.testing.assert_array_equal(part, wanted[comm.rank * 10_000 :][:10_000])
            counts = [5_000, 10_000, 15_000]
            part = numpy.empty(counts[comm.rank])
            comm.reduce_scatter(values, part, largest, counts)
            numpy.testing.assert_array_equal(part, wanted[sum(counts[: comm.rank]) :][: counts[comm.rank]])
            with tutti.Group() as group:
                comm.all_reduce(values, tutti.Reduction("largest", larger, "f64"), group=group)
            numpy.testing.assert_array_equal(values, wanted)

        run(3, body)

    def test_elements_of_bytes_in_the_order_of_ranks(self):
        def body(comm):
            words = numpy.frombuffer(b"".join(f"{comm.rank}.{k} ".encode().ljust(16, b"\0") for k in range(3)), numpy.uint8).copy()
            comm.all_reduce(words, tutti.Reduction("append", append, 16), algorithm="one_shot")
            self.assertEqual(words.tobytes().split(b"\0")[0], b"0.0 1.0 2.0 ")
            with self.assertRaisesRegex(tutti.UsageError, "20 bytes are no whole number of the reduction's elements of 16"):
                comm.all_reduce(numpy.zeros(20, numpy.uint8), tutti.Reduction("append", append, 16))
            comm.barrier()

        run(3, body)

    def test_elements_of_types_that_memoryviews_do_not_have(self):
        def add(left, right):
            out = numpy.frombuffer(right, numpy.float16)
            out += numpy.frombuffer(left, numpy.float16)

        def body(comm):
            values = numpy.full(5_000, comm.rank + 1, numpy.float16)
            comm.all_reduce(values, tutti.Reduction("add", add, "f16"))
            numpy.testing.assert_array_equal(values, 3)

        run(2, body)

    def test_structured_arrays_and_other_types_are_given_as_bytes_which_their_errors_say(self):
        pair = numpy.dtype([("key", "i8"), ("value", "f8")])

        def least(left, right):
            out = numpy.frombuffer(right, pair)
            numpy.copyto(out, numpy.frombuffer(left, pair), where=numpy.frombuffer(left, pair)["value"] < out["value"])

        def body(comm):
            reduction = tutti.Reduction("least", least, pair.itemsize)
            values = numpy.array([(comm.rank, 2.0 - comm.rank), (comm.rank, comm.rank)], pair)
            for other in (values, numpy.zeros(2, "datetime64[s]"), numpy.zeros(2, numpy.longdouble)):
                with self.assertRaisesRegex(tutti.UsageError, r"bytes.*as array\.view\(numpy\.uint8\)"):
                    comm.all_reduce(other, reduction)
            comm.all_reduce(values.view(numpy.uint8), reduction)
            self.assertEqual(values.tolist(), [(1, 1.0), (0, 0.0)])

        run(2, body)

    def test_the_address_of_a_function_of_c(self):
        signature = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p)

        @signature
        def product(left, right, count, context):
            left, right = (ctypes.cast(each, ctypes.POINTER(ctypes.c_int32)) for each in (left, right))
            for k in range(count):
                right[k] *= left[k]

        def body(comm):
            values = numpy.arange(2_000, dtype=numpy.int32) % 7
            comm.all_reduce(values, tutti.Reduction("product", ctypes.cast(product, ctypes.c_void_p).value, "int32"))
            numpy.testing.assert_array_equal(values, (numpy.arange(2_000) % 7) ** 2)

        run(2, body)

    def test_what_a_function_raises_is_an_error_on_every_rank(self):
        def divides(left, right):
            return 1 // 0

        def body(comm):
            with self.assertRaisesRegex(tutti.UsageError, "ZeroDivisionError: "):
                comm.all_reduce(numpy.ones(10), tutti.Reduction("divides", divides, "f64"), algorithm="one_shot")

        run(2, body)

    def test_a_function_may_keep_what_it_is_given(self):
        kept = []

        def keeps(left, right):
            kept.append((numpy.asarray(left), numpy.asarray(right)))
            kept[-1][1][:] += kept[-1][0]

        def body(comm):
            for turn in range(20):
                values = numpy.full(1_000, turn + comm.rank, numpy.int64)
                comm.all_reduce(values, tutti.Reduction("keeps", keeps, "int64"))
                numpy.testing.assert_array_equal(values, 2 * turn + 1)

        run(2, body)
        for left, right in kept:
            self.assertEqual(abs(int(right[0]) - 2 * int(left[0])), 1, "they stay as they were")

    def test_a_function_that_calls_tutti_is_refused(self):
        def body(comm):
            def calls(left, right):
                comm.barrier()

            with self.assertRaisesRegex(tutti.UsageError, "must not call tutti"):
                comm.all_reduce_async(numpy.ones(3), tutti.Reduction("calls", calls, "f64"), algorithm="one_shot").wait(20)

        run(2, body)

    def test_ranks_compare_names_and_sizes(self):
        def body(comm):
            with self.assertRaisesRegex(tutti.MismatchError, "reduction 'rank0'|reduction 'rank1'"):
                comm.all_reduce(numpy.ones(10), tutti.Reduction(f"rank{comm.rank}", larger, "f64"))
                comm.barrier()

        run(2, body)

    def test_wrong_arguments(self):
        for wrong, text in ((("f", "f64"), "neither a function nor the address"), ((0, "f64"), "neither"),
                            ((True, "f64"), "neither"), ((larger, "f65"), "no such data type"), ((larger, 0), "1 to 4096 bytes"),
                            ((larger, 5000), "1 to 4096 bytes"), ((larger, larger), "1 to 4096 bytes"),
                            ((larger, True), "1 to 4096 bytes")):
            with self.assertRaisesRegex(tutti.UsageError, text):
                tutti.Reduction("wrong", *wrong)
        with tutti.Communicator.in_process(1)[0] as comm:
            with self.assertRaisesRegex(tutti.UsageError, "only premul_sum multiplies"):
                comm.all_reduce(numpy.ones(1), tutti.Reduction("largest", larger, "f64"), premultiplier=numpy.ones(1))
            for op in ("sum", "max"):
                with self.assertRaisesRegex(tutti.UsageError, "only premul_sum multiplies"):
                    comm.all_reduce(numpy.ones(1), op, premultiplier=numpy.ones(1))
            with self.assertRaisesRegex(tutti.UsageError, "must be step, f32 or reproducible, and not \"Reproducible\""):
                comm.all_reduce(numpy.ones(1), accumulate="Reproducible")
            for wrong in (5, "largest", larger):
                with self.assertRaises(tutti.UsageError):
                    comm.all_reduce(numpy.ones(1), wrong)

    def test_a_reduction_is_kept_until_its_call_is_done(self):
        def body(comm):
            function = lambda left, right: larger(left, right)  # noqa: E731: an object of this call
            reduction = tutti.Reduction("largest", function, "f64")
            kept = weakref.ref(function)
            work = comm.all_reduce_async(numpy.ones(10), reduction)
            del function, reduction
            work.wait(20)
            comm.all_reduce_async(numpy.ones(10)).wait(20)
            gc.collect()
            return kept

        run(2, body)


if __name__ == "__main__":
    report.main()
