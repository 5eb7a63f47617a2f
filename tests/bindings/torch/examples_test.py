#!/usr/bin/env python3
"""Runs the example programs in PyTorch as their users start them."""

import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

import report

FOLDER = pathlib.Path(__file__).resolve().parents[3] / "examples" / "torch"


def printed(program, *arguments, ranks=2):
    ended = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks),
         str(FOLDER / program), *arguments], capture_output=True, text=True, timeout=300)
    if ended.returncode != 0:
        raise AssertionError(f"{program} ended with {ended.returncode}: {ended.stderr[-2000:]}")
    return ended.stdout


class Examples(unittest.TestCase):
    def test_ddp_learns_the_digits(self):
        text = printed("ddp.py", "--epochs", "6")
        losses = [float(each) for each in re.findall(r"loss ([\d.]+)", text)]
        self.assertEqual(len(losses), 6)
        self.assertLess(losses[-1], losses[0] / 4)
        self.assertGreater(float(re.search(r"trained on: ([\d.]+)", text).group(1)), 0.9)

    def test_both_ways_come_to_the_same_parameters(self):
        text = printed("two_ways.py", "--epochs", "8", ranks=3)
        reached = [float(each) for each in re.findall(r"trained on ([\d.]+)", text)]
        self.assertEqual(len(reached), 2)
        self.assertGreater(min(reached), 0.85)
        self.assertLess(float(re.search(r"at most (\S+) apart", text).group(1)), 1e-10)

    def test_asynchronous_training_goes_on_from_its_checkpoint(self):
        with tempfile.TemporaryDirectory() as folder:
            checkpoint = os.path.join(folder, "state")
            first = printed("asynchronous.py", "--steps", "100", "--checkpoint", checkpoint)
            second = printed("asynchronous.py", "--steps", "300", "--checkpoint", checkpoint)
        self.assertIn("steps 0 to 100", first)
        self.assertIn("steps 100 to 400", second)
        reached = [float(re.search(r"trained on ([\d.]+)", text).group(1)) for text in (first, second)]
        self.assertGreater(reached[1], reached[0])
        self.assertGreater(reached[1], 0.85)


if __name__ == "__main__":
    report.main()
