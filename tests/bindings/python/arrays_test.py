#!/usr/bin/env python3
"""Tests how long the Python package keeps the arrays of calls."""

import unittest
import weakref

import numpy
import report
from package_test import equal, run


def arrays_of_ended_calls(comm):
    """They are let go, also behind a call that waits for long: each is dropped, waited for, or asked."""
    late = numpy.zeros(1)
    waiting = comm.recv_async(late, tag=1)
    gone, after_waiting = [], []
    for number in range(60):
        data = numpy.ones(10)
        gone.append(weakref.ref(data))
        work = comm.all_reduce_async(data)
        del data
        if number % 3 == 1:
            work.wait()
            after_waiting.append(gone[-1]())
        while number % 3 == 2 and not work.done():
            pass
    comm.barrier()
    left = sum(each() is not None for each in gone)
    comm.send(numpy.ones(1), (comm.rank + 1) % comm.size, tag=1)
    waiting.wait()
    equal(late, [1])
    assert left < 10, left
    assert after_waiting == [None] * 20, after_waiting


class Arrays(unittest.TestCase):
    def test_those_of_calls_that_have_ended_are_let_go(self):
        run(2, arrays_of_ended_calls)


if __name__ == "__main__":
    report.main()
