#!/usr/bin/env python3
"""Tests what Ctrl-C does to calls of the Python package."""

import unittest

import numpy
import report
import scripts

import tutti


# A thread that runs this sends SIGINT once `calls` is set and the main thread is asleep.
INTERRUPT_WHEN_ASLEEP = """import os, signal, threading, time
def interrupt_when_asleep():
    calls.wait()
    while open(f'/proc/{os.getpid()}/stat').read().rpartition(') ')[2][0] != 'S': time.sleep(0.001)
    os.kill(os.getpid(), signal.SIGINT)
"""


class Interrupt(unittest.TestCase):
    def test_ctrl_c_ends_a_call_that_waits(self):
        ended = scripts.run(
            INTERRUPT_WHEN_ASLEEP +
            "calls = threading.Event()\n"
            "comm = tutti.Communicator.from_env(timeout=60)\n"
            "if comm.rank == 1: time.sleep(600)\n"
            "try:\n    threading.Thread(target=interrupt_when_asleep).start()\n    calls.set()\n"
            "    comm.recv(numpy.ones(1), 1)\n"
            "except KeyboardInterrupt:\n    print('interrupted', flush=True)\n    sys.exit(5)\n", "-n", "2", "--timeout", "120")
        self.assertIn("interrupted", ended.stdout, ended.stderr)
        self.assertEqual(ended.returncode, 5)

    def test_ctrl_c_ends_starts_splits_and_ends_that_wait(self):
        """Rank 1 goes no further than rank 0's wait; a helper thread sends SIGINT once the main thread is asleep."""
        ended = scripts.run(
            INTERRUPT_WHEN_ASLEEP +
            "def expect_interrupt(call):\n"
            "    calls.clear()\n"
            "    helper = threading.Thread(target=interrupt_when_asleep)\n"
            "    helper.start()\n"
            "    began = time.monotonic()\n"
            "    try:\n        calls.set()\n        call()\n"
            "    except KeyboardInterrupt:\n        print('interrupted', flush=True)\n"
            "    helper.join()\n"
            "    assert time.monotonic() - began < 30\n"
            "calls = threading.Event()\n"
            "comm = tutti.Communicator.from_env(timeout=120, startup_timeout=120)\n"
            "if comm.rank == 1: time.sleep(600)\n"
            "expect_interrupt(comm.dup)\n"
            "comm.close()\n"
            "pair = tutti.Communicator.in_process(2, timeout=120)\n"
            "pair[0].barrier_async()\n"
            "expect_interrupt(pair[0].close)\n"
            "expect_interrupt(lambda: tutti.Communicator.from_env(timeout=120, startup_timeout=120))\n"
            "os._exit(5)\n", "-n", "2", "--timeout", "120")
        self.assertEqual(ended.stdout.count("interrupted"), 3, ended.stderr)
        self.assertEqual(ended.returncode, 5)

    def test_an_interrupt_waits_until_its_call_ends(self):
        """The signal's handler takes long, and the call ends well meanwhile; or a function of the program is interrupted."""
        ended = scripts.run(
            "import asyncio, os, signal, threading, time\n"
            "def expect(call):\n"
            "    try:\n        call()\n        print('missed', flush=True)\n"
            "    except KeyboardInterrupt:\n        print('interrupted', flush=True)\n"
            "handling = threading.Event()\n"
            "def handler(*_):\n    handling.set()\n    time.sleep(0.5)\n    raise KeyboardInterrupt\n"
            "def answer(call):\n    handling.wait()\n    time.sleep(0.1)\n    call()\n"
            "def with_answer(wait, call):\n"
            "    handling.clear()\n    helper = threading.Thread(target=answer, args=(call,))\n    helper.start()\n"
            "    threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()\n"
            "    expect(wait)\n    helper.join()\n"
            "signal.signal(signal.SIGINT, handler)\n"
            "pair = tutti.Communicator.in_process(2, timeout=20)\n"
            "with_answer(lambda: pair[0].recv(numpy.ones(1), 1), lambda: pair[1].send(numpy.ones(1), 0))\n"
            "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
            "pair = tutti.Communicator.in_process(2, timeout=20)\n"
            "def slow(left, right):\n    until = time.monotonic() + 0.3\n    while time.monotonic() < until: pass\n"
            "reduction = tutti.Reduction('slow', slow, 'f64')\n"
            "works = [each.all_reduce_async(numpy.ones(20000), reduction, algorithm='one_shot') for each in pair]\n"
            "threading.Timer(1, lambda: os.kill(os.getpid(), signal.SIGINT)).start()\n"
            "expect(works[0].wait)\n"
            "del works, pair\n"
            "pair = tutti.Communicator.in_process(2, timeout=20)\n"
            "async def main():\n"
            "    async def waits(): await pair[0].barrier_async()\n"
            "    task = asyncio.create_task(waits())\n    await asyncio.sleep(0.1)\n"
            "    threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGINT)).start()\n"
            "    signal.signal(signal.SIGINT, signal.default_int_handler)\n"
            "    expect(pair[0].close)\n"
            "    try:\n        await asyncio.wait_for(task, 20)\n"
            "    except tutti.PeerLostError:\n        print('told', flush=True)\n"
            "asyncio.run(main())\n", "-n", "1", "--no-tag", "--timeout", "120")
        self.assertEqual((ended.returncode, ended.stdout.split()), (0, ["interrupted"] * 3 + ["told"]), ended.stderr)

    def test_a_block_that_an_exception_leaves_does_not_wait_for_pending_calls(self):
        pair = tutti.Communicator.in_process(2, timeout=100)
        with self.assertRaises(ZeroDivisionError), pair[0] as comm:
            comm.all_reduce_async(numpy.ones(3))
            1 // 0  # noqa: B018
        with self.assertRaisesRegex(tutti.PeerLostError, "left its `with` block"):
            pair[1].recv(numpy.ones(3), 0)  # A collective might meet the message of the all_reduce.

    def test_ctrl_c_ends_a_communicator_that_nobody_has_any_more(self):
        ended = scripts.run(
            "import os, signal, threading, time\n"
            "pair = tutti.Communicator.in_process(2, timeout=60)\npair[0].barrier_async()\n"
            "threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGINT)).start()\n"
            "began = time.monotonic()\n"
            "try:\n    del pair[0]\n    while time.monotonic() - began < 30: pass\n"
            "except KeyboardInterrupt:\n    print(time.monotonic() - began < 20, flush=True)\n", "-n", "1", "--no-tag")
        self.assertEqual((ended.returncode, ended.stdout), (0, "True\n"), ended.stderr)

    def test_a_program_that_an_exception_ends_does_not_wait_for_pending_calls(self):
        ended = scripts.run("pair = tutti.Communicator.in_process(2, timeout=200)\npair[0].barrier_async()\nraise KeyboardInterrupt\n",
                            "-n", "1", "--no-tag", "--timeout", "100")
        self.assertIn("KeyboardInterrupt", ended.stderr)
        self.assertNotIn("has been under way", ended.stderr)

    def test_ctrl_c_in_a_store_of_python_is_said_in_the_store(self):
        ended = scripts.run(
            "import os, signal, threading, time\n"
            "class Shared:\n"
            "    def __init__(self): self.all, self.changed = {}, threading.Condition()\n"
            "    def set(self, key, value, timeout):\n"
            "        with self.changed: self.all[key] = value; self.changed.notify_all()\n"
            "    def get(self, key, timeout):\n"
            "        with self.changed:\n"
            "            if not self.changed.wait_for(lambda: key in self.all, timeout): raise TimeoutError(key)\n"
            "            return self.all[key]\n"
            "    wait = get\n"
            "    def add(self, key, amount, timeout):\n"
            "        with self.changed:\n"
            "            self.all[key] = str(int(self.all.get(key, b'0')) + amount).encode()\n"
            "            self.changed.notify_all()\n            return int(self.all[key])\n"
            "store = Shared()\n"
            "threading.Timer(1, lambda: os.kill(os.getpid(), signal.SIGINT)).start()\n"
            "try:\n    tutti.Communicator.create(store, 1, 3, startup_timeout=20)\n"
            "except KeyboardInterrupt:\n    print(*(value.decode() for key, value in store.all.items() if key.endswith('/lost')))\n",
            "-n", "1", "--no-tag", "--timeout", "120")
        self.assertRegex(ended.stdout, "rank 1 could not join the others: .*interrupted", ended.stderr)

    def test_ctrl_c_comes_before_the_error_that_another_ranks_interrupt_causes(self):
        ended = scripts.run(
            "import os, signal, threading, time\n"
            "def interrupt_both(peer):\n"
            "    while open(f'/proc/{os.getpid()}/stat').read().rpartition(') ')[2][0] != 'S': time.sleep(0.001)\n"
            "    signal.pthread_kill(threading.get_ident(), signal.SIGINT)\n"
            "    peer.abort('interrupted')\n"
            "for receive in (lambda comm: comm.recv(numpy.ones(1), 1), lambda comm: comm.recv_async(numpy.ones(1), 1).wait()):\n"
            "    comm, peer = tutti.Communicator.in_process(2, timeout=60)\n"
            "    try:\n        helper = threading.Thread(target=interrupt_both, args=(peer,))\n"
            "        helper.start()\n        receive(comm)\n"
            "    except KeyboardInterrupt:\n        print('interrupted', flush=True)\n"
            "    helper.join()\n", "-n", "1", "--timeout", "120")
        self.assertEqual(ended.returncode, 0, ended.stderr)
        self.assertEqual(ended.stdout.count("interrupted"), 2, ended.stderr)


if __name__ == "__main__":
    report.main()
