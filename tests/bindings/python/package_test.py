#!/usr/bin/env python3
"""Tests the Python package, with ranks as threads of this process and as processes that tutti-run starts."""

import array
import ast
import asyncio
import gc
import pathlib
import re
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import unittest.mock
import weakref

import numpy
import report
import scripts
from rank_threads import run

import tutti.schedule


def equal(actual, wanted):
    numpy.testing.assert_array_equal(actual, wanted)


TYPES = ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float16", "float32", "float64",
         "complex64", "complex128"]


def all_operations(comm):
    rank, size = comm.rank, comm.size
    for dtype in TYPES:
        data = numpy.full((2, 3), rank + 1, dtype)
        comm.all_reduce(data)
        equal(data, numpy.full((2, 3), size * (size + 1) // 2, dtype))
    flags = numpy.array([rank == 0, False])
    comm.all_reduce(flags, "logical_or")
    equal(flags, [True, False])
    data, result = numpy.arange(4.0) + rank, numpy.empty(4)
    comm.all_reduce(data, "max", result)
    equal(result, numpy.arange(4.0) + size - 1)
    comm.all_reduce(data, "premul_sum", result, premultiplier=numpy.array([2.0]))
    equal(result, 2 * (size * numpy.arange(4.0) + sum(range(size))))
    comm.reduce(data, size - 1, output=result if rank == size - 1 else None)
    if rank == size - 1:
        equal(result, size * numpy.arange(4.0) + sum(range(size)))
    comm.broadcast(data, 0)
    equal(data, numpy.arange(4.0))
    whole = numpy.empty((size, 2), "int32")
    comm.all_gather(numpy.full(2, rank, "int32"), whole)
    equal(whole, numpy.repeat(numpy.arange(size), 2).reshape(size, 2))
    counts = list(range(1, size + 1))
    uneven = numpy.empty(sum(counts))
    comm.all_gather(numpy.full(rank + 1, float(rank)), uneven, counts)
    equal(uneven, numpy.repeat(numpy.arange(float(size)), counts))
    mine = numpy.empty(2, "int32")
    comm.reduce_scatter(whole, mine)
    equal(mine, [rank * size] * 2)
    mine = numpy.empty(rank + 1)
    comm.reduce_scatter(uneven, mine, counts=counts)
    equal(mine, [rank * size] * (rank + 1))
    comm.gather(numpy.array([rank]), gathered if (gathered := numpy.empty(size, int)).size and rank == 0 else None)
    if rank == 0:
        equal(gathered, numpy.arange(size))
    one = numpy.empty(1, int)
    comm.scatter(numpy.arange(size) * 2 if rank == 0 else None, one)
    equal(one, [rank * 2])
    result = numpy.empty(size, int)
    comm.all_to_all(numpy.arange(size) + 10 * rank, result)
    equal(result, 10 * numpy.arange(size) + rank)
    outgoing = numpy.repeat(numpy.arange(size) + 10 * rank, counts)
    incoming = numpy.empty(size * (rank + 1), int)
    comm.all_to_all(outgoing, incoming, counts, [rank + 1] * size)
    equal(incoming, numpy.repeat(10 * numpy.arange(size) + rank, rank + 1))
    comm.barrier()


def asynchronous(comm):
    works = []
    for k in range(10):
        data = numpy.full(10_000, float(k))
        works.append((k, data, comm.all_reduce_async(data)))
    for k, data, work in works:
        work.wait(10)
        assert work.done()
        equal(data, numpy.full(10_000, float(k * comm.size)))
    comm.all_reduce_async(numpy.ones(100_000))  # the test keeps neither the array nor the work
    gc.collect()
    comm.barrier()


def persistent(comm):
    rank, size = comm.rank, comm.size
    data, whole = numpy.zeros(1000), numpy.zeros((size, 2), int)
    total = sum(range(1, size + 1))
    mine = numpy.full(2, rank)
    counts = list(range(1, size + 1))
    uneven, part = numpy.zeros(sum(counts)), numpy.full(rank + 1, float(rank))
    calls = [comm.all_reduce_init(data), comm.all_gather_init(mine, whole), comm.all_gather_init(part, uneven, counts),
             comm.barrier_init(), comm.broadcast_init(some := numpy.zeros(3, "uint8"), size - 1)]
    del part  # the call keeps the array
    sent, got = numpy.zeros(3), numpy.zeros(5)
    send = comm.send_init(sent, (rank + 1) % size, 7)
    receive = comm.recv_init(got, (rank - 1) % size)
    for k in range(1, 4):
        data[:], mine[:], some[:], sent[:] = k * (rank + 1), k * rank, k * (rank + 1), k * rank
        if k == 1:
            for call in calls:
                call.run()
        elif k == 2:
            for work in [call.start() for call in calls]:
                work.wait()
        else:
            with tutti.Group() as group:
                for call in calls:
                    call.add_to(group)
        equal(data, numpy.full(1000, k * total))
        equal(whole, numpy.repeat(k * numpy.arange(size), 2).reshape(size, 2))
        equal(uneven, numpy.repeat(numpy.arange(float(size)), counts))
        equal(some, numpy.full(3, k * size))
        with tutti.Group() as group:
            send.add_to(group)
            receive.add_to(group)
        assert receive.received == ((rank - 1) % size, 7, 3)
        equal(got[:3], numpy.full(3, k * ((rank - 1) % size)))
    calls[0].start()
    gc.collect()
    comm.close()  # waits for the call
    equal(data, numpy.full(1000, 3 * total * size))
    try:
        calls[0].run()
    except tutti.UsageError as error:
        assert "closed" in str(error), error
    else:
        raise AssertionError("a call of a closed communicator was run")


def buffers(comm):
    rank, size = comm.rank, comm.size
    buffer = tutti.Buffer(comm, 80_000)
    assert len(buffer) == 80_000 and buffer.shared
    data = numpy.frombuffer(buffer, numpy.float64)
    equal(data, numpy.zeros(10_000))
    data[:] = rank + 1
    comm.all_reduce(data)
    equal(data, numpy.full(10_000, sum(range(1, size + 1))))
    if rank == 0:
        memoryview(buffer)[:3] = b"abc"
    comm.broadcast(memoryview(buffer)[:3])
    assert bytes(memoryview(buffer)[:4]) == b"abc" + bytes(memoryview(buffer)[3:4])
    del buffer  # the array keeps the buffer
    gc.collect()
    data[:] = 1
    comm.all_reduce(data)
    equal(data, numpy.full(10_000, size))
    comm.close()
    data[:] = 2  # the memory outlives the communicator
    equal(data, numpy.full(10_000, 2))


def registered_memory(comm):
    data = numpy.full(100_000, comm.rank + 1.0)
    with tutti.RegisteredMemory(comm, data) as registered:
        assert registered.used is False  # no network device is here
        comm.all_reduce(data)
    equal(data, numpy.full(100_000, sum(range(1, comm.size + 1))))
    registered.close()  # again
    kept = tutti.RegisteredMemory(comm, numpy.zeros(10))  # it keeps the array, and outlives the communicator
    for wrong in (b"read-only", data[::2]):
        try:
            tutti.RegisteredMemory(comm, wrong)
        except tutti.UsageError:
            continue
        raise AssertionError(f"{wrong} was registered")
    comm.close()
    del kept


class Shelf:
    """A store of the program's own: a dictionary that the ranks, which are threads, share."""

    def __init__(self):
        self.values, self.changed = {}, threading.Condition()

    def set(self, key, value, timeout):
        with self.changed:
            self.values[key] = bytes(value)
            self.changed.notify_all()

    def wait(self, key, timeout):
        with self.changed:
            if not self.changed.wait_for(lambda: key in self.values, timeout):
                raise TimeoutError(f"no {key}")

    def get(self, key, timeout):
        self.wait(key, timeout)
        return self.values[key]

    def add(self, key, amount, timeout):
        with self.changed:
            self.values[key] = str(int(self.values.get(key, b"0")) + amount).encode()
            self.changed.notify_all()
            return int(self.values[key])


def messages(comm):
    rank, size = comm.rank, comm.size
    data, got = numpy.full(3, rank), numpy.empty(5, int)
    work = comm.send_async(data, (rank + 1) % size, 7)
    assert comm.recv(got) == ((rank - 1) % size, 7, 3)
    equal(got[:3], [(rank - 1) % size] * 3)
    work.wait()
    with tutti.Group() as group:
        comm.send(data, (rank + 1) % size, group=group)
        comm.recv(got, (rank - 1) % size, group=group)
        comm.all_reduce(total := numpy.array([1]), group=group)
    equal(total, [size])
    equal(got[:3], [(rank - 1) % size] * 3)


def all_kinds_of_memory(comm):
    numbers = array.array("d", [1.0, 2.0])
    comm.all_reduce(numbers)
    assert list(numbers) == [comm.size, 2.0 * comm.size]
    some = bytearray(b"abc" if comm.rank == 0 else b"...")
    comm.broadcast(some)
    assert some == b"abc"
    comm.broadcast(memoryview(some)[1:], 0)
    if comm.rank == 0:
        comm.broadcast(b"read only is enough for the root")
    else:
        comm.broadcast(bytearray(32))


def groups_of_ranks(comm):
    half = comm.split(comm.rank % 2)
    data = numpy.array([comm.rank])
    half.all_reduce(data)
    equal(data, [sum(range(comm.rank % 2, comm.size, 2))])
    other = comm.subgroup([0, 1])
    assert (other is None) == (comm.rank > 1)
    second = comm.dup()
    assert (second.rank, second.size) == (comm.rank, comm.size)
    second.barrier()


def wrong(comm):
    def refused(kind, words, call, *arguments, **options):
        try:
            call(*arguments, **options)
        except kind as error:
            assert words in str(error), str(error)
            assert isinstance(error, tutti.Error)
            return
        raise AssertionError(f"no {kind}")

    data = numpy.zeros(4)
    usage = tutti.UsageError
    refused(usage, "contiguous", comm.all_reduce, numpy.zeros((4, 4))[:, 1])
    refused(usage, "format", comm.all_reduce, numpy.zeros(4, "datetime64[s]").view("U1"))
    refused(usage, "one of type", comm.all_reduce, [1.0, 2.0])
    refused(usage, "no such reduction", comm.all_reduce, data, "median")
    refused(usage, "f32", comm.all_reduce, data, output=numpy.zeros(4, "float32"))
    refused(usage, "3 elements", comm.all_reduce, data, output=numpy.zeros(3))
    refused(usage, "premultiplier", comm.all_reduce, data, "premul_sum")
    refused(usage, "read-only", comm.all_reduce, b"abc")
    refused(usage, "bit_and", comm.all_reduce, data, "bit_and")
    refused(usage, "output", comm.gather, data, root=comm.rank)
    refused(ValueError, "root", comm.broadcast, data, 99)
    comm.all_reduce(data)
    comm.close()
    refused(usage, "closed", comm.barrier)


class Package(unittest.TestCase):
    def test_every_operation_on_every_type(self):
        for size in (1, 2, 3):
            with self.subTest(ranks=size):
                run(size, all_operations)

    def test_asynchronous_calls_keep_their_arrays(self):
        run(2, asynchronous)

    def test_persistent_calls_run_any_number_of_times(self):
        for size in (1, 2, 3):
            run(size, persistent)

    def test_a_closed_communicator_ends_its_persistent_calls(self):
        call = tutti.Communicator.in_process(1)[0].barrier_init()  # the call keeps its communicator
        call.run()
        comm = tutti.Communicator.in_process(1)[0]
        with self.assertRaisesRegex(tutti.UsageError, "add_to"):
            comm.barrier_init(group=tutti.Group())

    def test_a_communicator_is_closed_beside_threads_that_wait(self):
        def closed(comm):
            works = [comm.barrier_async() for _ in range(3)]
            waiters = [threading.Thread(target=work.wait) for work in works]
            for each in waiters:
                each.start()
            comm.close()
            for each in waiters:
                each.join()
            return all(work.done() for work in works)

        for _ in range(50):
            self.assertEqual(run(2, closed), [True, True])

    def test_buffers_that_peers_reach(self):
        for size in (1, 2, 3):
            run(size, buffers)
            run(size, registered_memory)

    def test_ranks_meet_by_a_store_of_the_programs_own(self):
        shelf, sums, size = Shelf(), [0] * 3, 3

        def rank(number):
            with tutti.Communicator.create(shelf, number, size, timeout=60) as comm:
                data = numpy.array([number + 1])
                comm.all_reduce(data)
                sums[number] = data[0]

        threads = [threading.Thread(target=rank, args=(each,)) for each in range(size)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        self.assertEqual(sums, [6, 6, 6])

    def test_what_goes_wrong_in_a_store_is_told(self):
        def create(store, **options):
            tutti.Communicator.create(store, 0, 2, **options)

        with self.assertRaisesRegex(tutti.UsageError, "no wait"):
            create(type("", (), {"set": 1, "get": 1, "add": 1})())
        with self.assertRaises(tutti.TimeoutError):
            create(Shelf(), startup_timeout=0.2)
        with self.assertRaises(tutti.TimeoutError):
            create(Shelf(), startup_timeout_ms=200, tls=False, algorithm=None)
        with self.assertRaisesRegex(tutti.UsageError, "spin_polls is 'often' .from the program.; it must be -1"):
            create(Shelf(), spin_polls="often")
        with self.assertRaisesRegex(tutti.UsageError, "unknown setting 'spinpolls'; the nearest is spin_polls"):
            create(Shelf(), spinpolls=3)
        for raised, kind, words in ((OSError("burnt"), tutti.PeerLostError, "burnt"),
                                    (KeyboardInterrupt(), KeyboardInterrupt, "")):
            shelf = Shelf()
            shelf.set = shelf.get = shelf.add = shelf.wait = unittest.mock.Mock(side_effect=raised)
            with self.assertRaisesRegex(kind, words):
                create(shelf)

    def test_messages_and_groups(self):
        for size in (2, 3):
            run(size, messages)

    def test_buffers_of_every_kind(self):
        run(2, all_kinds_of_memory)

    def test_groups_of_ranks(self):
        run(4, groups_of_ranks)

    def test_a_wrong_call_is_a_usage_error_and_harms_nothing(self):
        run(2, wrong)

    def test_arrays_are_let_go_of(self):
        def body(comm):
            class Numbers(numpy.ndarray):
                pass

            data = numpy.ones(1000).view(Numbers)
            gone = weakref.ref(data)
            work = comm.all_reduce_async(data)
            work.wait()
            del data, work
            comm.all_reduce_async(numpy.ones(1)).wait()  # releases what finished calls have used
            gc.collect()
            assert gone() is None

        run(2, body)

    def test_a_work_can_be_awaited(self):
        ticked = threading.Event()

        def body(comm):
            async def both():
                async def tick():
                    for _ in range(10):
                        await asyncio.sleep(0.001)
                    ticked.set()

                data = numpy.ones(1000)
                if comm.rank == 0:
                    while not ticked.is_set():
                        await asyncio.sleep(0.001)
                else:
                    ticking = asyncio.ensure_future(tick())
                await comm.all_reduce_async(data)  # rank 1's loop continues during the wait
                equal(data, numpy.full(1000, 2.0))
                assert await comm.barrier_async() is None

            asyncio.run(both())

        run(2, body)

    def test_errors_of_ranks_have_classes_and_names(self):
        def mismatch(comm):
            with self.assertRaisesRegex(tutti.MismatchError, "3 x f64"):
                comm.all_reduce(numpy.zeros(3 + comm.rank))

        run(2, mismatch)

        over = threading.Event()

        def deadline(comm):
            if comm.rank == 0:
                with self.assertRaisesRegex(tutti.TimeoutError, "rank 1"):
                    comm.barrier(timeout=0.2)
                over.set()
            over.wait(60)

        run(2, deadline)

        def aborted(comm):
            if comm.rank == 0:
                comm.abort("enough of it")
            with self.assertRaisesRegex(tutti.PeerLostError, "rank 0 aborted .*enough of it"):
                comm.recv(numpy.zeros(1), 1 - comm.rank)

        run(2, aborted)

    def test_waiting_with_a_limit_ends_the_waiting_alone(self):
        def body(comm):
            if comm.rank == 0:
                work = comm.recv_async(data := numpy.zeros(1), 1)
                with self.assertRaises(TimeoutError):
                    work.wait(0.05)
                comm.barrier()
                work.wait()
                self.assertEqual((data[0], work.received), (5.0, (1, 0, 1)))
            else:
                comm.barrier()
                comm.send(numpy.array([5.0]), 0)

        run(2, body)

    def test_dlpack(self):
        class Wrapped:  # offers only DLPack
            def __init__(self, numbers):
                self.numbers = numbers

            def __dlpack__(self, **options):
                return self.numbers.__dlpack__(**options)

            def __dlpack_device__(self):
                return self.numbers.__dlpack_device__()

        def body(comm):
            numbers = numpy.ones(5, "float32")
            comm.all_reduce(Wrapped(numbers))
            equal(numbers, numpy.full(5, 2.0))
            with self.assertRaisesRegex(tutti.UsageError, "contiguous"):
                comm.all_reduce(Wrapped(numpy.ones((3, 3))[:, 0]))

        run(2, body)

    def test_counts_are_compared_with_the_arrays(self):
        def body(comm):
            small, counts, wanted = numpy.ones(1), [100, 100], "an array of . elements where .* are needed"
            for call in (lambda: comm.reduce_scatter(numpy.ones(4), numpy.ones(100), counts=counts),
                         lambda: comm.reduce_scatter(numpy.ones(200), small, counts=counts),
                         lambda: comm.all_to_all(small, numpy.ones(200), counts, counts),
                         lambda: comm.all_to_all(numpy.ones(200), small, counts, counts),
                         lambda: comm.gather(numpy.ones(100), small, comm.rank, counts),
                         lambda: comm.scatter(small, numpy.ones(100), comm.rank, counts)):
                with self.assertRaisesRegex(tutti.UsageError, wanted):
                    call()

        run(2, body)

    def test_the_stubs_tell_all_that_there_is(self):
        stubs = ast.parse((pathlib.Path(tutti.__file__).parent / "_core.pyi").read_text(encoding="utf-8"))
        told = {each.name: {member.name for member in each.body if isinstance(member, ast.FunctionDef)}
                for each in stubs.body if isinstance(each, ast.ClassDef)}
        classes = {name: getattr(module, name) for module in (tutti, tutti.schedule) for name in module.__all__
                   if not name.endswith("Error") and isinstance(getattr(module, name), type)}
        self.assertEqual(set(told), set(classes))
        for name, described in classes.items():
            there = {member for member in vars(described) if not member.startswith("_")}
            self.assertEqual(there, {member for member in told[name] if not member.startswith("_")})

    def script(self, text, *options):
        return scripts.run(text, *options)

    def test_tutti_run_starts_a_program(self):
        ended = self.script(
            "comm = tutti.Communicator.from_env(timeout=60)\n"
            "data = numpy.full(4, comm.rank)\n"
            "comm.all_reduce(data)\n"
            "sys.stdout.write(f'{comm.rank} {comm.size} {data[0]:.0f} {sys.argv[1]}\\n')\n",  # one write
            "-n", "3", "--no-tag", "--max-failures", "0", "--max-restarts", "0")
        self.assertEqual(ended.returncode, 0, ended.stderr)
        self.assertEqual(sorted(ended.stdout.split("\n")), ["", "0 3 3 word", "1 3 3 word", "2 3 3 word"])

    def test_readmes_program_runs_with_what_pip_brings(self):
        project = pathlib.Path(__file__).resolve().parents[3]
        program = re.search(r"^```python\n(.*?)^```", (project / "README.md").read_text(encoding="utf-8"), re.M | re.S)[1]
        imported = {name.name for each in ast.walk(ast.parse(program)) if isinstance(each, ast.Import) for name in each.names}
        brought = re.search(r"^dependencies = \[(.*)\]$", (project / "pyproject.toml").read_text(encoding="utf-8"), re.M)
        self.assertLessEqual(imported, {"tutti", *re.findall(r'"(\w+)', brought[1] if brought else "")})
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "program.py"
            path.write_text(program, encoding="utf-8")
            ended = subprocess.run([sys.executable, "-m", "tutti.run", "-n", "2", "--timeout", "60", path],
                                   capture_output=True, text=True)
        self.assertEqual(ended.returncode, 0, ended.stderr)

    def test_a_newcomer_comes_to_a_running_job(self):
        ended = self.script(
            "import os, subprocess\n"
            "if 'NEWCOMER' in os.environ:\n    comm = tutti.Communicator.join(timeout=60)\n"
            "else:\n    comm = tutti.Communicator.from_env(timeout=60)\n    if comm.rank == 0:\n"
            "        own = {name: value for name, value in os.environ.items()\n"
            "               if name not in ('RANK', 'LOCAL_RANK', 'WORLD_SIZE', 'LOCAL_WORLD_SIZE')}\n"
            "        newcomer = subprocess.Popen([sys.executable, sys.argv[0]], env=own | {'NEWCOMER': '1'})\n"
            "    comm = comm.grow(1, patience=30)\n"
            "data = numpy.full(4, comm.rank)\ncomm.all_reduce(data)\n"
            "sys.stdout.write(f'{comm.rank} {comm.size} {data[0]:.0f}\\n')\nsys.stdout.flush()\n"
            "if comm.rank == 0: assert newcomer.wait() == 0\n", "-n", "2", "--no-tag")
        self.assertEqual(ended.returncode, 0, ended.stderr)
        self.assertEqual(sorted(ended.stdout.split("\n")), ["", "0 3 3", "1 3 3", "2 3 3"])

    def test_a_patience_of_zero_is_the_usual_one_as_in_c(self):
        ended = self.script(
            "import time\ncomm = tutti.Communicator.from_env(timeout=60)\n"
            "if comm.rank == 1: time.sleep(0.3)\n"
            "assert comm.agree(1, 0) == (1, [])\n"
            "if comm.rank == 1: time.sleep(0.3)\n"
            "assert comm.shrink(0).size == 2\n", "-n", "2", "--no-tag")
        self.assertEqual(ended.returncode, 0, ended.stderr)

    def test_ranks_go_on_after_a_failure(self):
        ended = self.script(
            "comm = tutti.Communicator.from_env(timeout=60)\n"
            "if comm.rank == 1: comm.abort('once more')\n"
            "try:\n    while True: comm.barrier()\n"
            "except tutti.PeerLostError:\n    agreed = comm.agree(2 | 4 << comm.rank, patience=30)\n"
            "    assert agreed == (2, []), agreed\n    comm = comm.shrink(patience=30, least=2)\n"
            "data = numpy.full(4, comm.rank)\n"
            "comm.all_reduce(data)\n"
            "sys.stdout.write(f'{comm.rank} {comm.size} {data[0]:.0f}\\n')\n", "-n", "3", "--no-tag")
        self.assertEqual(ended.returncode, 0, ended.stderr)
        self.assertEqual(sorted(ended.stdout.split("\n")), ["", "0 3 3", "1 3 3", "2 3 3"])

        def body(comm):
            with self.assertRaisesRegex(tutti.UsageError, "shrink"):
                comm.shrink()
            with self.assertRaisesRegex(tutti.UsageError, "grow"):
                comm.grow(1)
            with self.assertRaisesRegex(tutti.UsageError, "agree"):
                comm.agree(1)

        run(1, body)

    def test_an_interpreter_ends_with_calls_under_way(self):
        ended = self.script(
            "comm = tutti.Communicator.from_env(timeout=60)\n"
            "comm.all_reduce_async(numpy.ones(100000))\n"
            "comm.barrier()\n"
            "work = comm.recv_async(numpy.ones(1), 1 - comm.rank)\n"
            "work._then(print)\n"
            "print('end', flush=True)\n"
            "import os; comm.abort('the end')\n", "-n", "2", "--timeout", "120")
        self.assertEqual(ended.stdout.count("end"), 2, ended)
        self.assertNotIn("Fatal", ended.stderr)

    def test_an_interpreter_ends_while_a_callback_waits_for_its_lock(self):
        # The main thread keeps the lock from abort(), which has the callback called in another thread, until the
        # interpreter ends. The callback asks for the lock again and again, for longer than the end waits.
        ended = self.script(
            "import time\ncomm = tutti.Communicator.from_env(timeout=60)\ncomm.barrier()\n"
            "comm.recv_async(numpy.ones(1), 1 - comm.rank)._then(lambda: [time.sleep(0.01) for _ in range(400)])\n"
            "sys.setswitchinterval(1000)\ncomm.abort('the end')\n"
            "until = time.monotonic() + 0.1\nwhile time.monotonic() < until: pass\n", "-n", "2", "--timeout", "120")
        self.assertEqual(ended.returncode, 0, ended.stderr)

    def test_an_interpreter_ends_while_a_daemon_thread_is_in_a_call(self):
        ended = self.script(
            "import threading\ncomm = tutti.Communicator.from_env(timeout=60)\n"
            "work, called = comm.recv_async(numpy.ones(1), 1 - comm.rank), threading.Event()\n"
            "threading.Thread(target=lambda: (called.set(), work.wait()), daemon=True).start()\n"
            "called.wait()\ncomm.abort('the end')\n", "-n", "2", "--timeout", "120")
        self.assertEqual(ended.returncode, 0, ended.stderr)


if __name__ == "__main__":
    report.main()
