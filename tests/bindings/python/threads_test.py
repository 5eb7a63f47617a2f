#!/usr/bin/env python3
"""Tests communicators of the Python package in several threads of a rank."""

import contextlib
import sys
import threading
import time
import unittest
import weakref

import numpy
import report
from package_test import run

import tutti


class Threads(unittest.TestCase):
    def test_a_wait_that_looks_for_signals_just_before_the_call_ends_is_no_timeout(self):
        # One of the waiting threads runs the callback, which keeps the interpreter's lock for longer than the others
        # wait between two looks for signals, so that they go on when the call has just ended.
        def keep_the_lock():
            before = sys.getswitchinterval()
            sys.setswitchinterval(1000)
            until = time.monotonic() + 0.3
            while time.monotonic() < until:
                pass
            sys.setswitchinterval(before)

        def body(comm):
            if comm.rank == 1:
                time.sleep(0.05)
                return comm.send(numpy.ones(1), 0)
            work, outcomes = comm.recv_async(numpy.ones(1), 1), []
            work._then(keep_the_lock)

            def wait():
                try:
                    outcomes.append(work.wait())
                except Exception as error:
                    outcomes.append(error)

            threads = [threading.Thread(target=wait) for _ in range(8)]
            for each in threads:
                each.start()
            for each in threads:
                each.join()
            self.assertEqual(outcomes, [None] * 8)

        run(2, body)

    def test_a_communicator_in_whose_call_another_thread_is_cannot_be_closed(self):
        refused = threading.Event()

        def body(comm):
            if comm.rank == 1:
                refused.wait()
                return comm.barrier()
            barrier = comm.barrier_init()

            def call():
                while True:
                    with contextlib.suppress(tutti.UsageError):  # the main thread is in a call
                        return barrier.run()

            other = threading.Thread(target=call)
            other.start()
            with self.assertRaisesRegex(tutti.UsageError, "another thread is in a call"):
                while True:
                    tutti.Buffer(comm, 1)
            try:
                with self.assertRaisesRegex(tutti.UsageError, "a thread is in a call"):
                    comm.close()
            finally:
                refused.set()
                other.join()
            comm.close()
            with self.assertRaisesRegex(tutti.UsageError, "has been closed"):
                barrier.run()

        run(2, body)

    def test_a_second_close_leaves_the_arrays_to_the_first_which_waits_for_their_calls(self):
        class Array(numpy.ndarray):
            pass

        first, second = tutti.Communicator.in_process(2, timeout=60)
        data = numpy.zeros(1 << 20, dtype=numpy.uint8).view(Array)
        there = weakref.ref(data)
        first.recv_async(data, peer=1, tag=1)
        first.recv_async(numpy.zeros(1), peer=1, tag=2)._then(first.close)
        del data
        closing = threading.Thread(target=first.close)
        closing.start()
        while True:  # until the first is closing
            try:
                first.memory_bytes()
            except tutti.UsageError:
                break
        first.close()
        self.assertIsNotNone(there())
        second.send(numpy.zeros(1), 0, tag=2)
        second.send(numpy.ones(1 << 20, dtype=numpy.uint8), 0, tag=1)
        closing.join()
        second.close()
        self.assertIsNone(there())


if __name__ == "__main__":
    report.main()
