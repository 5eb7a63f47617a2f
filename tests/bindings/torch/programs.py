"""Training programs of common kinds, each with a result that is known, for every backend.

They run on the default device, in a process group that is there.
"""

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
    mesh = init_device_mesh(torch.get_default_device().type, (dist.get_world_size(),))
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
    mesh = init_device_mesh(torch.get_default_device().type, (size,))
    whole = torch.arange(24.0).view(6, 4)
    rows = distribute_tensor(whole, mesh, [Shard(0)])
    columns = rows.redistribute(mesh, [Shard(1)])  # an all_to_all
    product = columns @ distribute_tensor(whole.t().contiguous(), mesh, [Shard(0)])  # pending sums
    result = product.redistribute(mesh, [Replicate()]).to_local()
    if not torch.equal(result, whole @ whole.t()):
        raise AssertionError(result)
    if not torch.equal(rows.full_tensor(), whole):
        raise AssertionError(rows)


def objects():
    rank, size = dist.get_rank(), dist.get_world_size()
    told = [None] * size
    dist.all_gather_object(told, {"rank": rank, "text": "x" * 1000 * rank})
    if told != [{"rank": r, "text": "x" * 1000 * r} for r in range(size)]:
        raise AssertionError(told)
    from_first = [rank, "of", {size: rank}]
    dist.broadcast_object_list(from_first, 0)
    if from_first != [0, "of", {size: 0}]:
        raise AssertionError(from_first)
