#!/usr/bin/env python3
"""Tests what the Python package makes of arrays and streams whose protocols say odd things, on a stand-in for the CUDA driver (gpu.py)."""

import gc
import sys
import unittest

import gpu
import numpy
import report

import tutti


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


if __name__ == "__main__":
    report.main()
