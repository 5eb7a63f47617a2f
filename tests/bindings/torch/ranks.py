"""Starts ranks for tests. They are forked from the test, which has imported torch and made no communicator."""

import datetime
import multiprocessing
import os
import signal
import sys
import tempfile
import time

import torch
import torch.distributed as dist

torch.set_num_threads(1)
_fork = multiprocessing.get_context("fork")


def _rank(body, rank, size, store, backend, limit, before, pipe, arguments):
    try:
        if store is not None:
            more = before(rank)
            dist.init_process_group(backend, init_method="file://" + store, rank=rank, world_size=size,
                                    timeout=datetime.timedelta(seconds=limit), **more)
        pipe.send((True, body(*arguments)))
        if store is not None and dist.is_initialized():
            dist.destroy_process_group()
    except BaseException as error:  # the test examines the exception that ended the rank
        pipe.send((False, error))
        sys.exit(1)


def start(size, body, *arguments, backend="tutti", limit=60.0, init=True, pass_rank=False, before=lambda rank: {}):
    """Starts `size` ranks that run body(*arguments), in a group with a timeout of `limit` seconds.

    Without `init` there is no group; with `pass_rank` the rank is the first argument. Each rank calls before(rank), which
    returns further arguments for init_process_group().

    Returns a list of (process, pipe); end() waits for them.
    """
    folder = tempfile.mkdtemp(prefix="tutti-torch-")
    store = os.path.join(folder, "store") if init else None
    ranks = []
    for rank in range(size):
        here, there = _fork.Pipe(duplex=False)
        process = _fork.Process(target=_rank, args=(body, rank, size, store, backend, limit, before, there,
                                      (rank, *arguments) if pass_rank else arguments))
        process.start()
        there.close()
        ranks.append((process, here))
    return ranks


def end(ranks, limit=150.0):
    """Returns what the ranks returned; for a rank that failed, the exception, or one with its exit status."""
    deadline = time.monotonic() + limit
    outcomes = []
    for process, pipe in ranks:
        outcome = None
        try:
            if pipe.poll(max(0.0, deadline - time.monotonic())):
                good, outcome = pipe.recv()
                if not good:
                    outcome.args = tuple(str(each)[:2000] for each in outcome.args)
        except EOFError:
            pass
        process.join(max(0.1, deadline - time.monotonic()))
        if process.is_alive():
            os.kill(process.pid, signal.SIGKILL)
            process.join()
            outcome = TimeoutError(f"the rank was still there after {limit} s")
        elif outcome is None and process.exitcode != 0:
            outcome = ChildProcessError(process.exitcode)
        outcomes.append(outcome)
    return outcomes


def run(size, body, *arguments, **options):
    """Calls start() and end(). An exception on a rank fails the test."""
    outcomes = end(start(size, body, *arguments, **options))
    for rank, outcome in enumerate(outcomes):
        if isinstance(outcome, BaseException):
            raise AssertionError(f"rank {rank} of {size}: {outcome!r}") from outcome
    return outcomes


def peers_reach(tensor):
    """Returns whether the tensor is in memory that the ranks of this machine share."""
    with open("/proc/self/maps", encoding="utf-8") as maps:
        for line in maps:
            begin, end = (int(each, 16) for each in line.split()[0].split("-"))
            if begin <= tensor.data_ptr() < end:
                return "memfd:tutti" in line
    return False
