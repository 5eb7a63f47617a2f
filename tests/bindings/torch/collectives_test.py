#!/usr/bin/env python3
"""Tests every function of torch.distributed on the backend "tutti"."""

import functools
import operator
import unittest
import weakref

import torch
import torch.distributed as dist
from torch.distributed import ReduceOp

import ranks
import report

import tutti
import tutti.torch  # registers the backend

INTEGERS = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]
FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
MOVED = INTEGERS + FLOATS + [torch.bool, torch.uint16, torch.uint32, torch.uint64, torch.complex64, torch.complex128,
                             torch.float8_e4m3fn, torch.float8_e5m2, torch.complex32, torch.float8_e4m3fnuz]


def expect(actual, wanted):
    if not torch.equal(actual, wanted):
        raise AssertionError(f"{actual} is not {wanted}")


def here():
    return dist.get_rank(), dist.get_world_size()


def waited(work):
    work.wait()
    if not work.is_completed():
        raise AssertionError("a work that was waited for is not done")


def pattern(rank, count, dtype):
    """Returns bytes of every kind, read as `dtype`, which differ between ranks."""
    size = torch.empty(0, dtype=dtype).element_size()
    if dtype == torch.bool:
        return (torch.arange(count) + rank) % 3 == 0
    return ((torch.arange(count * size) * 7 + rank * 13) % 120).to(torch.uint8).view(dtype)


def same_bytes(actual, wanted):
    expect(actual.contiguous().view(torch.uint8), wanted.contiguous().view(torch.uint8))


def all_reduce_of_every_type():
    rank, size = here()
    for dtype in INTEGERS + FLOATS:
        for count in (0, 1, 1000):
            for blocking in (True, False):
                data = torch.full((count,), rank + 1, dtype=dtype)
                work = dist.all_reduce(data, async_op=not blocking)
                if not blocking:
                    waited(work)
                expect(data, torch.full((count,), sum(range(1, size + 1)), dtype=dtype))


def all_reduce_by_every_reduction():
    rank, size = here()
    ones = [1 << each | 1 for each in range(size)]
    wanted = {ReduceOp.SUM: sum(ones), ReduceOp.PRODUCT: int(torch.tensor(ones).prod()), ReduceOp.MIN: min(ones),
              ReduceOp.MAX: max(ones), ReduceOp.BAND: 1, ReduceOp.BOR: (1 << size) - 1 | 1, ReduceOp.BXOR: functools.reduce(operator.xor, ones)}
    for op, value in wanted.items():
        data = torch.full((5,), ones[rank], dtype=torch.int32)
        dist.all_reduce(data, op)
        expect(data, torch.full((5,), value, dtype=torch.int32))
    data = torch.full((5,), float(rank))
    dist.all_reduce(data, ReduceOp.AVG)
    expect(data, torch.full((5,), (size - 1) / 2))
    data = torch.full((5,), float(rank))
    dist.all_reduce(data, dist._make_nccl_premul_sum(0.5))
    expect(data, torch.full((5,), sum(range(size)) / 2))
    data = torch.tensor([rank == 0, True, False])
    dist.all_reduce(data)
    expect(data, torch.tensor([True, True, False]))
    data = torch.full((2,), complex(rank, 1))
    dist.all_reduce(data)
    expect(data, torch.full((2,), complex(sum(range(size)), size)))


def reduce_to_each_root():
    rank, size = here()
    for root in range(size):
        data = torch.full((100,), rank + 1)
        dist.reduce(data, root)
        expect(data, torch.full((100,), sum(range(1, size + 1)) if rank == root else rank + 1))


def moves_of_every_type():
    rank, size = here()
    for dtype in MOVED:
        all_of_them = [pattern(each, 12, dtype) for each in range(size)]
        data = all_of_them[rank].clone()
        dist.broadcast(data, size - 1)
        same_bytes(data, all_of_them[-1])
        gathered = [torch.empty_like(data) for _ in range(size)]
        dist.all_gather(gathered, all_of_them[rank])
        for got, wanted in zip(gathered, all_of_them):
            same_bytes(got, wanted)


def gathers():
    rank, size = here()
    mine = torch.arange(6.0).view(2, 3) + rank * 10
    whole = torch.cat([torch.arange(6.0).view(2, 3) + each * 10 for each in range(size)])
    flat = torch.empty(2 * size, 3)
    dist.all_gather_into_tensor(flat, mine)
    expect(flat, whole)
    uneven = [torch.empty(each + 1) for each in range(size)]
    dist.all_gather(uneven, torch.full((rank + 1,), float(rank)))
    for each, got in enumerate(uneven):
        expect(got, torch.full((each + 1,), float(each)))
    inside = [torch.empty(2, 3) for _ in range(size)]
    dist.gather(mine, inside if rank == 0 else None, 0)
    if rank == 0:
        expect(torch.cat(inside), whole)
    objects = [None] * size
    dist.all_gather_object(objects, {"rank": rank})
    if objects != [{"rank": each} for each in range(size)]:
        raise AssertionError(objects)


def scatters():
    rank, size = here()
    root = size - 1
    parts = [torch.full((3,), float(each)) for each in range(size)]
    data = torch.empty(3)
    dist.scatter(data, parts if rank == root else None, root)
    expect(data, parts[rank])
    for many in (False, True):
        result = torch.empty(3)
        if many:
            dist.reduce_scatter(result, [part + rank for part in parts])
        else:
            dist.reduce_scatter_tensor(result, torch.cat(parts) + rank)
        expect(result, parts[rank] * size + sum(range(size)))
    uneven = torch.empty(rank + 1)
    dist.reduce_scatter(uneven, [torch.full((each + 1,), 1.0) for each in range(size)])
    expect(uneven, torch.full((rank + 1,), float(size)))


def all_to_alls():
    rank, size = here()
    data = torch.arange(size * 2.0).view(size, 2) + 100 * rank
    result = torch.empty(size, 2)
    dist.all_to_all_single(result, data)
    expect(result, torch.stack([torch.tensor([2.0 * rank, 2.0 * rank + 1]) + 100 * each for each in range(size)]))
    outgoing = torch.cat([torch.full((each + 1, 2), 10.0 * rank + each) for each in range(size)])
    incoming = torch.empty(size * (rank + 1), 2)
    dist.all_to_all_single(incoming, outgoing, [rank + 1] * size, [each + 1 for each in range(size)])
    expect(incoming, torch.cat([torch.full((rank + 1, 2), 10.0 * each + rank) for each in range(size)]))
    got = [torch.empty(rank + 1) for _ in range(size)]
    dist.all_to_all(got, [torch.full((each + 1,), 10.0 * rank + each) for each in range(size)])
    for each in range(size):
        expect(got[each], torch.full((rank + 1,), 10.0 * each + rank))


def tensors_that_are_not_contiguous():
    rank, size = here()
    square = torch.arange(12.0).view(3, 4) + rank
    data = square.t()
    dist.all_reduce(data)
    expect(square, torch.arange(12.0).view(3, 4) * size + sum(range(size)))
    strided = torch.zeros(10)
    dist.all_gather_into_tensor(strided[: 2 * size : 2] if size < 6 else strided, torch.tensor([rank + 1.0]))
    expect(strided[:: 2][:size], torch.arange(1.0, size + 1))
    expect(strided[1::2], torch.zeros(5))
    work = dist.broadcast(square.t(), 0, async_op=True)
    waited(work)
    expect(square, torch.arange(12.0).view(3, 4) * size + sum(range(size)))


def tensors_that_autograd_would_not_let_be_written():
    rank, size = here()
    total = float(sum(range(size)))
    for blocking in (True, False):
        weight = torch.nn.Parameter(torch.full((2, 3, 4, 4), float(rank)).to(memory_format=torch.channels_last))
        entries = torch.nn.Parameter(torch.full((3,), float(rank)).to_sparse())
        mine = torch.full((6, 4), float(rank))
        with torch.inference_mode():
            inferred = torch.full((6, 4), float(rank))
        for data in (weight, entries, inferred[:, ::2]):
            work = dist.all_reduce(data, async_op=not blocking)
            if not blocking:
                waited(work)
        with torch.inference_mode():
            work = dist.all_reduce(mine.t(), async_op=not blocking)
            if not blocking:
                waited(work)
        for data in (weight.detach(), entries.detach().to_dense(), inferred[:, ::2], mine):
            expect(data, torch.full(data.shape, total))
        expect(inferred[:, 1::2], torch.full((6, 2), float(rank)))
        weight.sum().backward()
        expect(weight.grad, torch.ones(weight.shape))


def coalesced():
    rank, size = here()
    tensors = [torch.full((each + 1,), float(rank)) for each in range(4)]
    with dist._coalescing_manager(async_ops=True) as manager:
        for each in tensors:
            dist.all_reduce(each)
    manager.wait()
    for each in tensors:
        expect(each, torch.full_like(each, sum(range(size))))
    outputs = [torch.empty(size * 2), torch.empty(size * 3)]
    with dist._coalescing_manager():
        dist.all_gather_into_tensor(outputs[0], torch.full((2,), float(rank)))
        dist.all_gather_into_tensor(outputs[1], torch.full((3,), float(rank)))
    expect(outputs[1], torch.arange(float(size)).repeat_interleave(3))
    results = [torch.empty(1), torch.empty(2)]
    with dist._coalescing_manager():
        dist.reduce_scatter_tensor(results[0], torch.ones(size))
        dist.reduce_scatter_tensor(results[1], torch.ones(2 * size))
    expect(results[1], torch.full((2,), float(size)))
    lists = [[torch.empty(1), torch.empty(2)] for _ in range(size)]
    dist.all_gather_coalesced(lists, [torch.full((1,), float(rank)), torch.full((2,), float(rank))])
    for each in range(size):
        expect(lists[each][1], torch.full((2,), float(each)))
    dist.all_reduce_coalesced(tensors)
    expect(tensors[0], torch.full((1,), float(size * sum(range(size)))))


def point_to_point():
    rank, size = here()
    after, before = (rank + 1) % size, (rank - 1) % size
    for count in (1, 100_000):
        data = torch.full((count,), float(rank))
        got = torch.empty(count)
        send = dist.isend(data, after, tag=7)
        if dist.recv(got, before, tag=7) != before:
            raise AssertionError("recv returns its source")
        waited(send)
        expect(got, torch.full((count,), float(before)))
    if rank == 0:
        seen = set()
        for _ in range(size - 1):
            got = torch.empty(3)
            source = dist.recv(got)
            expect(got, torch.full((3,), float(source)))
            seen.add(source)
        if seen != set(range(1, size)):
            raise AssertionError(seen)
    else:
        dist.send(torch.full((3,), float(rank)), 0)
    dist.barrier()
    got = torch.empty(5)
    operations = [dist.P2POp(dist.isend, torch.full((5,), float(rank)), after), dist.P2POp(dist.irecv, got, before)]
    for work in dist.batch_isend_irecv(operations):
        work.wait()
    expect(got, torch.full((5,), float(before)))
    objects = [rank, "words"] if rank == 0 else [None, None]
    dist.broadcast_object_list(objects, 0)
    if objects != [0, "words"]:
        raise AssertionError(objects)


def sparse_sums():
    rank, size = here()
    data = torch.sparse_coo_tensor([[rank, size]], [[1.0, 2.0], [3.0, 4.0]], (size + 1, 2))
    dist.all_reduce(data)
    wanted = torch.tensor([[1.0, 2.0]] * size + [[3.0 * size, 4.0 * size]])
    expect(data.to_dense(), wanted)
    several = [torch.sparse_coo_tensor([[each % size]], [float(rank)], (size,)) for each in range(5)]
    dense = torch.full((10,), 1.0)
    works = []
    for each in several:
        works.append(dist.all_reduce(each, async_op=True))
        dist.all_reduce(dense)  # a dense sum at the same time
    doubled = works[4].get_future().then(lambda future: future.value()[0].to_dense() * 2)
    for each, work in zip(several, works):
        waited(work)
        expect(each.to_dense().sum(), torch.tensor(float(sum(range(size)))))
    expect(doubled.wait().sum(), torch.tensor(2.0 * sum(range(size))))
    expect(dense, torch.full((10,), float(size) ** 5))
    if size > 1 and rank == 0:  # the call does not block, since its peer makes it only after it has received a message
        work = dist.all_reduce(several[0], async_op=True)
        dist.send(torch.ones(1), 1)
    elif rank == 1:
        dist.recv(torch.ones(1), 0)
    if rank > 0:
        work = dist.all_reduce(several[0], async_op=True)
    if size > 1:
        waited(work)
        expect(several[0].to_dense().sum(), torch.tensor(float(size * sum(range(size)))))


def works_and_futures():
    rank, size = here()
    data = torch.full((1000,), 1.0)
    work = dist.all_reduce(data, async_op=True)
    doubled = work.get_future().then(lambda future: future.value()[0] * 2)
    expect(doubled.wait(), torch.full((1000,), 2.0 * size))
    work.wait()
    expect(work.get_future().value()[0], data)
    many = [dist.all_reduce(torch.ones(100), async_op=True).get_future() for _ in range(20)]
    for each in torch.futures.wait_all(many):
        expect(each[0], torch.full((100,), float(size)))

    def nested(future):
        return dist.all_reduce(future.value()[0], async_op=True).get_future().wait()[0]

    expect(dist.all_reduce(torch.ones(5), async_op=True).get_future().then(nested).wait(), torch.full((5,), size**2.0))
    dist.all_reduce(torch.ones(1_000_000), async_op=True)  # the test keeps neither the tensor nor the work
    dist.barrier()


def memory_that_peers_reach():
    rank, size = here()
    group = dist.new_group()
    backend = group._get_backend(torch.device("cpu"))
    data = backend.allocate_tensor(100_000, dtype=torch.float64, device=torch.device("cpu"))
    if size > 1 and not ranks.peers_reach(data):
        raise AssertionError("it is a memory of its own")
    expect(data, torch.zeros(100_000, dtype=torch.float64))
    for part in (data, data[1000:90_000], data.view(1000, 100)[:, :50], data[:0]):
        part.fill_(rank + 1)
        dist.all_reduce(part, group=group)
        expect(part, torch.full_like(part, sum(range(1, size + 1))))
    if rank == 0:  # the other ranks pass memory of another kind
        mine = data[:50_000].fill_(1)
    else:
        mine = torch.ones(50_000, dtype=torch.float64)
    dist.all_reduce(mine, group=group)
    expect(mine, torch.full_like(mine, size))
    dist.destroy_process_group(group)
    data.fill_(5)  # the tensor outlives its group
    expect(data, torch.full_like(data, 5))
    if backend.supports_tensor_alloc(torch.device("cuda", 0)):
        raise AssertionError("tutti has no memory of a GPU")


def groups():
    rank, size = here()
    pairs = [dist.new_group([each, (each + 1) % size]) for each in range(size)] if size > 2 else []
    for each, group in enumerate(pairs):
        if rank in (each, (each + 1) % size):
            data = torch.ones(3)
            dist.all_reduce(data, group=group)
            expect(data, torch.full((3,), 2.0))
    alone = dist.new_group([0])
    if rank == 0:
        dist.all_reduce(torch.ones(1), group=alone)
    half = dist.new_subgroups_by_enumeration([[0], list(range(1, size))])[0]
    dist.barrier(half)
    dist.destroy_process_group(half)
    again = dist.new_group()
    backend = again._get_backend(torch.device("cpu"))
    number = backend._get_sequence_number_for_group()
    dist.all_reduce(torch.ones(1), group=again)
    if backend._get_sequence_number_for_group() != number + 1 or backend.name() != "tutti":
        raise AssertionError("a call counts one")


class InThePackage(unittest.TestCase):
    """Tests PyTorch's tensors in tutti's own Python package."""

    def test_tensors_are_taken_where_they_lie(self):
        with tutti.Communicator.in_process(1)[0] as comm:
            for dtype in INTEGERS + FLOATS + [torch.bool, torch.complex64, torch.float8_e4m3fn]:
                data, result = pattern(0, 12, dtype), torch.empty(12, dtype=dtype)
                comm.all_gather(data, result)
                same_bytes(result, data)
            for shape in ((), (0,), (3, 4)):
                comm.all_reduce(torch.zeros(shape))
            grid = torch.zeros(4, 4)
            for wrong in (grid[:, 1], grid.t(), torch.zeros(1).expand(4), grid.to_sparse(), grid.to("meta")):
                with self.assertRaises(tutti.UsageError):
                    comm.all_reduce(wrong)

    def test_tensors_are_let_go_of(self):
        with tutti.Communicator.in_process(1)[0] as comm:
            data = torch.zeros(1000)
            gone = weakref.ref(data)
            work = comm.all_reduce_async(data)
            del data
            work.wait()
            comm.all_reduce_async(torch.zeros(1)).wait()  # releases what finished calls have used
            self.assertIsNone(gone())


class OnEveryNumberOfRanks(unittest.TestCase):
    def on_ranks(self, body):
        for size in (1, 2, 3) if body not in (groups,) else (2, 3):
            with self.subTest(ranks=size):
                ranks.run(size, body)

    def test_all_reduce_of_every_type_blocking_and_not(self):
        self.on_ranks(all_reduce_of_every_type)

    def test_all_reduce_by_every_reduction(self):
        self.on_ranks(all_reduce_by_every_reduction)

    def test_reduce_leaves_the_other_ranks_tensors_alone(self):
        self.on_ranks(reduce_to_each_root)

    def test_what_only_moves_takes_every_type_there_is(self):
        self.on_ranks(moves_of_every_type)

    def test_gathers_even_and_uneven_and_of_objects(self):
        self.on_ranks(gathers)

    def test_scatter_and_reduce_scatter_even_and_uneven(self):
        self.on_ranks(scatters)

    def test_all_to_all_even_uneven_and_of_lists(self):
        self.on_ranks(all_to_alls)

    def test_tensors_that_are_not_contiguous_are_copied_and_copied_back(self):
        self.on_ranks(tensors_that_are_not_contiguous)

    def test_what_autograd_guards_is_copied_back_all_the_same(self):
        self.on_ranks(tensors_that_autograd_would_not_let_be_written)

    def test_coalesced_calls(self):
        self.on_ranks(coalesced)

    def test_sends_and_receives_from_one_and_from_any(self):
        for size in (2, 3):
            ranks.run(size, point_to_point)

    def test_sparse_tensors_are_summed_entry_by_entry(self):
        self.on_ranks(sparse_sums)

    def test_works_futures_and_callbacks_that_call_again(self):
        self.on_ranks(works_and_futures)

    def test_memory_that_peers_reach(self):
        self.on_ranks(memory_that_peers_reach)

    def test_groups_of_some_ranks_and_sequence_numbers(self):
        self.on_ranks(groups)


if __name__ == "__main__":
    report.main()
