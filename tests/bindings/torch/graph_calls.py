"""Calls that CUDA graphs hold, whose results are known at each replay: for every process group that takes tensors of GPUs."""

import contextlib
import threading
import time

import programs
import torch
import torch.distributed as dist
from gpu_calls import numbers
from host_model import expect

REPLAYS = 6


@contextlib.contextmanager
def captured(graph, **options):
    """Captures what is called in the block, on a stream of its own."""
    torch.cuda.synchronize()
    with torch.cuda.graph(graph, **options):
        yield


def give(tensor, *values):
    tensor.copy_(torch.tensor(values, dtype=tensor.dtype))


def each_replay(graphs, set_inputs, check):
    """Replays the graphs one after the other, each time with other inputs, and checks the results."""
    for replay in range(REPLAYS):
        set_inputs(replay)
        for graph in graphs:
            graph.replay()
        torch.cuda.current_stream().synchronize()
        check(replay)


def sum_over_ranks(term):
    return sum(term(rank) for rank in range(dist.get_world_size()))


def collectives():
    rank, size = dist.get_rank(), dist.get_world_size()
    summed, scaled, sent, mine = numbers(0, 0), numbers(0), numbers(0, 0), numbers(0)
    gathered, parts = torch.empty(size, device="cuda"), [torch.empty(1, device="cuda") for _ in range(size)]
    whole, scattered, swapped = numbers(*[0] * size), numbers(0), numbers(*[0] * size)
    graph = torch.cuda.CUDAGraph()
    dist.all_reduce(numbers(1))  # Communicators are made outside captures.
    with captured(graph):
        dist.all_reduce(summed)
        dist.all_reduce(scaled, dist._make_nccl_premul_sum(2.0))
        dist.broadcast(sent, size - 1)
        dist.all_gather_into_tensor(gathered, mine)
        dist.all_gather(parts, mine)
        dist.reduce_scatter_tensor(scattered, whole)
        dist.all_to_all_single(swapped, whole)

    def set_inputs(replay):
        give(summed, rank + replay, 1)
        give(scaled, rank + replay)
        give(sent, rank, replay)
        give(mine, 10 * rank + replay)
        give(whole, *(100 * replay + r * (rank + 1) for r in range(size)))

    def check(replay):
        expect(summed, [sum_over_ranks(lambda r: r + replay), size])
        expect(scaled, [2 * sum_over_ranks(lambda r: r + replay)])
        expect(sent, [size - 1, replay])
        expect(gathered, [10 * r + replay for r in range(size)])
        for r, part in enumerate(parts):
            expect(part, [10 * r + replay])
        expect(scattered, [sum_over_ranks(lambda r: 100 * replay + rank * (r + 1))])
        expect(swapped, [100 * replay + rank * (r + 1) for r in range(size)])

    each_replay([graph], set_inputs, check)


def exchanges():
    """Messages around the ring, in one batch, and from rank 0 to rank 1."""
    rank, size = dist.get_rank(), dist.get_world_size()
    after, before = (rank + 1) % size, (rank - 1) % size
    given, got, told = numbers(0, 0), numbers(0, 0), numbers(0)

    def calls():
        for each in dist.batch_isend_irecv([dist.P2POp(dist.irecv, got, before), dist.P2POp(dist.isend, given, after)]):
            each.wait()
        if rank == 0:
            dist.send(told, 1)
        elif rank == 1:
            dist.recv(told, 0)

    calls()
    graph = torch.cuda.CUDAGraph()
    with captured(graph):
        calls()

    def set_inputs(replay):
        give(given, rank, replay)
        give(told, replay if rank == 0 else -1)

    def check(replay):
        expect(got, [before, replay])
        expect(told, [replay if rank < 2 else -1])

    each_replay([graph], set_inputs, check)


def side_streams():
    """Calls of two branches, each of which goes on behind its own call."""
    rank = dist.get_rank()
    first, second, results = numbers(0), numbers(0), [numbers(0), numbers(0)]
    side, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    dist.all_reduce(numbers(1))
    with captured(graph):
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            dist.all_reduce(second)
            results[1].copy_(second)
        dist.all_reduce(first)
        results[0].copy_(first)
        torch.cuda.current_stream().wait_stream(side)

    def set_inputs(replay):
        give(first, rank + replay)
        give(second, rank * replay)

    def check(replay):
        expect(results[0], [sum_over_ranks(lambda r: r + replay)])
        expect(results[1], [sum_over_ranks(lambda r: r * replay)])

    each_replay([graph], set_inputs, check)


def asynchronous_calls():
    """Works and futures order what is captured behind them."""
    rank, size = dist.get_rank(), dist.get_world_size()
    data, other, results = numbers(0), numbers(0), [numbers(0), numbers(0)]
    graph = torch.cuda.CUDAGraph()
    dist.all_reduce(numbers(1))
    with captured(graph):
        works = [dist.all_reduce(each, async_op=True) for each in (data, other)]
        works[0].wait()
        results[0].copy_(data)
        works[1].get_future().then(lambda done: results[1].copy_(done.value()[0])).wait()
        dist.all_reduce(results[1])

    def set_inputs(replay):
        give(data, rank + replay)
        give(other, rank * replay)

    def check(replay):
        expect(results[0], [sum_over_ranks(lambda r: r + replay)])
        expect(results[1], [size * sum_over_ranks(lambda r: r * replay)])

    each_replay([graph], set_inputs, check)


def coalesced_calls():
    rank = dist.get_rank()
    data = [numbers(0), numbers(0, 0)]
    graph = torch.cuda.CUDAGraph()
    dist.all_reduce(numbers(1))
    with captured(graph):
        with dist._coalescing_manager(device=data[0].device, async_ops=True) as together:
            for each in data:
                dist.all_reduce(each)
        together.wait()

    def set_inputs(replay):
        give(data[0], rank + replay)
        give(data[1], rank * replay, 1)

    def check(replay):
        expect(data[0], [sum_over_ranks(lambda r: r + replay)])
        expect(data[1], [sum_over_ranks(lambda r: r * replay), dist.get_world_size()])

    each_replay([graph], set_inputs, check)


def several_graphs():
    """Two graphs of one group share their memory and take turns, with calls outside in between, and one goes before the other."""
    rank, size = dist.get_rank(), dist.get_world_size()
    data = numbers(0)
    dist.all_reduce(numbers(1))
    first, second = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
    with captured(first):
        dist.all_reduce(data)
    with captured(second, pool=first.pool()):
        dist.all_reduce(data, dist.ReduceOp.MAX)

    def check(replay):
        expect(data, [sum_over_ranks(lambda r: r + replay)])
        dist.all_reduce(data)
        expect(data, [size * sum_over_ranks(lambda r: r + replay)])

    each_replay([first, second], lambda replay: give(data, rank + replay), check)
    first.reset()
    each_replay([second], lambda replay: give(data, rank + replay), lambda replay: expect(data, [size - 1 + replay]))


def outlived():
    """A graph may be replayed when its process group has gone: streams go on, and another group is not touched."""
    rank, size = dist.get_rank(), dist.get_world_size()
    data, group, graph = numbers(rank), dist.new_group(), torch.cuda.CUDAGraph()
    dist.all_reduce(numbers(1), group=group)
    dist.all_reduce(numbers(1))
    with captured(graph):
        dist.all_reduce(data, group=group)
    graph.replay()
    expect(data, [size * (size - 1) // 2])
    dist.destroy_process_group(group)
    for _ in range(2):
        graph.replay()
        torch.cuda.synchronize()
    other = numbers(rank)
    dist.all_reduce(other)
    expect(other, [size * (size - 1) // 2])
    del graph
    expect(numbers(1, 2), [1, 2])


def refused():
    """What cannot be captured is an error and makes the capture invalid, with calls behind it; the next call outside is good."""
    size, data = dist.get_world_size(), numbers(1)
    dist.all_reduce(data)
    errors = []
    try:
        with captured(torch.cuda.CUDAGraph()):
            dist.all_reduce(data)
            for forbidden in (torch.cuda.current_stream().synchronize, lambda: dist.all_reduce(data)):
                try:
                    forbidden()
                except RuntimeError as error:
                    errors.append(str(error))
    except RuntimeError as error:
        errors.append(str(error))
    assert len(errors) == 3, errors
    assert "900" in errors[0], errors  # cudaErrorStreamCaptureUnsupported
    assert all("captur" in each or "901" in each for each in errors[1:]), errors  # cudaErrorStreamCaptureInvalidated
    torch.cuda.synchronize()
    expect(data, [size])
    dist.all_reduce(data)
    expect(data, [size * size])


def pending():
    """A capture may begin while calls are under way, and PyTorch's watchdog asks whether these have ended."""
    rank, size = dist.get_rank(), dist.get_world_size()
    before, data, graph, stream = numbers(rank), numbers(0), torch.cuda.CUDAGraph(), torch.cuda.Stream()
    dist.all_reduce(numbers(1))
    torch.cuda.synchronize()
    works = [dist.all_reduce(before, async_op=True) for _ in range(3)]
    with torch.cuda.stream(stream):
        graph.capture_begin()
        dist.all_reduce(data)
        time.sleep(0.3)  # PyTorch's watchdog looks ten times a second.
        graph.capture_end()
    for work in works:
        work.wait()
    expect(before, [size**2 * size * (size - 1) // 2])
    each_replay([graph], lambda replay: give(data, rank + replay),
                lambda replay: expect(data, [sum_over_ranks(lambda r: r + replay)]))


def other_threads():
    """While one thread captures, another one makes calls of another group."""
    rank, size = dist.get_rank(), dist.get_world_size()
    device, other, data, graph = torch.cuda.current_device(), dist.new_group(), numbers(0), torch.cuda.CUDAGraph()
    for group in (None, other):
        dist.all_reduce(numbers(1), group=group)
    failures = []

    def call_others():
        try:
            torch.cuda.set_device(device)
            with torch.cuda.stream(torch.cuda.Stream()):
                for number in range(3):
                    told = numbers(rank + number)
                    work = dist.all_reduce(told, group=other, async_op=True)
                    work.wait()
                    expect(told, [sum_over_ranks(lambda r: r + number)])
                    while not work.is_completed():
                        time.sleep(0.001)
        except BaseException as error:
            failures.append(error)

    with captured(graph, capture_error_mode="thread_local"):
        dist.all_reduce(data)
        thread = threading.Thread(target=call_others)
        thread.start()
        thread.join()
        dist.all_reduce(data)
    if failures:
        raise failures[0]
    each_replay([graph], lambda replay: give(data, rank + replay),
                lambda replay: expect(data, [size * sum_over_ranks(lambda r: r + replay)]))


def data_parallel():
    """A whole step of training with DistributedDataParallel is captured, after the eleven steps outside that PyTorch asks for."""
    before, behind, side, graph = 11, 4, torch.cuda.Stream(), torch.cuda.CUDAGraph()
    part = torch.empty_like(programs.share(programs.batch(0)))
    with torch.cuda.stream(side):
        model = torch.nn.parallel.DistributedDataParallel(programs.network(dist.get_rank()))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

        def step():
            optimizer.zero_grad(set_to_none=True)
            model(part).square().mean().backward()
            optimizer.step()

        for number in range(before):
            part.copy_(programs.share(programs.batch(number)))
            step()
    with captured(graph):
        step()
    for number in range(before, before + behind):
        part.copy_(programs.share(programs.batch(number)))
        graph.replay()
        torch.cuda.synchronize()
    programs.close(model, programs.trained_alone(before + behind))
    programs.same_everywhere(model)


BODIES = (collectives, exchanges, side_streams, asynchronous_calls, coalesced_calls, several_graphs, outlived, refused, pending,
          other_threads)
