#!/usr/bin/env python3
"""Runs a part of the matrix of faults, and some random kills, over real processes.

usage: tests/faults/faults_test.py <worker>

Each fault comes once over each of its transports, and a kill at each moment.
"""

import os
import pathlib
import subprocess
import sys
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
sys.path.insert(0, str(HERE.parent / "watchdog"))
import box  # noqa: E402
import table  # noqa: E402
import watched  # noqa: E402

WORKER = os.path.abspath(sys.argv[1])


@unittest.skipIf(box.why_no_box(), f"missing: {box.why_no_box()}")
class Faults(unittest.TestCase):
    def run_here(self, program, *arguments):
        done = subprocess.run([HERE / program, WORKER, *arguments], text=True, capture_output=True, check=False,
                              timeout=watched.PATIENCE_S)
        print(done.stdout, file=sys.stderr)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout

    def test_each_fault_ends_as_the_table_says(self):
        output = self.run_here("matrix.py", "--part", "--seed", "1")
        for fault in table.faults():
            self.assertIn(f"\n{fault} / ", "\n" + output)

    def test_random_kills_leave_the_others_together(self):
        self.assertRegex(self.run_here("kills.py", "--kills", "12", "--seed", "1"), r"; 0 wrong")


if __name__ == "__main__":
    watched.PATIENCE_S = 400
    watched.main()
