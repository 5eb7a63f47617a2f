#!/usr/bin/env python3
"""Runs unmodified training programs of common kinds on the backend "tutti"."""

import os
import subprocess
import sys
import tempfile
import unittest

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.distributed.algorithms.ddp_comm_hooks.post_localSGD_hook import PostLocalSGDState, post_localSGD_hook
from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.optim import PostLocalSGDOptimizer, ZeroRedundancyOptimizer
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

import ranks
import report

BATCH = 12


def network(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(20, 40), nn.Tanh(), nn.Linear(40, 40), nn.Tanh(), nn.Linear(40, 3)).double()


def batch(step):
    torch.manual_seed(100 + step)
    return torch.randn(BATCH, 20, dtype=torch.double)


def share(whole):
    return whole.chunk(dist.get_world_size())[dist.get_rank()]


def trained_alone(steps=4):
    """Returns the result that all ranks together must reach: the same training on whole batches."""
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for step in range(steps):
        optimizer.zero_grad()
        model(batch(step)).square().mean().backward()
        optimizer.step()
    return torch.cat([each.detach().flatten() for each in model.parameters()])


def step_by_step(model, optimizer, steps=4):
    for step in range(steps):
        optimizer.zero_grad()
        model(share(batch(step))).square().mean().backward()
        optimizer.step()


def close(model, wanted, tolerance=1e-12):
    actual = torch.cat([each.detach().flatten() for each in model.parameters()])
    torch.testing.assert_close(actual, wanted, atol=tolerance, rtol=tolerance)


def same_everywhere(model):
    mine = torch.cat([each.detach().flatten() for each in model.parameters()])
    all_of_them = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
    dist.all_gather(all_of_them, mine)
    if not all(torch.equal(each, mine) for each in all_of_them):
        raise AssertionError("the ranks' parameters differ")


def data_parallel(options):
    model = DistributedDataParallel(network(dist.get_rank()), **options)  # the parameters of rank 0 count
    step_by_step(model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9))
    close(model, trained_alone())
    same_everywhere(model)


def sparse_gradients():
    def sampled(step):
        torch.manual_seed(step)
        return torch.randint(0, 30, (BATCH, 4))

    def trained(sparse, whole):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Embedding(30, 8, sparse=sparse), nn.Flatten(), nn.Linear(32, 3)).double()
        parallel = model if whole else DistributedDataParallel(model)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(4):
            optimizer.zero_grad()
            parallel(sampled(step) if whole else share(sampled(step))).square().mean().backward()
            optimizer.step()
        return model

    wanted = trained(False, True)
    close(trained(True, False), torch.cat([each.detach().flatten() for each in wanted.parameters()]))


def buckets_that_peers_reach():
    model = DistributedDataParallel(network(), gradient_as_bucket_view=True)
    step_by_step(model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9))
    if not all(ranks.peers_reach(each.grad) for each in model.parameters()):
        raise AssertionError("a bucket is memory of its own")
    close(model, trained_alone())


class SometimesUnused(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.always, self.sometimes = nn.Linear(20, 3), nn.Linear(20, 3)

    def forward(self, data, both):
        return self.always(data) + (self.sometimes(data) if both else 0)


def unused_parameters():
    model = DistributedDataParallel(SometimesUnused(), find_unused_parameters=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(4):
        optimizer.zero_grad()
        model(torch.randn(4, 20), both=(step + dist.get_rank()) % 2 == 0).square().mean().backward()
        optimizer.step()
    same_everywhere(model)


def uneven_inputs():
    model = DistributedDataParallel(network())
    with model.join():
        for step in range(2 + dist.get_rank()):
            model(batch(step)).square().mean().backward()
    dist.barrier()


def hooks(name):
    model = DistributedDataParallel(network(), bucket_cap_mb=100)
    hook = {"all_reduce": default_hooks.allreduce_hook, "fp16": default_hooks.fp16_compress_hook,
            "powerSGD": powerSGD_hook.powerSGD_hook}[name]
    state = powerSGD_hook.PowerSGDState(None, start_powerSGD_iter=2) if name == "powerSGD" else None
    model.register_comm_hook(state, hook)
    step_by_step(model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), 4 if name != "powerSGD" else 8)
    if name == "all_reduce":
        close(model, trained_alone())
    same_everywhere(model)


def zero():
    model = DistributedDataParallel(network())
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.SGD, lr=0.1, momentum=0.9)
    step_by_step(model, optimizer)
    close(model, trained_alone())
    optimizer.consolidate_state_dict(0)
    if dist.get_rank() == 0 and len(optimizer.state_dict()["state"]) != 6:
        raise AssertionError("rank 0 has not all of the state")


def post_local_sgd():
    model = DistributedDataParallel(network())
    alone, _ = dist.new_subgroups(group_size=1)
    model.register_comm_hook(PostLocalSGDState(None, alone, start_localSGD_iter=2), post_localSGD_hook)
    averager = PeriodicModelAverager(period=2, warmup_steps=0)
    optimizer = PostLocalSGDOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), averager)
    step_by_step(model, optimizer, 7)
    same_everywhere(model)


def fully_sharded():
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    model = network()
    for layer in model:
        if isinstance(layer, nn.Linear):
            fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    step_by_step(model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9))
    actual = torch.cat([each.full_tensor().flatten() for each in model.parameters()])
    torch.testing.assert_close(actual.detach(), trained_alone(), atol=1e-12, rtol=1e-12)


def distributed_tensors():
    size = dist.get_world_size()
    mesh = init_device_mesh("cpu", (size,))
    whole = torch.arange(24.0).view(6, 4)
    rows = distribute_tensor(whole, mesh, [Shard(0)])
    columns = rows.redistribute(mesh, [Shard(1)])  # an all_to_all
    product = columns @ distribute_tensor(whole.t().contiguous(), mesh, [Shard(0)])  # pending sums
    result = product.redistribute(mesh, [Replicate()]).to_local()
    if not torch.equal(result, whole @ whole.t()):
        raise AssertionError(result)
    if not torch.equal(rows.full_tensor(), whole):
        raise AssertionError(rows)


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
                    ranks.run(size, data_parallel, options)

    def test_buckets_of_data_parallel_are_memory_that_peers_reach(self):
        for size in (2, 3):
            ranks.run(size, buckets_that_peers_reach)

    def test_data_parallel_with_sparse_gradients(self):
        for size in (2, 3):
            ranks.run(size, sparse_gradients)

    def test_data_parallel_finds_unused_parameters(self):
        ranks.run(2, unused_parameters)

    def test_data_parallel_joins_uneven_inputs(self):
        ranks.run(3, uneven_inputs)

    def test_data_parallel_with_hooks(self):
        for name in ("all_reduce", "fp16", "powerSGD"):
            with self.subTest(hook=name):
                ranks.run(2, hooks, name)

    def test_zero_redundancy_optimizer(self):
        ranks.run(2, zero)

    def test_post_local_sgd_averages_models(self):
        ranks.run(2, post_local_sgd)

    def test_fully_sharded_data_parallel(self):
        for size in (2, 3):
            ranks.run(size, fully_sharded)

    def test_distributed_tensors(self):
        for size in (2, 3):
            ranks.run(size, distributed_tensors)

    def test_distributed_sampler(self):
        ranks.run(3, samplers)

    def test_debug_level_detail(self):
        os.environ["TORCH_DISTRIBUTED_DEBUG"] = "DETAIL"
        dist.set_debug_level_from_env()
        try:
            ranks.run(2, data_parallel, {})
            ranks.run(2, zero)
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
