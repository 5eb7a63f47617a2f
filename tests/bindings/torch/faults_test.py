#!/usr/bin/env python3
"""Tests that faults with the backend "tutti" raise an exception that names them, in time, and leave nothing behind."""

import datetime
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import unittest

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import ranks
import report
import tutti.torch  # registers the backend


def complaint(call, *arguments, **options):
    """Returns the type and the message of the exception that `call` raises."""
    try:
        work = call(*arguments, **options)
        if work is not None:
            work.wait()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    raise AssertionError("nothing was raised")


def holds(text, *parts):
    for part in parts:
        if part not in text:
            raise AssertionError(f"{part!r} is not in {text[:300]!r}")


def backend():
    return dist.group.WORLD._get_backend(torch.device("cpu"))


def bad_tensors():
    rank = dist.get_rank()
    expanded = torch.zeros(1).expand(5)
    holds(complaint(dist.all_reduce, expanded), "ValueError", "share memory")
    holds(complaint(dist.broadcast, torch.zeros(3).to_sparse(), 0), "NotImplementedError", "Sparse")  # from torch
    holds(complaint(backend().allreduce, [torch.zeros(3, device="meta")]), "ValueError", "is on meta", "all_reduce")
    holds(complaint(backend().allocate_tensor, 3, dtype=torch.float32, device=torch.device("meta")), "ValueError", "meta")
    holds(complaint(backend().allreduce, [torch.zeros(3), torch.zeros(3)]), "ValueError", "one tensor a rank")
    gathered = [torch.zeros(3), torch.zeros(3, dtype=torch.float64)]
    holds(complaint(dist.all_gather, gathered, torch.zeros(3)), "type")
    holds(complaint(dist.all_gather, [torch.zeros(3)], torch.zeros(3)), "ValueError", "2")
    holds(complaint(dist.all_gather_into_tensor, torch.zeros(5), torch.zeros(3)), "ValueError", "5", "3")
    holds(complaint(dist.reduce_scatter_tensor, torch.zeros(5), torch.zeros(3)), "ValueError")
    holds(complaint(dist.all_to_all_single, torch.zeros(3), torch.zeros(3)), "ValueError", "3 rows", "2 ranks")
    holds(complaint(dist.all_to_all_single, torch.zeros(4), torch.zeros(4), [1, 1], [2, 2]), "ValueError", "splits")
    holds(complaint(dist.all_reduce, torch.zeros(3, dtype=torch.float32), dist.ReduceOp.BAND), "ValueError", "bit_and")
    shared = torch.zeros(4)
    holds(complaint(dist.all_gather, [shared[:3], shared[1:]], torch.zeros(3)), "ValueError", "overlap")
    data = torch.full((3,), float(rank))
    dist.all_reduce(data)  # none of these calls has harmed the group
    if data[0] != 1:
        raise AssertionError(data)


def mismatched_shapes():
    rank = dist.get_rank()
    return complaint(dist.all_reduce, torch.zeros(3 + rank))


def mismatched_types():
    return complaint(dist.all_reduce, torch.zeros(3, dtype=[torch.float32, torch.float64][dist.get_rank()]))


def mismatched_calls():
    if dist.get_rank() == 0:
        return complaint(dist.all_reduce, torch.zeros(3))
    return complaint(dist.broadcast, torch.zeros(3), 0)


def until_rank_0_is_done(body):
    """Returns what `body` returns on rank 0, while the other ranks make no calls."""
    store = dist.distributed_c10d._get_default_store()
    if dist.get_rank() != 0:
        return store.wait(["rank 0 is done"], datetime.timedelta(minutes=2))
    outcome = body()
    store.set("rank 0 is done", "")
    return outcome


def nobody_comes():
    dist.group.WORLD.set_timeout(datetime.timedelta(seconds=1))
    return until_rank_0_is_done(lambda: complaint(dist.all_reduce, torch.zeros(3)))


def waiting_with_a_limit():
    rank = dist.get_rank()
    if rank == 0:
        data = torch.zeros(3)
        work = dist.irecv(data, 1)
        text = complaint(lambda: work.wait(datetime.timedelta(milliseconds=200)))
        dist.barrier()
        work.wait()  # the limit has ended only the waiting
        if data[0] != 7:
            raise AssertionError(data)
        return text
    dist.barrier()
    dist.send(torch.full((3,), 7.0), 0)
    return None


def a_model():
    torch.manual_seed(0)
    return DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(50, 50), torch.nn.ReLU(), torch.nn.Linear(50, 5)))


def killed_in_ddp():
    model = a_model()
    for step in range(1000):
        if dist.get_rank() == 1 and step == 5:
            os.kill(os.getpid(), signal.SIGKILL)
        model(torch.randn(4, 50)).sum().backward()


class Refuses(torch.autograd.Function):
    @staticmethod
    def forward(context, value):
        return value.clone()

    @staticmethod
    def backward(context, gradient):
        raise RuntimeError("no gradient today")


def raises_in_backward():
    model = a_model()
    output = model(torch.randn(4, 50))
    if dist.get_rank() == 1:
        output = Refuses.apply(output)
    output.sum().backward()


def destroyed_with_calls_under_way():
    def destroys():
        works = [dist.irecv(torch.zeros(3), 1), dist.all_reduce(torch.zeros(1000), async_op=True)]
        dist.destroy_process_group()
        return complaint(works[0].wait)

    return until_rank_0_is_done(destroys)


def resized_meanwhile():
    """A result that cannot be copied back is the error of its call's work, and the group can still be used."""
    said = []
    if dist.get_rank() == 1:
        for k in range(2):
            dist.recv(torch.zeros(1), 0)
            dist.send(torch.ones(12), 0, tag=1)
        dist.recv(torch.zeros(1), 0)
        dist.all_reduce(torch.ones(3, 4))
    else:
        for call in (lambda data: dist.irecv(data, 1, tag=1),
                     lambda data: dist.batch_isend_irecv([dist.P2POp(dist.irecv, data, 1, tag=1)])[0],
                     lambda data: dist.all_reduce(data, async_op=True)):
            data = torch.zeros(4, 3).t()
            work = call(data)
            future = work.get_future()
            data.resize_(5)
            dist.send(torch.zeros(1), 1)
            said += [complaint(work.wait), complaint(future.wait), str(work.is_success())]
    dist.barrier()
    return said


def sparse_sums_aborted():
    data = torch.sparse_coo_tensor([[1]], [1.0], (3,))
    dist.all_reduce(data)
    if dist.get_rank() == 1:
        return complaint(dist.recv, torch.zeros(1), 0)
    work = dist.all_reduce(data, async_op=True)
    future = work.get_future()
    dist.group.WORLD.abort()
    holds(complaint(future.wait), "aborted")
    return complaint(work.wait)


def aborted():
    rank = dist.get_rank()
    group = dist.new_group()
    if rank == 0:
        work = dist.irecv(torch.zeros(3), 1, group=group)
        group.abort()
        return complaint(work.wait)
    return complaint(dist.recv, torch.zeros(3), 0, group=group)


def forks():
    child = os.fork()
    if child == 0:
        try:
            text = complaint(dist.all_reduce, torch.zeros(3))
            os._exit(0 if "forked" in text else 1)
        except BaseException:
            os._exit(2)
    if os.waitpid(child, 0)[1] != 0:
        raise AssertionError("the child did not refuse")
    dataset = torch.utils.data.TensorDataset(torch.arange(8.0))
    for _ in torch.utils.data.DataLoader(dataset, num_workers=2):
        dist.all_reduce(torch.ones(10))


def a_child_frees_buckets():
    data = backend().allocate_tensor(100_000, dtype=torch.float32, device=torch.device("cpu"))
    data.fill_(dist.get_rank())
    dist.all_reduce(data)
    child = os.fork()
    if child == 0:
        del data
        os._exit(0)
    if os.waitpid(child, 0)[1] != 0:
        raise AssertionError("the child could not free it")
    data.fill_(dist.get_rank() + 1)
    dist.all_reduce(data)
    if not torch.equal(data, torch.full_like(data, 3)):
        raise AssertionError(data)


_SCRIPT = """
import sys, torch, torch.distributed as dist, tutti.torch
dist.init_process_group("tutti", init_method="file://" + sys.argv[1], rank=int(sys.argv[2]), world_size=2)
data = torch.zeros(3)
keep = dist.all_reduce(data, async_op=True)
{last}
"""


def expect_ranks(rank, size):
    got = (dist.get_rank(), dist.get_world_size())
    if got != (rank, size):
        raise AssertionError(got)
    data = torch.full((3,), float(rank))
    dist.all_reduce(data)
    if data[0] != size * (size - 1) / 2:
        raise AssertionError(data)


def shrinks_after_a_kill():
    rank = dist.get_rank()
    expect_ranks(rank, 4)
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    holds(complaint(lambda: [dist.all_reduce(torch.zeros(3)) for _ in range(100_000)]), "peer_lost", "rank 1")
    dist.shrink_group([1])
    expect_ranks(rank - (rank > 1), 3)


_WAIT, _ABORT = 0, 1  # SHRINK_DEFAULT and SHRINK_ABORT of torch.distributed.distributed_c10d


def shrinks_in_health(flags):
    rank = dist.get_rank()
    expect_ranks(rank, 4)
    if rank in (0, 2):
        return  # torch demands that ranks which are left out do not call it
    under_way = dist.irecv(torch.zeros(3), 4 - rank)
    if flags == _WAIT:
        dist.isend(torch.zeros(3), 4 - rank).wait()
    dist.shrink_group([0, 2], shrink_flags=flags)
    expect_ranks(rank // 2, 2)
    holds(complaint(dist.shrink_group, [rank // 2]), "RuntimeError", "exclusion list")
    if flags == _WAIT:
        under_way.wait()
    else:
        holds(complaint(under_way.wait), "its process group shrinks")


class Faults(unittest.TestCase):
    def both(self, body, *parts, **options):
        for text in ranks.run(2, body, **options):
            holds(text, *parts)

    def test_a_wrong_tensor_is_refused_on_its_rank_and_the_group_goes_on(self):
        ranks.run(2, bad_tensors)

    def test_shapes_that_differ_are_named_on_both_ranks(self):
        self.both(mismatched_shapes, "mismatch", "3 x f32", "4 x f32")

    def test_types_that_differ_are_named_on_both_ranks(self):
        self.both(mismatched_types, "mismatch", "3 x f32", "3 x f64")

    def test_calls_that_differ_are_named_on_both_ranks(self):
        self.both(mismatched_calls, "mismatch", "all_reduce", "broadcast")

    def test_a_rank_that_does_not_come_is_named_at_the_deadline(self):
        holds(ranks.run(2, nobody_comes)[0], "DistBackendError", "timeout", "rank 1 has not called it")

    def test_a_limit_of_waiting_ends_the_waiting_alone(self):
        holds(ranks.run(2, waiting_with_a_limit)[0], "DistBackendError", "timeout")

    def test_a_rank_that_is_killed_in_ddp_is_named(self):
        survivor, killed = ranks.end(ranks.start(2, killed_in_ddp))
        self.assertIsInstance(killed, ChildProcessError)
        holds(str(survivor), "peer_lost", "rank 1")

    def test_a_rank_that_raises_in_backward_ends_the_others(self):
        other, raised = ranks.end(ranks.start(2, raises_in_backward))
        holds(str(raised), "no gradient today")
        holds(str(other), "tutti", "rank 1")

    def test_destroying_with_calls_under_way_ends_them(self):
        holds(ranks.run(2, destroyed_with_calls_under_way)[0], "destroyed with calls under way")

    def test_a_result_that_cannot_be_copied_back_is_an_error(self):
        said = ranks.end(ranks.start(2, resized_meanwhile), limit=60.0)
        self.assertEqual(said[1], [])
        for k, each in enumerate(said[0]):
            for part in ["False"] if k % 3 == 2 else ["DistBackendError", "rank 0", "cannot be copied", "(5)"]:
                self.assertIn(part, each)

    def test_abort_ends_what_waits_here_and_on_the_peer(self):
        self.both(aborted, "rank 0 aborted")

    def test_abort_ends_a_sum_of_sparse_tensors(self):
        self.both(sparse_sums_aborted, "rank 0 aborted")

    def test_a_forked_child_is_refused_and_harms_nobody(self):
        ranks.run(2, forks)

    def test_a_forked_child_that_frees_shared_memory_takes_nothing_from_the_parent(self):
        ranks.run(2, a_child_frees_buckets)

    @unittest.skipUnless(hasattr(dist, "shrink_group"), "this PyTorch has no shrink_group")
    def test_shrink_group_goes_on_without_a_rank_that_was_killed(self):
        outcomes = ranks.end(ranks.start(4, shrinks_after_a_kill))
        self.assertIsInstance(outcomes.pop(1), ChildProcessError)
        self.assertEqual(outcomes, [None] * 3)

    @unittest.skipUnless(hasattr(dist, "shrink_group"), "this PyTorch has no shrink_group")
    def test_shrink_group_leaves_out_ranks_that_live_and_waits_for_calls_or_ends_them(self):
        for flags in (_WAIT, _ABORT):
            ranks.run(4, shrinks_in_health, flags)

    def run_scripts(self, last):
        folder = tempfile.mkdtemp()
        return [
            subprocess.Popen([sys.executable, "-c", _SCRIPT.format(last=last), folder + "/store", str(rank)],
                             stderr=subprocess.PIPE, text=True)
            for rank in range(2)
        ]

    def test_an_interpreter_that_ends_without_destroying_neither_hangs_nor_crashes(self):
        for last in ("", "left = dist.irecv(data, 1 - dist.get_rank())", "del keep, data"):
            for process in self.run_scripts(last):
                _, errors = process.communicate(timeout=180)
                self.assertEqual((process.returncode, errors), (0, ""))

    def test_ctrl_c_ends_a_call_that_waits(self):
        for last in ("dist.barrier() if dist.get_rank() == 0 else __import__('time').sleep(600)",
                     "dist.recv(data, 1) if dist.get_rank() == 0 else __import__('time').sleep(600)"):
            first, second = self.run_scripts("print('there', file=sys.stderr, flush=True)\n" + last)
            for process in (first, second):
                while "there" not in process.stderr.readline():
                    self.assertIsNone(process.poll())
            while not pathlib.Path(f"/proc/{first.pid}/stat").read_text().rpartition(") ")[2].startswith("S"):
                time.sleep(0.001)  # waits until the process sleeps in the call
            first.send_signal(signal.SIGINT)
            _, errors = first.communicate(timeout=180)
            self.assertIn("KeyboardInterrupt", errors)
            second.kill()
            second.communicate()


if __name__ == "__main__":
    report.main()
