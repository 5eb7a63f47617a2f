#!/usr/bin/env python3
"""Runs PyTorch's own NCCL process group on libnccl.so.2 of tutti, with stand-ins for the driver and the runtime of CUDA.

Nothing of tutti is imported: PyTorch's wheel is as it comes from PyPI, and finds the library because LD_PRELOAD names it. No kernel of
PyTorch runs on the stand-in: tensors on the GPU are made and read by copies. `./dev test-cuda --torch` runs it.
"""

import ctypes
import datetime
import multiprocessing
import os
import pathlib
import signal
import sys
import tempfile
import time
import unittest

import gpu
import host_model
import report
import torch
import torch.distributed as dist
from host_model import expect

torch.set_num_threads(1)
fork = multiprocessing.get_context("fork")
SIZES = (2, 3)
LIMIT_S = 150  # for all ranks of a test


def in_group(body, rank, size, store, options, pipe):
    try:
        torch.cuda.set_device(rank)
        if not options["blocking"]:
            os.environ["TORCH_NCCL_USE_COMM_NONBLOCKING"] = "1"
        dist.init_process_group("nccl", init_method="file://" + store, rank=rank, world_size=size,
                                timeout=datetime.timedelta(seconds=60),
                                device_id=torch.device("cuda", rank) if options["eager"] else None)
        pipe.send((True, body()))
        if dist.is_initialized():
            dist.destroy_process_group()
    except BaseException as error:  # the test examines what ended the rank
        pipe.send((False, repr(error)[:2000]))
        sys.stdout.flush()
        os._exit(1)


def outcomes(size, body, **options):
    """Runs body() in a process for each rank. Returns for each what it returned, its exception's text, or its exit status."""
    options = {"eager": False, "blocking": True, **options}
    store = os.path.join(tempfile.mkdtemp(prefix="tutti-nccl-"), "store")
    ranks = []
    for rank in range(size):
        here, there = fork.Pipe(duplex=False)
        process = fork.Process(target=in_group, args=(body, rank, size, store, options, there))
        process.start()
        there.close()
        ranks.append((process, here))
    deadline = time.monotonic() + LIMIT_S
    results = []
    for process, pipe in ranks:
        result = None
        try:
            if pipe.poll(max(0.0, deadline - time.monotonic())):
                result = pipe.recv()
        except EOFError:
            pass
        process.join(max(0.1, deadline - time.monotonic()))
        if process.is_alive():
            os.kill(process.pid, signal.SIGKILL)
            process.join()
            result = (False, f"the rank was still there after {LIMIT_S} s")
        elif result is None or (result[0] and process.exitcode != 0):
            result = (False, f"exit status {process.exitcode}")
        results.append(result)
    return results


def run(size, body, **options):
    for rank, (good, result) in enumerate(outcomes(size, body, **options)):
        if not good:
            raise AssertionError(f"rank {rank} of {size}: {result}")


def numbers(*values, dtype=torch.float32):
    return torch.tensor(values, dtype=dtype).cuda()


def reductions():
    rank, size = dist.get_rank(), dist.get_world_size()
    total = size * (size + 1) // 2
    for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.int32, torch.uint8, torch.int8):
        data = numbers(rank + 1, 2, dtype=dtype)
        dist.all_reduce(data)
        expect(data, [total, 2 * size])
    for op, wanted in ((dist.ReduceOp.AVG, total / size), (dist.ReduceOp.MAX, size), (dist.ReduceOp.MIN, 1),
                       (dist._make_nccl_premul_sum(2.0), 2 * total)):
        data = numbers(rank + 1)
        dist.all_reduce(data, op)
        expect(data, [wanted])
    scalar = numbers(3)
    data = numbers(rank + 1)
    dist.all_reduce(data, dist._make_nccl_premul_sum(scalar))  # The scalar is read on the GPU.
    expect(data, [3 * total])
    data = numbers(rank + 1)
    dist.reduce(data, size - 1)
    if rank == size - 1:
        expect(data, [total])
    mine, whole = numbers(0, 0), numbers(*range(2 * size))
    dist.reduce_scatter_tensor(mine, whole)
    expect(mine, [2 * rank * size, (2 * rank + 1) * size])
    dist.reduce_scatter(mine, [numbers(r, 10 * r) for r in range(size)])
    expect(mine, [rank * size, 10 * rank * size])


def blocks():
    rank, size = dist.get_rank(), dist.get_world_size()
    data = numbers(rank, 5)
    dist.broadcast(data, size - 1)
    expect(data, [size - 1, 5])
    whole = torch.empty(2 * size, device="cuda")
    dist.all_gather_into_tensor(whole, numbers(rank, rank + 0.5))
    expect(whole, [value for r in range(size) for value in (r, r + 0.5)])
    apart = [torch.empty(2, device="cuda") for _ in range(size)]
    dist.all_gather(apart, numbers(rank, rank + 0.5))
    for r, each in enumerate(apart):
        expect(each, [r, r + 0.5])
    uneven = [torch.empty(r + 1, device="cuda") for r in range(size)]
    dist.all_gather(uneven, numbers(*[rank] * (rank + 1)))
    for r, each in enumerate(uneven):
        expect(each, [r] * (r + 1))
    into = [torch.empty(1, device="cuda") for _ in range(size)] if rank == 0 else None
    dist.gather(numbers(rank), into)
    for r, each in enumerate(into or []):
        expect(each, [r])
    got = numbers(-1)
    dist.scatter(got, [numbers(r * 3) for r in range(size)] if rank == 0 else None)
    expect(got, [rank * 3])
    mine = [numbers(*([10 * rank + r] * (r + 1))) for r in range(size)]
    theirs = [torch.empty(rank + 1, device="cuda") for _ in range(size)]
    dist.all_to_all(theirs, mine)
    for r, each in enumerate(theirs):
        expect(each, [10 * r + rank] * (rank + 1))
    result = torch.empty(size * (rank + 1), device="cuda")
    dist.all_to_all_single(result, torch.cat([each.cpu() for each in mine]).cuda(), [rank + 1] * size, list(range(1, size + 1)))
    expect(result, [10 * r + rank for r in range(size) for _ in range(rank + 1)])
    even = torch.empty(size, device="cuda")
    dist.all_to_all_single(even, numbers(*[rank] * size))
    expect(even, list(range(size)))


def messages():
    rank, size = dist.get_rank(), dist.get_world_size()
    after, before = (rank + 1) % size, (rank - 1) % size
    got = numbers(-1, -1)
    for each in dist.batch_isend_irecv([dist.P2POp(dist.irecv, got, before), dist.P2POp(dist.isend, numbers(rank, 8), after)]):
        each.wait()
    expect(got, [before, 8])
    if rank == 0:
        dist.send(numbers(7, 9), 1)
    elif rank == 1:
        dist.recv(got, 0)
        expect(got, [7, 9])


def asynchronous():
    """A call has its place on the current stream, and its work and its future are done with it."""
    torch.cuda.set_stream(torch.cuda.Stream())
    size, stopped = dist.get_world_size(), gpu.Gate(torch.cuda.current_stream().cuda_stream)
    source = torch.full((1000,), 3.0).pin_memory()
    data, result = torch.zeros(1000).cuda(), torch.zeros(1000).pin_memory()
    dist.all_reduce(data)  # makes the communicator, which waits for the other ranks
    torch.cuda.synchronize()
    stopped.close()
    data.copy_(source, non_blocking=True)
    work = dist.all_reduce(data, async_op=True)
    assert not work.is_completed()
    work.wait()
    result.copy_(data, non_blocking=True)
    stopped.open()
    torch.cuda.current_stream().synchronize()
    expect(result, torch.full((1000,), 3.0 * size))
    future = dist.all_reduce(data, async_op=True).get_future()
    future.wait()
    expect(data, torch.full((1000,), 3.0 * size * size))


def coalesced():
    rank, size = dist.get_rank(), dist.get_world_size()
    first, second = numbers(rank), numbers(rank, 1)
    with dist._coalescing_manager(device=first.device, async_ops=True) as together:
        dist.all_reduce(first)
        dist.all_reduce(second)
    together.wait()
    expect(first, [size * (size - 1) // 2])
    expect(second, [size * (size - 1) // 2, size])
    parts = [torch.empty(size, device="cuda") for _ in range(2)]
    with dist._coalescing_manager(device=first.device):
        for k, part in enumerate(parts):
            dist.all_gather_into_tensor(part, numbers(10 * k + rank))
    for k, part in enumerate(parts):
        expect(part, [10 * k + r for r in range(size)])


def groups():
    rank, size = dist.get_rank(), dist.get_world_size()
    data = numbers(rank + 1)
    dist.all_reduce(data)
    first = dist.new_group([0, 1])
    if rank < 2:
        data = numbers(rank + 1)
        dist.all_reduce(data, group=first)
        expect(data, [3])
    each = [dist.new_group([r]) for r in range(size)]
    dist.all_reduce(data, group=each[rank])


def split():
    rank, size = dist.get_rank(), dist.get_world_size()
    data = numbers(rank + 1)
    dist.all_reduce(data)
    part = dist.split_group(split_ranks=[[0, 1]] + [[r] for r in range(2, size)])
    data = numbers(rank + 1)
    dist.all_reduce(data, group=part)
    expect(data, [3 if rank < 2 else rank + 1])


def fill_by_copy(to, value):
    """Stands in for PyTorch's kernel that fills a tensor."""
    return to.copy_(torch.empty(to.shape, dtype=to.dtype).fill_(value))


def without_kernels(body):
    """Has PyTorch fill tensors on the GPU by copies, in the process that calls the result."""

    def called():
        library = torch.library.Library("aten", "IMPL")
        library.impl("fill_.Scalar", fill_by_copy, "CUDA")
        body()

    return called


@without_kernels
def barriers():
    rank, store = dist.get_rank(), dist.distributed_c10d._get_default_store()
    for number in range(3):
        if rank == 0:
            store.set(f"before {number}", "")
        dist.barrier()
        assert store.check([f"before {number}"])


def aborted():
    """An abort ends calls that wait for another rank, and the process goes on."""
    rank, store = dist.get_rank(), dist.distributed_c10d._get_default_store()
    data = numbers(rank + 1)
    dist.all_reduce(data)
    torch.cuda.synchronize()
    if rank == 0:
        work = dist.all_reduce(data, async_op=True)
        assert not work.is_completed()
        store.set("waits", "")
    store.wait(["waits"])
    dist.distributed_c10d._abort_process_group()
    torch.cuda.synchronize()
    expect(numbers(1, 2), [1, 2])


def parallel():
    torch.cuda.set_stream(torch.cuda.Stream())
    host_model.train_in_parallel(dist.get_rank())


def watched():
    """PyTorch's watchdog ends the process of a rank that waits longer than its group's timeout."""
    rank = dist.get_rank()
    part = dist.new_group(timeout=datetime.timedelta(seconds=3))
    dist.all_reduce(numbers(1), group=part)
    if rank == 0:
        dist.all_reduce(numbers(1), group=part)
        torch.cuda.synchronize()
        time.sleep(60)
    else:
        time.sleep(20)
        os._exit(0)


class OnTutti(unittest.TestCase):
    def test_the_library_is_tuttis_and_the_gpu_a_stand_in(self):
        def body():
            dist.all_reduce(numbers(1))
            assert torch.cuda.get_device_name().startswith("stand-in"), torch.cuda.get_device_name()
            maps = pathlib.Path("/proc/self/maps").read_text(encoding="utf-8")
            version = ctypes.c_int()
            assert ctypes.CDLL(None).ncclGetVersion(ctypes.byref(version)) == 0
            # The wheel's own is 2.30.7. It may be loaded, too, but it comes later in the order of the loader.
            assert "libtutti.so" in maps and version.value == 23203, version.value

        run(1, body)

    def test_the_watchdog_ends_a_rank_that_waits_for_longer_than_its_groups_timeout(self):
        good, result = outcomes(2, watched)[0]
        self.assertFalse(good)
        self.assertIn(str(-signal.SIGABRT), result)


for name in ("reductions", "blocks", "messages", "asynchronous", "coalesced", "groups", "split", "barriers", "aborted",
             "parallel"):
    def test(self, body=globals()[name], starts=(True,) if name == "split" else (False, True)):
        for size in SIZES:
            for eager in starts:
                with self.subTest(ranks=size, eager=eager):
                    run(size, body, eager=eager)

    setattr(OnTutti, "test_" + name, test)

for name in ("reductions", "blocks", "messages", "groups", "split"):
    def test(self, body=globals()[name]):
        run(2, body, eager=True, blocking=False)

    setattr(OnTutti, f"test_{name}_of_communicators_that_do_not_block", test)


if __name__ == "__main__":
    report.main()
