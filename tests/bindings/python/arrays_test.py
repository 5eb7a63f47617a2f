#!/usr/bin/env python3
"""Tests how long the Python package keeps the arrays of calls, and what it says of calls to come."""

import unittest
import weakref

import numpy
import report
from package_test import equal, run

import tutti


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


def explained(comm):
    text = comm.explain("all_reduce", 64, op="max")
    assert text.startswith("all_reduce(64 x f32, max) by algorithm "), text
    assert f"all_reduce, rank {comm.rank} of 2: " in text, text
    for wrong in (dict(operation="reduce_all"), dict(type="float"), dict(op="most")):
        try:
            comm.explain(**{"operation": "broadcast", "count": 1, **wrong})
        except tutti.UsageError as error:
            assert f'"{next(iter(wrong.values()))}"; there are ' in str(error), error
        else:
            raise AssertionError(wrong)


def priced(comm):
    prices = comm.prices("all_reduce", 1 << 20)
    times = [price.predicted_us for price in prices]
    assert times == sorted(times) and times[0] > 0, prices
    chosen = [price.algorithm for price in prices if price.chosen]
    assert len(chosen) == 1 and f'algorithm {chosen[0]}' in comm.explain("all_reduce", 1 << 20), prices
    assert repr(prices[0]).startswith(f'AlgorithmPrice("{prices[0].algorithm}", message_bytes='), prices[0]
    try:
        comm.prices("all_reduce", 1, root=5, type="int9")
    except tutti.UsageError as error:
        assert '"int9"; there are ' in str(error), error
    else:
        raise AssertionError(prices)


class Arrays(unittest.TestCase):
    def test_algorithms_of_a_call_have_prices(self):
        run(2, priced)

    def test_calls_are_explained_as_they_are_carried_out(self):
        run(2, explained)

    def test_those_of_calls_that_have_ended_are_let_go(self):
        run(2, arrays_of_ended_calls)


if __name__ == "__main__":
    report.main()
