#!/usr/bin/env python3
"""Runs unmodified training programs of common kinds on the backend "tutti"."""

import os
import subprocess
import sys
import tempfile
import unittest

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

import programs
import ranks
import report
import tutti.torch  # registers the backend

def buckets_that_peers_reach():
    model = DistributedDataParallel(programs.network(), gradient_as_bucket_view=True)
    programs.step_by_step(model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9))
    if not all(ranks.peers_reach(each.grad) for each in model.parameters()):
        raise AssertionError("a bucket is memory of its own")
    programs.close(model, programs.trained_alone())


def samplers():
    rank, size = dist.get_rank(), dist.get_world_size()
    sampler = DistributedSampler(TensorDataset(torch.arange(10)), shuffle=True, seed=3)
    seen = []
    for epoch in range(2):
        sampler.set_epoch(epoch)
        mine = torch.tensor([int(each) for (each,) in DataLoader(TensorDataset(torch.arange(10)), sampler=sampler)])
        whole = torch.empty(len(mine) * size, dtype=mine.dtype)
        dist.all_gather_into_tensor(whole, mine)
        if set(whole.tolist()) != set(range(10)):
            raise AssertionError(whole)
        seen.append(whole)
    if torch.equal(*seen):
        raise AssertionError("epochs are in one order")


_UNDER_TORCHRUN = """
import os, sys, torch, torch.distributed as dist, tutti.torch
dist.init_process_group("tutti")
data = torch.ones(3)
dist.all_reduce(data)
assert data[0] == dist.get_world_size() == int(os.environ["WORLD_SIZE"])
first = os.environ["TORCHELASTIC_RESTART_COUNT"] == "0"
if {fails} and first and dist.get_rank() == 1:
    os._exit(3)
if {fails} and first:
    dist.barrier()
sys.stdout.write(f"rank {{dist.get_rank()}} is done\\n")  # one write
sys.stdout.flush()
dist.destroy_process_group()
"""


class Training(unittest.TestCase):
    def test_data_parallel_comes_to_what_one_process_comes_to(self):
        for options in ({}, {"bucket_cap_mb": 0.001}, {"gradient_as_bucket_view": True}, {"static_graph": True}):
            for size in (2, 3):
                with self.subTest(ranks=size, **options):
                    ranks.run(size, programs.data_parallel, options)

    def test_buckets_of_data_parallel_are_memory_that_peers_reach(self):
        for size in (2, 3):
            ranks.run(size, buckets_that_peers_reach)

    def test_data_parallel_with_sparse_gradients(self):
        for size in (2, 3):
            ranks.run(size, programs.sparse_gradients)

    def test_data_parallel_finds_unused_parameters(self):
        ranks.run(2, programs.unused_parameters)

    def test_data_parallel_joins_uneven_inputs(self):
        ranks.run(3, programs.uneven_inputs)

    def test_data_parallel_with_hooks(self):
        for name in ("all_reduce", "fp16", "powerSGD"):
            with self.subTest(hook=name):
                ranks.run(2, programs.hooks, name)

    def test_zero_redundancy_optimizer(self):
        ranks.run(2, programs.zero)

    def test_post_local_sgd_averages_models(self):
        ranks.run(2, programs.post_local_sgd)

    def test_fully_sharded_data_parallel(self):
        for size in (2, 3):
            ranks.run(size, programs.fully_sharded)

    def test_distributed_tensors(self):
        for size in (2, 3):
            ranks.run(size, programs.distributed_tensors)

    def test_objects(self):
        ranks.run(3, programs.objects)

    def test_distributed_sampler(self):
        ranks.run(3, samplers)

    def test_debug_level_detail(self):
        os.environ["TORCH_DISTRIBUTED_DEBUG"] = "DETAIL"
        dist.set_debug_level_from_env()
        try:
            ranks.run(2, programs.data_parallel, {})
            ranks.run(2, programs.zero)
        finally:
            del os.environ["TORCH_DISTRIBUTED_DEBUG"]
            dist.set_debug_level_from_env()

    def torchrun(self, fails, *options):
        with tempfile.NamedTemporaryFile("w", suffix=".py") as script:
            script.write(_UNDER_TORCHRUN.format(fails=fails))
            script.flush()
            return subprocess.run(
                [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone", *options,
                 script.name], capture_output=True, text=True, timeout=300)

    def test_torchrun_starts_its_ranks(self):
        ended = self.torchrun(False)
        self.assertEqual(ended.returncode, 0, ended.stderr)
        self.assertEqual(ended.stdout.count("is done"), 2)

    def test_torchrun_restarts_ranks_when_one_has_died(self):
        ended = self.torchrun(True, "--max-restarts", "1")
        self.assertEqual(ended.returncode, 0, ended.stderr)
        self.assertEqual(ended.stdout.count("is done"), 2)

    def test_ranks_meet_by_every_way(self):
        for method in ("env://", "tcp://127.0.0.1:{port}", "store"):
            with self.subTest(method=method):
                ranks.run(2, meet, method, free_port(), init=False, pass_rank=True)


def free_port():
    import socket

    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def meet(rank, method, port):
    os.environ.update(RANK=str(rank), WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    if method == "store":
        store = dist.TCPStore("127.0.0.1", port, 2, rank == 0)
        dist.init_process_group("tutti", store=store, rank=rank, world_size=2)
    elif method == "env://":
        dist.init_process_group("cpu:tutti")
    else:
        dist.init_process_group("tutti", init_method=method.format(port=port), rank=rank, world_size=2)
    data = torch.ones(3)
    dist.all_reduce(data)
    if data[0] != 2:
        raise AssertionError(data)
    dist.destroy_process_group()


if __name__ == "__main__":
    report.main()
