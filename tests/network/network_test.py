#!/usr/bin/env python3
"""Tests ranks over networks that lose packets and have long delays, which netem simulates.

usage: tests/network/network_test.py <test_runtime> <tutti-perf>

If this kernel has no netem, TUTTI_TEST_NETEM names a command that runs another command on a kernel that has it.
"""
import os
import pathlib
import re
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "perf" / "compare"))
from machines import Machines  # noqa: E402
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "watchdog"))
import watched  # noqa: E402

TEST_RUNTIME, TUTTI_PERF = map(os.path.abspath, sys.argv[1:3])
ELSEWHERE = "TUTTI_TEST_NETEM"
LOSS = "delay 20ms loss 1%"
PIPE, PIPE_BYTES_PER_S = "delay 50ms rate 100mbit limit 10000", 12.5e6
BYTES = 16 << 20


def netem_works():
    probe = ["unshare", "--net", "tc", "qdisc", "add", "dev", "lo", "root", "netem", *LOSS.split()]
    try:
        return subprocess.run(probe, stderr=subprocess.DEVNULL, check=False).returncode == 0
    except FileNotFoundError:
        return False


def run(command, **environment):
    """Runs a command and returns its output. Raises an exception if it fails."""
    done = subprocess.run(command, env=dict(os.environ, **environment), capture_output=True, text=True, timeout=200,
                          check=False)
    if done.returncode != 0:
        raise AssertionError(f"exit status {done.returncode}: {command}\n{done.stdout}{done.stderr}")
    return done.stdout


def run_ranks(machines, program):
    """Runs a program with one rank on each machine, and returns the output of rank 0."""
    environment = dict(os.environ, WORLD_SIZE=str(machines.count), MASTER_ADDR=machines.address(0), MASTER_PORT="29500",
                       TUTTI_TRUST_NETWORK="yes", LOCAL_RANK="0")
    ranks = [subprocess.Popen(machines.on(rank, program), env=dict(environment, RANK=str(rank)), text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT) for rank in range(machines.count)]
    try:
        outputs = [rank.communicate(timeout=200)[0] for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    if any(rank.returncode for rank in ranks):
        raise AssertionError("\n".join(outputs))
    return outputs[0]


@unittest.skipUnless(netem_works(), f"this kernel has no netem (set {ELSEWHERE} to a command that runs another where it is)")
class Network(unittest.TestCase):
    def passed(self, output, number):
        self.assertRegex(output, rf"\[  PASSED  \] {number} tests?\.")
        self.assertNotIn("SKIPPED", output)

    def test_loss_and_delay_never_change_a_result_of_any_operation(self):
        lossy = f"ip link set lo mtu 1500 up && tc qdisc add dev lo root netem {LOSS} && exec \"$@\""
        cases = ["RandomMixedOperationsWithoutBarriersKeepTheirOrder/tcp4",
                 "SampledTypesAndReductionsGiveExactResults/tcp3",
                 "EveryAlgorithmMovesBlocksOfRandomLengthsInAndOutOfPlace/tcp2"]
        self.passed(run(["unshare", "--net", "sh", "-c", lossy, "sh", TEST_RUNTIME,
                         "--gtest_filter=" + ":".join("Transports/Conformance." + case for case in cases)]), len(cases))

    def test_loss_and_delay_never_change_what_processes_on_two_machines_get(self):
        self.passed(run([TEST_RUNTIME, "--gtest_filter=TwoMachines.RanksReduceGatherSplitAndSendWhereverTheyAre"],
                        TUTTI_TEST_CABLE=LOSS), 1)

    def test_a_long_fat_pipe_moves_what_is_right_and_says_how_full_it_is(self):
        with Machines() as machines:
            machines.impair(PIPE)
            for operation in ("all_reduce", "sendrecv"):
                words = [TUTTI_PERF, operation, "-b", BYTES, "-e", BYTES, "-n", 2, "-w", 1]
                output = run_ranks(machines, [str(word) for word in words])
                self.assertRegex(output, r"Out of bounds values : 0 OK")
                time_s = float(re.search(rf"^ *{BYTES}(?: +\S+){{4}} +(\S+)", output, re.M).group(1)) / 1e6
                print(f"{operation}, 16 MiB each way, {PIPE}: {time_s:.2f} s, "
                      f"{BYTES / time_s / PIPE_BYTES_PER_S:.0%} of the line's rate", file=sys.stderr)


if __name__ == "__main__":
    prefix = os.environ.pop(ELSEWHERE, "").split()
    if prefix and not netem_works():
        os.execvp(prefix[0], [*prefix, sys.executable, os.path.abspath(__file__), TEST_RUNTIME, TUTTI_PERF])
    watched.PATIENCE_S = 400  # each run has 200 s, perhaps on a virtual machine
    watched.main()
