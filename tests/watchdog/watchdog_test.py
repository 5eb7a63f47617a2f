#!/usr/bin/env python3
"""Runs tests that hang on purpose. Each must end soon, with the stacks of all threads and processes that hung.

usage: tests/watchdog/watchdog_test.py <hang>
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

FOLDER = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(FOLDER))
import watched  # noqa: E402

HANG = os.path.abspath(sys.argv[1])
TOOL = shutil.which("eu-stack") or shutil.which("gdb")
PYTHON_HANGS = f"""
import subprocess, sys, unittest
sys.path.insert(0, {str(FOLDER)!r})
import watched
class Hangs(unittest.TestCase):
    def test_that_waits_for_what_does_not_end(self):
        child = subprocess.Popen([sys.executable, "-c", "def waits_in_a_child():\\n  import time; time.sleep(1000)\\nwaits_in_a_child()"])
        print("child", child.pid, flush=True)
        child.wait()
watched.main()
"""


def run(command, **environment):
    """Runs a command. Returns its exit status and its output."""
    done = subprocess.run(command, env=dict(os.environ, TUTTI_TEST_PATIENCE="1", **environment), stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, timeout=150, check=False)
    return done.returncode, done.stdout


def lives(pid):
    try:
        return "\nState:\tZ" not in pathlib.Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


@unittest.skipUnless(TOOL, "neither eu-stack nor gdb is installed")
class Watchdog(unittest.TestCase):
    def hang(self, name, **environment):
        status, text = run([HANG, f"--gtest_filter=Hangs.{name}"], **environment)
        self.assertEqual(status, 1, text)
        self.assertIn(f"watchdog: Hangs.{name} has taken more than 1 s", text)
        for pid in re.findall(r"child (\d+)$", text, re.M):
            self.assertFalse(lives(pid), text)
        return text

    def test_a_test_that_hangs_ends_with_the_stacks_of_its_threads_and_of_its_children(self):
        text = self.hang("InAThreadInAChildAndInOneThatIsStopped")
        self.assertEqual(len(re.findall(r"child \d+$", text, re.M)), 2, text)
        for function in ("hangs_in_a_thread", "hangs_in_a_child", "is_stopped", "InAThreadInAChildAndInOneThatIsStopped_Test"):
            self.assertIn(function, text)

    def test_a_process_is_found_whose_parent_has_ended(self):
        self.assertRegex(self.hang("InAProgramWhoseParentHasEnded"), "process [0-9]+, .*: sleep 1000")

    def test_no_lock_that_a_test_holds_keeps_the_watchdog(self):
        self.assertIn("InsideMallocWithItsLock_Test", self.hang("InsideMallocWithItsLock"))

    def test_a_test_that_knows_to_take_longer_is_left_alone(self):
        status, text = run([HANG, "--gtest_filter=Passes.*"])
        self.assertEqual(status, 0, text)
        self.assertIn("a test has found something stuck", text)
        self.assertIn("testing::Test::Run()", text)

    def test_a_python_test_that_hangs_ends_with_the_stacks_of_python_code_too(self):
        status, text = run([sys.executable, "-c", PYTHON_HANGS])
        self.assertEqual(status, -6, text)
        self.assertRegex(text, "test_that_waits_for_what_does_not_end.* has taken more than 1 s")
        self.assertIn("in test_that_waits_for_what_does_not_end", text)
        self.assertIn("in waits_in_a_child", text)
        self.assertFalse(lives(re.search(r"child (\d+)$", text, re.M)[1]), text)


class WithoutATool(unittest.TestCase):
    def test_the_watchdog_says_what_is_missing_and_ends_the_test_all_the_same(self):
        with tempfile.TemporaryDirectory() as empty:
            status, text = run([HANG, "--gtest_filter=Hangs.InsideMallocWithItsLock"], PATH=empty)
        self.assertEqual(status, 1, text)
        self.assertIn("`./dev setup` installs elfutils", text)


if __name__ == "__main__":
    watched.main()
