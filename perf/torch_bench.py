#!/usr/bin/env python3
"""Times torch.distributed on this machine with tutti, gloo, and a backend that moves nothing.

usage: perf/torch_bench.py [--rounds 5] [--json <file>]        (with PYTHONPATH=build/bindings/python)

There are two ranks, each with one thread on a core of its own. Backends take turns, one job each; a figure is the
median over rounds of the median over calls. DDP's time is that of a step minus that of the same step without DDP.
Its cost with a backend that moves nothing is torch's own, and is subtracted from that of the other two.
"""

import argparse
import copy
import json
import os
import socket
import statistics
import subprocess
import sys
import time

BACKENDS = ("tutti", "gloo", "fake")
SIZES = {"4 B": (1, 2000), "64 KiB": (16384, 500), "16 MiB": (4 << 20, 20)}


def times_of(call, count, warm=5):
    for _ in range(warm):
        call()
    times = []
    for _ in range(count):
        began = time.perf_counter()
        call()
        times.append((time.perf_counter() - began) * 1e6)
    return statistics.median(times)


def all_reduces(dist, torch):
    for name, (count, calls) in SIZES.items():
        data = torch.zeros(count)
        block = max(1, min(100, calls // 10))

        def many():
            for _ in range(block):
                dist.all_reduce(data)

        yield f"all_reduce {name}", times_of(many, calls // block) / block


def models(torch):
    nn = torch.nn
    wide = nn.Sequential(nn.Linear(2048, 4096), nn.ReLU(), nn.Linear(4096, 4096), nn.ReLU(), nn.Linear(4096, 10))
    yield "MLP of 25 M parameters", wide, lambda: torch.randn(8, 2048)
    layer = nn.TransformerEncoderLayer(384, 6, 1024, batch_first=True, dropout=0.0)
    yield "transformer of 7 M", nn.TransformerEncoder(layer, 6, enable_nested_tensor=False), lambda: torch.randn(4, 64, 384)


def steps(dist, torch):
    from torch.distributed.algorithms.ddp_comm_hooks.debugging_hooks import noop_hook
    from torch.nn.parallel import DistributedDataParallel

    for name, model, batch in models(torch):
        data = batch()

        def step(trained):
            for each in trained.parameters():
                each.grad = None
            trained(data).square().mean().backward()

        parallel = DistributedDataParallel(copy.deepcopy(model))
        if dist.get_backend() == "fake":  # its works have no result, which DDP needs
            parallel.register_comm_hook(None, noop_hook)
        times = {"alone": [], "DDP": []}
        for _ in range(20):  # the two alternate, so that other load of the machine affects both
            for kind, trained in (("alone", model), ("DDP", parallel)):
                dist.barrier()
                began = time.perf_counter()
                step(trained)
                times[kind].append((time.perf_counter() - began) * 1e6)
        for kind, measured in times.items():
            yield f"{name}, {kind}", statistics.median(measured[4:])


def rank(backend):
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    if backend == "fake":
        from torch.testing._internal.distributed.fake_pg import FakeStore

        dist.init_process_group("fake", store=FakeStore(), rank=int(os.environ["RANK"]), world_size=2)
    else:
        if backend == "tutti":
            import tutti.torch
        dist.init_process_group(backend)
    figures = dict(all_reduces(dist, torch))
    figures.update(steps(dist, torch))
    if os.environ["RANK"] == "0":
        print(json.dumps(figures))
    dist.destroy_process_group()


def job(backend):
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = str(listener.getsockname()[1])
    cores = sorted(os.sched_getaffinity(0))
    ranks = []
    for number in range(2):
        environment = dict(os.environ, RANK=str(number), WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT=port,
                           OMP_NUM_THREADS="1", TORCH_CPP_LOG_LEVEL="ERROR")
        ranks.append(subprocess.Popen(
            ["taskset", "-c", str(cores[number % len(cores)]), sys.executable, "-W", "ignore", __file__, "--rank", backend],
            env=environment, stdout=subprocess.PIPE, text=True))
    printed = [each.communicate(timeout=600)[0] for each in ranks]
    if any(each.returncode != 0 for each in ranks):
        sys.exit(f"a rank with {backend} failed")
    return json.loads(printed[0])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json")
    parser.add_argument("--rank", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.rank:
        return rank(arguments.rank)
    runs = {backend: [] for backend in BACKENDS}
    for _ in range(arguments.rounds):
        for backend in BACKENDS:
            runs[backend].append(job(backend))
    figures = {backend: {name: statistics.median(each[name] for each in jobs) for name in jobs[0]}
               for backend, jobs in runs.items()}
    print(f"{'µs, median of ' + str(arguments.rounds):34}" + "".join(f"{each:>12}" for each in BACKENDS) + "  tutti/gloo")
    for name in figures["tutti"]:
        row = [figures[each][name] for each in BACKENDS]
        print(f"{name:34}" + "".join(f"{each:12.1f}" for each in row) + f"{row[0] / row[1]:12.3f}")
    for name in (each[: -len(", DDP")] for each in figures["tutti"] if each.endswith(", DDP")):
        added = {each: figures[each][name + ", DDP"] - figures[each][name + ", alone"] for each in BACKENDS}
        ours, theirs = (added[each] - added["fake"] for each in ("tutti", "gloo"))
        print(f"{name}: DDP adds {added['tutti'] / 1e3:.1f} ms with tutti, {added['gloo'] / 1e3:.1f} with gloo,"
              f" {added['fake'] / 1e3:.1f} with a backend that moves nothing: {ours / theirs:.2f} of gloo's")
    if arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as file:
            json.dump(runs, file, indent=1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
