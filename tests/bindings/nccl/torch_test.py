#!/usr/bin/env python3
"""Runs PyTorch's own NCCL process group on libnccl.so.2 of tutti, with stand-ins for the driver and the runtime of CUDA.

Nothing of tutti is imported: PyTorch's wheel is as it comes from PyPI, and finds the library because LD_PRELOAD names it. No
kernel of PyTorch runs on the stand-in: tensors on the GPU are made and read by copies, or the host executes PyTorch's
operators (host_kernels.py). `./dev test-cuda --nccl` runs it.
"""

import ctypes
import datetime
import os
import pathlib
import re
import signal
import subprocess
import sys
import time
import unittest

import gpu
import graph_calls
import host_kernels
import host_model
import programs
import ranks
import report
import torch
import torch.distributed as dist
from gpu_calls import blocks, coalesced, messages, numbers, reductions
from host_model import expect

SIZES = (2, 3)


def on_gpus(eager, blocking):
    """Returns what prepares a rank for its group: a GPU of its own, and how its communicators are made."""

    def before(rank):
        torch.cuda.set_device(rank)
        if not blocking:
            os.environ["TORCH_NCCL_USE_COMM_NONBLOCKING"] = "1"
        return {"device_id": torch.device("cuda", rank)} if eager else {}

    return before


def run(size, body, *arguments, eager=False, blocking=True):
    ranks.run(size, body, *arguments, backend="nccl", before=on_gpus(eager, blocking))


def scaled():
    rank, size = dist.get_rank(), dist.get_world_size()
    data = numbers(rank + 1)
    dist.all_reduce(data, dist._make_nccl_premul_sum(numbers(3)))  # The scalar is read on the GPU.
    expect(data, [3 * size * (size + 1) // 2])


def scalars_on_the_gpu():
    """A scalar on the GPU cannot be read while the stream is captured, which leaves the capture as it was."""
    size, data, graph = dist.get_world_size(), numbers(1), torch.cuda.CUDAGraph()
    three = dist._make_nccl_premul_sum(numbers(3))
    with graph_calls.captured(graph):
        dist.all_reduce(data)
        try:
            dist.all_reduce(data, three)
        except dist.DistBackendError as error:
            assert "the scalar of a reduction is on the GPU" in str(error), error
        else:
            raise AssertionError("a scalar was read in a capture")
    dist.all_reduce(data, three)
    expect(data, [3 * size])
    graph.replay()
    expect(data, [3 * size * size])


def uneven():
    rank, size = dist.get_rank(), dist.get_world_size()
    blocks = [torch.empty(r + 1, device="cuda") for r in range(size)]
    dist.all_gather(blocks, numbers(*[rank] * (rank + 1)))
    for r, each in enumerate(blocks):
        expect(each, [r] * (r + 1))


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


def gathered_together():
    rank, size = dist.get_rank(), dist.get_world_size()
    parts = [torch.empty(size, device="cuda") for _ in range(2)]
    with dist._coalescing_manager(device=parts[0].device):
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


def train_digits(launcher):
    """Returns what a program for NCCL prints, which is started as it is, but that the host executes PyTorch's operators."""
    here = pathlib.Path(__file__).resolve().parent
    command = {"tutti-run": [os.environ["PATH_OF_TUTTI_RUN"], "-n", "2", "--nccl", "--", sys.executable],
               "torchrun": [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]}[launcher]
    preloaded = os.environ["LD_PRELOAD"].split()
    environment = {**os.environ, "LD_PRELOAD": " ".join(preloaded if launcher == "torchrun" else preloaded[:1])}
    ended = subprocess.run([*command, str(here.parent / "torch" / "host_kernels.py"), str(here / "digits_on_gpus.py"), "3"],
                           env=environment, capture_output=True, text=True, timeout=300)
    if ended.returncode != 0:
        raise AssertionError(f"{command} ended with {ended.returncode}: {ended.stderr[-2000:]}")
    return ended.stdout


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
        outcome = ranks.end(ranks.start(2, watched, backend="nccl", before=on_gpus(False, True)))[0]
        self.assertIsInstance(outcome, ChildProcessError)
        self.assertIn(str(-signal.SIGABRT), str(outcome))

    def test_a_program_for_nccl_trains_as_it_is(self):
        for launcher in ("tutti-run", "torchrun"):
            with self.subTest(launcher=launcher):
                text = train_digits(launcher)
                losses = [float(each) for each in re.findall(r"loss ([\d.]+)", text)]
                self.assertEqual(len(losses), 3)
                self.assertLess(losses[-1], losses[0] / 2)
                self.assertGreater(float(re.search(r"trained on: ([\d.]+)", text).group(1)), 0.85)

    def test_data_parallel_comes_to_what_one_process_comes_to(self):
        for options in ({}, {"bucket_cap_mb": 0.001}, {"gradient_as_bucket_view": True}, {"static_graph": True}):
            for size in SIZES:
                with self.subTest(ranks=size, **options):
                    run(size, host_kernels.with_kernels(programs.data_parallel), options)

    def test_data_parallel_with_hooks(self):
        for name in ("all_reduce", "fp16", "powerSGD"):
            with self.subTest(hook=name):
                run(2, host_kernels.with_kernels(programs.hooks), name)

    def test_data_parallel_in_a_graph(self):
        run(2, host_kernels.with_kernels(graph_calls.data_parallel), eager=True)


for body in (reductions, scaled, blocks, uneven, messages, asynchronous, coalesced, gathered_together, groups, split,
             host_kernels.with_kernels(barriers), aborted, parallel):
    def test(self, body=body, starts=(True,) if body is split else (False, True)):
        for size in SIZES:
            for eager in starts:
                with self.subTest(ranks=size, eager=eager):
                    run(size, body, eager=eager)

    setattr(OnTutti, "test_" + body.__name__, test)

for body in (*graph_calls.BODIES, scalars_on_the_gpu):
    def test(self, body=body):
        for size in SIZES:
            with self.subTest(ranks=size):
                run(size, body, eager=True)

    setattr(OnTutti, "test_graph_of_" + body.__name__, test)

# Not sparse_gradients: PyTorch's process group refuses sparse tensors itself.
for body in (programs.unused_parameters, programs.uneven_inputs, programs.zero, programs.post_local_sgd, programs.fully_sharded,
             programs.distributed_tensors, programs.objects):
    def test(self, body=body):
        for size in SIZES:
            with self.subTest(ranks=size):
                run(size, host_kernels.with_kernels(body))

    setattr(OnTutti, f"test_program_{body.__name__}", test)

for body in (reductions, blocks, messages, groups, split):
    def test(self, body=body):
        run(2, body, eager=True, blocking=False)

    setattr(OnTutti, f"test_{body.__name__}_of_communicators_that_do_not_block", test)


if __name__ == "__main__":
    report.main()
