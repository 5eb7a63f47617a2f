"""Calls whose results are known, on tensors of GPUs: for every process group that takes such tensors."""

import torch
import torch.distributed as dist
from host_model import expect


def numbers(*values, dtype=torch.float32):
    return torch.tensor(values, dtype=dtype).cuda()


def reductions():
    rank, size = dist.get_rank(), dist.get_world_size()
    total = size * (size + 1) // 2
    for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.int32, torch.uint8, torch.int8):
        data = numbers(rank + 1, 2, dtype=dtype)
        dist.all_reduce(data)
        expect(data, [total, 2 * size])
    flags = numbers(rank == 0, False, dtype=torch.bool)
    dist.all_reduce(flags, dist.ReduceOp.MAX)
    expect(flags, [True, False])
    for op, wanted in ((dist.ReduceOp.AVG, total / size), (dist.ReduceOp.MAX, size), (dist.ReduceOp.MIN, 1),
                       (dist._make_nccl_premul_sum(2.0), 2 * total)):
        data = numbers(rank + 1)
        dist.all_reduce(data, op)
        expect(data, [wanted])
    data = numbers(rank + 1)
    dist.reduce(data, size - 1)
    if rank == size - 1:
        expect(data, [total])
    mine, whole = numbers(0, 0), numbers(*range(2 * size))
    dist.reduce_scatter_tensor(mine, whole)
    expect(mine, [2 * rank * size, (2 * rank + 1) * size])
    dist.reduce_scatter(mine, [numbers(r, 10 * r) for r in range(size)])
    expect(mine, [rank * size, 10 * rank * size])


def coalesced():
    rank, size = dist.get_rank(), dist.get_world_size()
    first, second = numbers(rank), numbers(rank, 1)
    with dist._coalescing_manager(device=first.device, async_ops=True) as together:
        dist.all_reduce(first)
        dist.all_reduce(second)
    together.wait()
    expect(first, [size * (size - 1) // 2])
    expect(second, [size * (size - 1) // 2, size])


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
