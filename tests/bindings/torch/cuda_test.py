#!/usr/bin/env python3
"""Tests tutti.torch with tensors on GPUs, with PyTorch's build for CUDA on stand-ins for the driver and the runtime.

No kernel of PyTorch runs there: tensors on the GPU are made and read by copies. `./dev test-cuda --torch` runs it.
"""

import datetime
import itertools
import operator
import os
import pathlib
import resource
import signal
import time
import unittest

import gpu
import graph_calls
import host_kernels
import host_model
import ranks
import report
import torch
import torch.distributed as dist
from gpu_calls import blocks, coalesced, messages, numbers, reductions
from host_model import expect

import tutti.torch  # registers the backend

run = ranks.run
SIZES = (2, 3)


def gate():
    return gpu.Gate(torch.cuda.current_stream().cuda_stream)


def use_stream():
    """Ranks work on a stream of their own, as the default stream is one for a process."""
    torch.cuda.set_stream(torch.cuda.Stream())


def unchanged():
    """Only the root's tensor changes in a reduce."""
    rank, size = dist.get_rank(), dist.get_world_size()
    data = numbers(rank + 1)
    dist.reduce(data, size - 1)
    expect(data, [size * (size + 1) // 2 if rank == size - 1 else rank + 1])


def lists():
    """The tensors of a list may be parts of one tensor, with or without room between them."""
    rank, size = dist.get_rank(), dist.get_world_size()
    spaced = torch.empty(4 * size, device="cuda").split(4)
    for each in (list(torch.empty(2 * size, device="cuda").chunk(size)), [whole[:2] for whole in spaced]):
        dist.all_gather(each, numbers(rank, rank + 0.5))
        for r, part in enumerate(each):
            expect(part, [r, r + 0.5])


def mixed():
    """Tensors of the host and of a GPU take turns in one group."""
    rank, size = dist.get_rank(), dist.get_world_size()
    for data in (numbers(rank + 1), torch.tensor([rank + 1]), numbers(rank + 1)):
        dist.all_reduce(data)
        expect(data, [size * (size + 1) // 2])
    told = [None] * size
    dist.all_gather_object(told, {"rank": rank})
    assert told == [{"rank": r} for r in range(size)], told


def single_messages():
    rank, size = dist.get_rank(), dist.get_world_size()
    after, before = (rank + 1) % size, (rank - 1) % size
    got = numbers(-1, -1)
    for order in ("send first", "receive first"):
        works = [dist.isend(numbers(rank, 7), after)] if order == "send first" else []
        works.append(dist.irecv(got, before))
        works += [dist.isend(numbers(rank, 7), after)] if order == "receive first" else []
        for each in works:
            each.wait()
        expect(got, [before, 7])
    if rank == 0:
        seen = sorted(dist.recv(got) for _ in range(size - 1))
        assert seen == list(range(1, size)), seen
    else:
        dist.send(numbers(rank, 9), 0)


def order():
    """A call that returns at once has its place on the current stream."""
    use_stream()
    size, stopped = dist.get_world_size(), gate()
    source = torch.full((1000,), 3.0).pin_memory()
    data, result = torch.zeros(1000).cuda(), torch.zeros(1000).pin_memory()
    for asynchronous in (False, True):
        stopped.close()
        data.copy_(source, non_blocking=True)
        work = dist.all_reduce(data, async_op=asynchronous)
        if asynchronous:
            assert not work.is_completed()
            work.wait()
        result.copy_(data, non_blocking=True)
        stopped.open()
        torch.cuda.current_stream().synchronize()
        expect(result, torch.full((1000,), 3.0 * size))
        data.copy_(torch.zeros(1000))


def overlap():
    """A call goes on while the current stream is held up, and a wait with a time-out blocks the host."""
    use_stream()
    size, stopped = dist.get_world_size(), gate()
    data = torch.ones(1000).cuda()
    work = dist.all_reduce(data, async_op=True)
    stopped.close()
    work.wait(datetime.timedelta(seconds=50))
    assert work.is_completed() and work.is_success()
    other = torch.cuda.Stream()
    with torch.cuda.stream(other):
        work.wait()
        expect(data, torch.full((1000,), float(size)))
    stopped.open()
    torch.cuda.synchronize()


def copy_by_elements(to, source, non_blocking=False):
    """Stands in for PyTorch's kernel that copies tensors of any strides: the current stream copies each element."""
    stream, bytes = torch.cuda.current_stream().cuda_stream, to.element_size()
    for index in itertools.product(*map(range, to.shape)):
        places = [each.data_ptr() + bytes * sum(map(operator.mul, index, each.stride())) for each in (to, source)]
        gpu.call("cuMemcpyAsync", *places, bytes, stream)
    if not non_blocking and not (to.is_cuda and source.is_cuda):
        gpu.call("cuStreamSynchronize", stream)
    return to


def strided():
    """Tensors that are not contiguous are copied in the order of the call's stream."""
    use_stream()
    library = torch.library.Library("aten", "IMPL")  # for this rank, which is a process
    library.impl("copy_", copy_by_elements, "CUDA")
    size, stopped = dist.get_world_size(), gate()
    whole, result = torch.zeros(3, 4).cuda(), torch.zeros(3, 4).pin_memory()
    values = torch.arange(12.0).reshape(3, 4).pin_memory()
    for asynchronous in (False, True):
        stopped.close()
        whole.copy_(values, non_blocking=True)
        work = dist.all_reduce(whole.t()[1:3], async_op=asynchronous)
        if asynchronous:
            work.wait()
        result.copy_(whole, non_blocking=True)
        stopped.open()
        torch.cuda.current_stream().synchronize()
        wanted = values.clone()
        wanted[:, 1:3] *= size
        expect(result, wanted)


def futures():
    use_stream()
    size, stopped = dist.get_world_size(), gate()
    data = torch.zeros(1000).cuda()
    stopped.close()
    data.copy_(torch.ones(1000).pin_memory(), non_blocking=True)
    future = dist.all_reduce(data, async_op=True).get_future()
    copied = future.then(lambda done: torch.empty(1000).pin_memory().copy_(done.value()[0], non_blocking=True))
    assert future.done()  # for the host
    stopped.open()
    future.wait()
    expect(data, torch.full((1000,), float(size)))
    copied.wait()
    torch.cuda.synchronize()
    expect(copied.value(), torch.full((1000,), float(size)))


def kept():
    """The memory of tensors that the program drops, and of copies, is used for nothing else until the call is done."""
    use_stream()
    size, stopped, bytes, before = dist.get_world_size(), gate(), 4 << 20, torch.cuda.memory_allocated()
    for make, pieces in ((lambda: torch.ones(bytes // 4).cuda(), 1),
                         (lambda: [torch.ones(bytes // 2).cuda()[: bytes // 4] for _ in range(size)], 3 * size)):
        data = make()
        stopped.close()
        if isinstance(data, list):
            dist.all_gather(data, data[dist.get_rank()], async_op=True)
        else:
            dist.all_reduce(data, async_op=True)
        del data
        held = torch.cuda.memory_allocated() - before
        assert held >= pieces * bytes, (held, pieces)
        stopped.open()
        torch.cuda.synchronize()


def far_apart():
    """What lies between the tensors of a list has no place in the host's memory."""
    size, count, gap = dist.get_world_size(), 3 << 20, 8 << 30  # Each of these has memory of its own.
    tensors, gaps = [], []
    for _ in range(size):
        tensors.append(torch.empty(count, device="cuda"))
        gaps.append(torch.empty(gap, dtype=torch.uint8, device="cuda"))
    places = sorted(each.data_ptr() for each in tensors)
    assert places[-1] - places[0] > gap, places
    mine = torch.full((count,), float(dist.get_rank())).cuda()
    pages = int(pathlib.Path("/proc/self/statm").read_text().split()[0])
    limit = pages * os.sysconf("SC_PAGE_SIZE") + gap // 2
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    dist.all_gather(tensors, mine)
    for rank, each in enumerate(tensors):
        expect(each, torch.full((count,), float(rank)))


def barriers():
    """A barrier waits for the current stream of the GPU that it names, or that the group has used."""
    use_stream()
    stopped = gate()
    for options in ({"device_ids": [0]}, {}):
        stopped.close()
        work = dist.barrier(async_op=True, **options)
        try:
            work.wait(datetime.timedelta(milliseconds=50))
        except dist.DistBackendError as error:
            assert "timeout" in str(error), error
        else:
            raise AssertionError("a barrier did not wait for the stream")
        stopped.open()
        work.wait()
        assert work.is_completed()


def wrong():
    data = numbers(1, 2)
    for call in (lambda: dist.all_gather([torch.empty(2)] * dist.get_world_size(), data),
                 lambda: dist.all_gather_into_tensor(torch.empty(2 * dist.get_world_size()), data)):
        try:
            call()
        except ValueError as error:
            assert "on one device, and these are on c" in str(error), error
        else:
            raise AssertionError("tensors on two devices were taken")
    dist.all_reduce(data)
    expect(data, [dist.get_world_size(), 2 * dist.get_world_size()])
    work = dist.all_reduce(torch.ones(3 + dist.get_rank()).cuda(), async_op=True)
    for attempt in (lambda: work.wait(datetime.timedelta(seconds=50)), lambda: dist.all_reduce(data)):
        try:
            attempt()
        except dist.DistBackendError as error:
            assert "mismatch" in str(error) and "f32" in str(error), error
        else:
            raise AssertionError("a mismatch has no error")
    torch.cuda.synchronize()  # The streams go on.


def kept_in_graphs():
    """The memory of a tensor that a captured call uses, and that the program drops, is no other tensor's in the graph."""
    rank, size = dist.get_rank(), dist.get_world_size()
    source, other, result, graph = numbers(0), numbers(7), numbers(0), torch.cuda.CUDAGraph()
    with graph_calls.captured(graph):
        first = source.clone()
        place = first.data_ptr()
        dist.all_reduce(first, async_op=True)
        del first
        second = other.clone()
        dist.all_reduce(second)
        result.copy_(second)
    assert second.data_ptr() != place
    graph_calls.each_replay([graph], lambda replay: graph_calls.give(other, rank + replay),
                            lambda replay: expect(result, [graph_calls.sum_over_ranks(lambda r: r + replay)]))


def asked_in_a_capture():
    """A work is asked about in a capture, of which it is a part or not, without a call of the driver that a capture forbids."""
    use_stream()
    size, stopped, graph = dist.get_world_size(), gate(), torch.cuda.CUDAGraph()
    before, data = torch.ones(1000).cuda(), numbers(1)
    torch.cuda.synchronize()
    stopped.close()
    earlier = dist.all_reduce(before, async_op=True)
    with torch.cuda.stream(torch.cuda.Stream()):
        graph.capture_begin()
        works = [dist.all_reduce(data, async_op=True), dist.barrier(async_op=True)]
        for each in works:
            assert each.is_completed() and each.is_success() and each.get_future().done()
            each.wait(datetime.timedelta(seconds=50))
        assert not earlier.is_completed()
        stopped.open()
        while not earlier.is_completed():
            time.sleep(0.001)
        graph.capture_end()
    for each in works:
        each.wait()  # A replay is none of its business.
    earlier.wait(datetime.timedelta(seconds=50))
    expect(before, torch.full((1000,), float(size)))
    graph.replay()
    expect(data, [size])


def barriers_in_graphs():
    """A barrier in a graph holds up the stream of a replay until all ranks replay it, and the host never."""
    graph, store = torch.cuda.CUDAGraph(), dist.distributed_c10d._get_default_store()
    dist.all_reduce(numbers(1))
    with graph_calls.captured(graph):
        dist.barrier()
    for replay in range(3):
        if dist.get_rank() == 0:
            graph.replay()
            assert not torch.cuda.current_stream().query()
            store.set(f"waits {replay}", "")
        else:
            store.wait([f"waits {replay}"])
            graph.replay()
        torch.cuda.synchronize()


def strided_in_graphs():
    """Copies that a call needs are parts of the graph."""
    library = torch.library.Library("aten", "IMPL")  # for this rank, which is a process
    library.impl("copy_", copy_by_elements, "CUDA")
    size, graph, whole = dist.get_world_size(), torch.cuda.CUDAGraph(), torch.zeros(3, 4).cuda()
    spaced = [each[:1] for each in torch.zeros(4 * size).cuda().split(4)]
    with graph_calls.captured(graph):
        dist.all_reduce(whole.t()[1:3])
        dist.all_gather(spaced, whole[0, :1])

    def check(replay):
        wanted = torch.arange(12.0).reshape(3, 4) + replay
        wanted[:, 1:3] *= size
        expect(whole, wanted)
        for each in spaced:
            expect(each, [replay])

    graph_calls.each_replay([graph], lambda replay: whole.copy_(torch.arange(12.0).reshape(3, 4) + replay), check)


def wrong_in_graphs():
    """A call that is refused leaves the capture as it was."""
    size, graph, data, other = dist.get_world_size(), torch.cuda.CUDAGraph(), numbers(1), numbers(1)
    group, device = dist.group.WORLD, torch.device("cuda", 0)

    def mixed_group():
        group._start_coalescing(device)
        group.allreduce([other])
        group.allreduce([torch.ones(1)])
        group._end_coalescing(device)

    with graph_calls.captured(graph):
        dist.all_reduce(data)
        for call, text in ((lambda: dist.recv(data), "name the rank"), (mixed_group, "some calls of a group are on streams")):
            try:
                call()
            except ValueError as error:
                assert text in str(error), error
            else:
                raise AssertionError(f"a call was captured that should be an error: {text}")
    graph.replay()
    expect(data, [size])


def left_alone():
    """A replay ends when a rank is killed, and the next call says which one."""
    data, graph = numbers(1), torch.cuda.CUDAGraph()
    with graph_calls.captured(graph):
        dist.all_reduce(data)
    dist.barrier()
    if dist.get_rank() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    graph.replay()
    torch.cuda.synchronize()
    try:
        dist.all_reduce(data)
    except dist.DistBackendError as error:
        return str(error)


def parallel():
    use_stream()
    host_model.train_in_parallel(0)


class OnGpus(unittest.TestCase):
    def test_the_gpu_is_a_stand_in(self):
        def body():
            assert torch.cuda.get_device_name().startswith("stand-in"), torch.cuda.get_device_name()

        run(1, body)

    def test_a_replay_ends_when_a_rank_is_killed(self):
        told = ranks.end(ranks.start(2, left_alone))[0]
        self.assertRegex(told, "rank 1")

    def test_data_parallel_in_a_graph(self):
        run(2, host_kernels.with_kernels(graph_calls.data_parallel))


for body in graph_calls.BODIES:
    def test(self, body=body):
        for size in SIZES:
            with self.subTest(ranks=size):
                run(size, body)

    setattr(OnGpus, "test_graph_of_" + body.__name__, test)

for body in (reductions, unchanged, coalesced, blocks, lists, mixed, messages, single_messages, order, overlap, strided, futures,
             kept, far_apart, barriers, wrong, kept_in_graphs, asked_in_a_capture, barriers_in_graphs, strided_in_graphs,
             wrong_in_graphs, parallel):
    def test(self, body=body):
        for size in SIZES:
            with self.subTest(ranks=size):
                run(size, body)

    setattr(OnGpus, "test_" + body.__name__, test)


if __name__ == "__main__":
    report.main()
