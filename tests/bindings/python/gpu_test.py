#!/usr/bin/env python3
"""Tests the Python package with arrays on GPUs, on a stand-in for the CUDA driver (gpu.py). Ranks are threads."""

import gc
import sys
import threading
import unittest
import weakref

import gpu
import numpy
import report
import scripts
from gpu import CudaArray, DlpackArray, ExchangedArray, Stream
from package_test import TYPES, equal, run

import tutti


def all_operations(comm, make):
    """Makes every call on arrays of a GPU, blocking ones on a stream of its own, and checks the results."""
    rank, size = comm.rank, comm.size
    stream = Stream()
    gpu.set_current(stream)

    def on_gpu(numbers, dtype=None):
        return make(numpy.asarray(numbers, dtype))

    for dtype in [*TYPES, "bool"]:
        data = on_gpu(numpy.full((2, 3), rank + 1), dtype)
        comm.all_reduce(data, "logical_or" if dtype == "bool" else "sum", stream=stream)
        equal(data.numpy(), numpy.full((2, 3), size * (size + 1) // 2).astype(dtype))
    data, result = on_gpu(numpy.arange(4.0) + rank), on_gpu(numpy.empty(4))
    comm.all_reduce(data, "premul_sum", result, premultiplier=numpy.array([2.0]), stream=stream)
    equal(result.numpy(), 2 * (size * numpy.arange(4.0) + sum(range(size))))
    comm.reduce(data, size - 1, output=result if rank == size - 1 else None, stream=stream)
    if rank == size - 1:
        equal(result.numpy(), size * numpy.arange(4.0) + sum(range(size)))
    comm.broadcast(data, 0, stream=stream)
    equal(data.numpy(), numpy.arange(4.0))
    whole = on_gpu(numpy.empty((size, 2)), "int32")
    comm.all_gather(on_gpu([rank, rank], "int32"), whole, stream=stream)
    equal(whole.numpy(), numpy.repeat(numpy.arange(size), 2).reshape(size, 2))
    counts = list(range(1, size + 1))
    uneven = on_gpu(numpy.empty(sum(counts)))
    comm.all_gather(on_gpu(numpy.full(rank + 1, float(rank))), uneven, counts, stream=stream)
    equal(uneven.numpy(), numpy.repeat(numpy.arange(float(size)), counts))
    mine = on_gpu([0, 0], "int32")
    comm.reduce_scatter(whole, mine, stream=stream)
    equal(mine.numpy(), [rank * size] * 2)
    gathered = on_gpu(numpy.empty(size), int) if rank == 0 else None
    comm.gather(on_gpu([rank]), gathered, stream=stream)
    if rank == 0:
        equal(gathered.numpy(), numpy.arange(size))
    one = on_gpu([0])
    comm.scatter(on_gpu(numpy.arange(size) * 2) if rank == 0 else None, one, stream=stream)
    equal(one.numpy(), [rank * 2])
    exchanged = on_gpu(numpy.zeros(size), int)
    comm.all_to_all(on_gpu(numpy.arange(size) + 10 * rank), exchanged, stream=stream)
    equal(exchanged.numpy(), 10 * numpy.arange(size) + rank)
    comm.barrier(stream=stream)
    stream.close()  # The send takes its place on the stream, and a blocking one would wait for that.
    sent = comm.send_async(on_gpu([rank, 5]), (rank + 1) % size, 7, stream=stream)
    stream.open()
    got = on_gpu([0, 0, 0])
    assert comm.recv(got, stream=stream) == ((rank - 1) % size, 7, 2)
    equal(got.numpy()[:2], [(rank - 1) % size, 5])
    sent.wait()


class OnGpus(unittest.TestCase):
    def refused(self, words, call, *arguments, kind=tutti.UsageError, **options):
        with self.assertRaises(kind) as raised:
            call(*arguments, **options)
        self.assertIn(words, str(raised.exception))

    def test_every_operation_by_every_protocol(self):
        for make in (CudaArray, DlpackArray, ExchangedArray):
            for size in (2, 3):
                with self.subTest(protocol=make.__name__, ranks=size):
                    run(size, lambda comm: all_operations(comm, make))
        self.assertFalse(gpu._exported, "tensors of DLPack were not released")

    def test_groups_and_persistent_calls(self):
        def body(comm):
            rank, size, stream = comm.rank, comm.size, Stream()
            total, sent, got = CudaArray([rank + 1]), CudaArray([rank]), CudaArray([0, 0])
            with tutti.Group() as group:
                comm.all_reduce(total, group=group, stream=stream)
                comm.send(sent, (rank + 1) % size, 3, group=group, stream=stream)
                comm.recv(got, (rank - 1) % size, group=group, stream=stream)
            equal(total.numpy(), [sum(range(1, size + 1))])
            equal(got.numpy()[:1], [(rank - 1) % size])
            data = CudaArray(numpy.ones(1000))
            call = comm.all_reduce_init(data, stream=stream)
            send = comm.send_init(data, (rank + 1) % size, stream=stream)
            receive = comm.recv_init(last := CudaArray(numpy.zeros(1000)), (rank - 1) % size, stream=stream)
            call.run()
            call.start().wait()
            with tutti.Group() as group:
                for each in (call, send, receive):
                    each.add_to(group)
            self.assertEqual(receive.received, ((rank - 1) % size, 0, 1000))
            equal(data.numpy(), numpy.full(1000, float(size**3)))
            equal(last.numpy(), numpy.full(1000, float(size**2)))  # A group's sends read before it writes.

        for size in (2, 3):
            run(size, body)

    def sums_in_order(self, comm, on, data, **options):
        """A sum of two ranks runs behind what is on the stream `on`, and what comes behind it reads the result."""
        on.close()
        on.fill(data, 3.0)
        work = comm.all_reduce_async(data, **options)
        after = on.read(data)
        self.assertFalse(work.done())
        on.open()
        on.synchronize()
        equal(after, numpy.full(1000, 6.0))
        work.wait()

    def test_a_call_has_its_place_on_the_stream_that_is_named(self):
        class WithProtocol:
            def __init__(self, stream):
                self.handle = stream.ptr

            def __cuda_stream__(self):
                return (0, self.handle)

        def named(name):
            return lambda stream: type("Named", (), {name: stream.ptr})()

        def body(comm):
            for name in (WithProtocol, named("ptr"), named("cuda_stream"), lambda stream: stream.ptr):
                stream, data = Stream(), DlpackArray(numpy.zeros(1000))
                self.sums_in_order(comm, stream, data, stream=name(stream))
                self.assertEqual(data.asked_for, stream.ptr)

        run(2, body)

    def test_an_arrays_own_stream_orders_a_call_that_names_none(self):
        def body(comm):
            stream = Stream()
            gpu.set_current(stream)
            for make in (lambda: CudaArray(numpy.zeros(1000), stream), lambda: ExchangedArray(numpy.zeros(1000))):
                self.sums_in_order(comm, stream, make())

        run(2, body)

    def test_a_stream_that_is_named_waits_for_an_arrays_own(self):
        def body(comm):
            own, named = Stream(), Stream()
            gpu.set_current(own)
            for make in (lambda: CudaArray(numpy.zeros(1000), own), lambda: ExchangedArray(numpy.zeros(1000))):
                data = make()
                own.close()
                own.fill(data, 3.0)
                work = comm.all_reduce_async(data, stream=named)
                after = named.read(data)
                with self.assertRaises(TimeoutError):
                    work.wait(0.05)
                own.open()
                named.synchronize()
                equal(after, numpy.full(1000, 6.0))
                work.wait()

        run(2, body)

    def test_the_default_stream_orders_arrays_that_name_none(self):
        def body(comm):
            for make in (CudaArray, DlpackArray):
                data = make(numpy.ones(10))
                comm.all_reduce(data)
                equal(data.numpy(), numpy.full(10, 1.0))
            self.assertEqual(data.asked_for, gpu.DEFAULT_STREAM)

        run(1, body)  # Ranks that are threads have the default stream in common.

    def test_two_streams_of_arrays_need_one_that_is_named(self):
        def body(comm):
            data, result = CudaArray(numpy.ones(3), Stream()), CudaArray(numpy.zeros(3), Stream())
            self.refused("ordered by two CUDA streams", comm.all_reduce, data, output=result)
            comm.all_reduce(data, output=result, stream=data.stream)
            equal(result.numpy(), [2.0] * 3)

        run(2, body)

    def test_the_interpreter_goes_on_while_a_call_waits_for_its_stream(self):
        def body(comm):
            stream, data, called = Stream(), CudaArray(numpy.ones(3)), threading.Event()
            stream.close()
            opener = threading.Thread(target=lambda: called.wait() and stream.open())
            opener.start()
            called.set()  # The opener gets the interpreter's lock once the call gives it up.
            comm.all_reduce(data, stream=stream)
            opener.join()
            equal(data.numpy(), [2.0] * 3)

        interval = sys.getswitchinterval()
        sys.setswitchinterval(1000)
        try:
            run(2, body)
        finally:
            sys.setswitchinterval(interval)

    def test_arrays_are_kept_until_their_call_is_done(self):
        def body(comm):
            stream = Stream()
            for make in (CudaArray, DlpackArray):
                data = make(numpy.ones(1000))
                gone = weakref.ref(data)
                stream.close()
                work = comm.all_reduce_async(data, stream=stream)
                after = stream.read(data)
                del data
                gc.collect()
                self.assertIsNotNone(gone())
                stream.open()
                stream.synchronize()
                work.wait()
                equal(after, numpy.full(1000, 2.0))
                del work
                comm.barrier_async().wait()  # releases what finished calls have used
                gc.collect()
                self.assertIsNone(gone())

        run(2, body)
        self.assertFalse(gpu._exported)

    def test_memory_of_every_kind(self):
        def body(comm):
            pinned = DlpackArray(numpy.zeros(4))
            memory = gpu.Pinned(numpy.full(4, 2.0))
            device, pinned.pointer, pinned.device_type = pinned.pointer, memory.pointer, gpu.CUDA_HOST
            comm.all_reduce(pinned)
            self.assertIsNone(pinned.asked_for)
            equal(memory.numbers, numpy.full(4, 4.0))
            pinned.pointer, pinned.device_type = device, gpu.CUDA_MANAGED
            comm.all_reduce(pinned, stream=(stream := Stream()))
            self.assertEqual(pinned.asked_for, stream.ptr)
            data = CudaArray(numpy.ones(4))  # An input on a GPU, and an output of the host.
            comm.all_reduce(data, output=memory.numbers, stream=stream)
            equal(memory.numbers, numpy.full(4, 2.0))
            brain = DlpackArray(numpy.full(4, 0x3F80, numpy.uint16))  # 1.0 in bf16
            brain.code = 4
            comm.all_reduce(brain, stream=stream)
            equal(brain.numpy(), numpy.full(4, 0x4000))
            comm.all_reduce(CudaArray(numpy.zeros((0, 3))), stream=stream)

        run(2, body)

    def test_a_wrong_array_or_stream_is_a_usage_error_and_harms_nothing(self):
        def changed(**entries):
            data = CudaArray(numpy.zeros((2, 4)))
            data.changed = entries
            return data

        def tensor(**entries):
            data = DlpackArray(numpy.zeros((2, 4)))
            vars(data).update(entries)
            return data

        def body(comm):
            data, read_only = CudaArray(numpy.zeros((2, 4))), {"data": (data_pointer.pointer, True)}
            for array, words in (
                    (changed(strides=(64, 8)), "contiguous"), (tensor(strides=(8, 1)), "contiguous"),
                    (changed(**read_only), "read-only"), (tensor(flags=1), "read-only"),
                    (changed(typestr=">f8"), 'format ">f8"'), (tensor(code=3), "no type"), (changed(mask=data), "mask"),
                    (changed(shape=7), "not what that interface says"), (changed(data=(None, False)), "entry has another type"),
                    (tensor(device_type=10), "number 10"), (changed(stream="default"), "no handle of a CUDA stream")):
                self.refused(words, comm.all_reduce, array)
            self.refused("4 elements where 8", comm.all_reduce, data, output=CudaArray(numpy.zeros(4)))
            self.refused("f64, and the output's f32", comm.all_reduce, data, output=CudaArray(numpy.zeros(4, "float32")))
            self.refused("read by the host", comm.all_reduce, data, "premul_sum", premultiplier=CudaArray([2.0]))
            for stream in (-3, True, 1.5, "default", type("Odd", (), {"__cuda_stream__": lambda self: 7})()):
                self.refused("stream", comm.all_reduce, data, stream=stream)
            comm.broadcast(changed(**read_only) if comm.rank == 0 else data, 0, stream=Stream())

            class Failing(DlpackArray):
                def __dlpack__(self, **options):
                    raise BufferError("lent to another")

            self.refused("fails: lent to another", comm.all_reduce, Failing([1]))

        data_pointer = CudaArray(numpy.zeros((2, 4)))
        run(2, body)
        gc.collect()
        self.assertFalse(gpu._exported, "tensors of DLPack were not released")

    @unittest.skipUnless(gpu.has_graphs(), "this stand-in for the driver has no CUDA graphs")
    def test_calls_on_a_stream_that_is_captured_are_made_at_each_launch(self):
        def body(comm):
            stream, other = Stream(), 1 - comm.rank
            data, got = CudaArray(numpy.zeros(1000, "int32"), stream), CudaArray(numpy.zeros(1000, "int32"), stream)
            numbers = gpu.Pinned(numpy.zeros(1000, "int32"))
            call = comm.all_reduce_init(data, stream=stream)
            graph = gpu.Graph(stream)
            with graph:
                stream.copy(data.pointer, numbers.pointer, data.nbytes)
                comm.all_reduce(data, stream=stream)
                self.assertTrue(comm.all_reduce_async(data).done())
                self.assertTrue(call.start().done())
                with tutti.Group() as group:
                    comm.send(data, other, group=group, stream=stream)
                    comm.recv(got, other, group=group, stream=stream)
            for launch in range(20):
                numbers.numbers[:] = launch + comm.rank
                graph.launch()
                stream.synchronize()
                equal(got.numpy(), numpy.full(1000, 4 * (2 * launch + 1), "int32"))

        run(2, body)

    def test_without_a_driver_an_array_of_a_gpu_is_refused(self):
        ended = scripts.run(
            "class Array:\n    __cuda_array_interface__ = {'shape': (3,), 'typestr': '<f4', 'data': (4096, False), 'version': 3}\n"
            "comm = tutti.Communicator.from_env(timeout=60, device='none')\n"
            "try: comm.all_reduce(Array())\n"
            "except tutti.UnavailableError as error: print(error)\n", "-n", "1")
        self.assertIn("has not loaded the CUDA driver", ended.stdout, ended)


if __name__ == "__main__":
    report.main()
