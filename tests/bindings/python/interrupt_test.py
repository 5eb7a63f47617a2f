#!/usr/bin/env python3
"""Tests what Ctrl-C does to calls of the Python package."""

import unittest

import report
import scripts


class Interrupt(unittest.TestCase):
    def test_ctrl_c_ends_a_call_that_waits(self):
        ended = scripts.run(
            "import os, signal, threading, time\n"
            "def interrupt_when_asleep():\n"
            "    calls.wait()\n"
            "    while open(f'/proc/{os.getpid()}/stat').read().rpartition(') ')[2][0] != 'S': time.sleep(0.001)\n"
            "    os.kill(os.getpid(), signal.SIGINT)\n"
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
            "import os, signal, threading, time\n"
            "def interrupt_when_asleep():\n"
            "    calls.wait()\n"
            "    while open(f'/proc/{os.getpid()}/stat').read().rpartition(') ')[2][0] != 'S': time.sleep(0.001)\n"
            "    os.kill(os.getpid(), signal.SIGINT)\n"
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
