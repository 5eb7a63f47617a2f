#!/usr/bin/env python3
"""Kills random ranks of jobs under load at random moments, until the time is over or something is wrong.

usage: tests/faults/kills.py <worker> [--minutes <n>] [--kills <n>] [--seed <n>]

A job has 4 to 8 processes, which do collectives, sends and splits without end, over shared memory or TCP. One or two of them
are killed, several times; the others shrink, and sometimes a newcomer comes for whom they grow. At the end the ranks that were
not killed must be members of one communicator, all of whose results were right. Nothing may be left. Rank 0 is killed in jobs with
a file store. The exit status is 1 if something is wrong, and 77 if no box can be made here.
"""

import argparse
import os
import pathlib
import random
import shutil
import signal
import sys
import tempfile
import time

import box
import job as jobs
import table

SETTINGS = {"TUTTI_TIMEOUT_MS": "40000", "TUTTI_STARTUP_TIMEOUT_MS": "40000", "WORKER_PATIENCE_MS": "15000",
            "WORKER_GROW_MS": "3000"}


class Wrong(Exception):
    """The job did what none may do."""


def demand(what, text):
    if not what:
        raise Wrong(text)


class Killing:
    """One job. `seed` says all that is done to it, though not what meets it."""

    def __init__(self, worker, seed, folder):
        self._draw = random.Random(seed)
        draw = self._draw
        self._transport = draw.choice([table.SHM, table.SHM, table.TCP, table.TCP, table.TLS])
        self._files, self._size = draw.random() < 0.5, draw.randint(4, 8)
        settings = dict(SETTINGS, **({"TUTTI_STORE": f"file://{folder}/store"} if self._files else {}))
        self._job = jobs.Job(worker, folder, self._size, "mixed", "shrink", settings, self._transport)
        self._living, self.kills, self.newcomers = [], 0, 0

    def describe(self):
        return f"{self._size} ranks over {self._transport}{', file store' if self._files else ''}"

    def run(self):
        with self._job as job:
            try:
                self._begin()
                for _ in range(self._draw.randint(1, 4)):
                    time.sleep(self._draw.choice([0, 0.002, 0.02, 0.1]) * self._draw.random())
                    self._kill()
                    if self._draw.random() < 0.4:
                        self._come()
                    if self._draw.random() < 0.7:
                        self._settle()
                self._settle()
                self._end()
            except Wrong as wrong:
                raise Wrong(f"{wrong}\n{job.story()}") from None

    def _begin(self):
        self._living = list(self._job.ranks)
        for rank in self._living:
            demand(rank.wait_for("begin"), f"rank {rank.number} did not begin")
        self._job.tell("go")
        for rank in self._living:
            demand(rank.wait_for("in$"), f"rank {rank.number} did not start")

    def _kill(self):
        """Kills one or two at once, and leaves two; rank 0 only if the store outlives it."""
        may_die = [rank for rank in self._living if self._files or rank.number != 0]
        for _ in range(min(self._draw.randint(1, 2), len(self._living) - 2, len(may_die))):
            victim = may_die.pop(self._draw.randrange(len(may_die)))
            self._living.remove(victim)
            victim.signal(signal.SIGKILL)
            self.kills += 1

    def _come(self):
        """Starts a newcomer, which may be killed while it joins."""
        newcomer = self._job.newcomer()
        self.newcomers += 1
        if self._draw.random() < 0.3:
            self._living[0].tell("grow")
            time.sleep(self._draw.random() * 0.1)
            newcomer.signal(signal.SIGKILL)
            self.kills += 1
            return
        end = time.monotonic() + jobs.PATIENCE_S
        while not newcomer.wait_for("joined", 0.5):
            demand(time.monotonic() < end and newcomer.status() is None, f"the newcomer {newcomer.number} did not join")
            self._living[0].tell("grow")
        self._living.append(newcomer)

    def _settle(self):
        """Waits until all that live are in a communicator without the dead."""
        living, end = {rank.number for rank in self._living}, time.monotonic() + jobs.PATIENCE_S
        for rank in self._living:
            while True:
                demand(rank.status() is None, f"rank {rank.number} has ended")
                made = rank.all(r"(?:joined|shrunk|grown)([ \d]*)")
                if made and set(map(int, made[-1][1].group(1).split())) == living:
                    break
                demand(time.monotonic() < end, f"rank {rank.number} is not together with {sorted(living)}")
                time.sleep(0.01)

    def _end(self):
        self._job.tell("stop")
        living = {rank.number for rank in self._living}
        for rank in self._living:
            last = rank.wait_for(r"last([ \d]*)")
            demand(last, f"rank {rank.number} hangs or has failed")
            demand(set(map(int, last.group(1).split())) == living, f"rank {rank.number} ended among{last.group(1)}")
            demand(rank.wait_for("ended") and rank.wait_for("status"), f"rank {rank.number} did not end")
            demand(rank.status() == 0, f"rank {rank.number} ended with status {rank.status()}")
            for _, match in rank.all(r"error (\w+)"):
                demand(match.group(1) in ("peer_lost", "timeout"), f"rank {rank.number} got {match.group(1)}")


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("worker", type=os.path.abspath)
    arguments.add_argument("--minutes", type=float, default=10)
    arguments.add_argument("--kills", type=int, default=10 ** 9)
    arguments.add_argument("--seed", type=int, default=int(time.time()) * 1000)
    arguments.add_argument("--keep-going", action="store_true", help="tell what is wrong and go on")
    given = arguments.parse_args()
    if box.INSIDE not in os.environ and (missing := box.why_no_box()):
        print("missing:", missing, file=sys.stderr)
        return 77
    box.enter()
    end, done, kills, newcomers, wrong, longest = time.monotonic() + given.minutes * 60, 0, 0, 0, 0, 0.0
    while time.monotonic() < end and kills < given.kills:
        seed, begun = given.seed + done, time.monotonic()
        folder = pathlib.Path(tempfile.mkdtemp(prefix="tutti-kills-"))
        killing = Killing(given.worker, seed, folder)
        try:
            killing.run()
            left = box.left_behind(folder, "store")
            demand(not left, f"left behind: {left}")
        except Wrong as what:
            wrong += 1
            print(f"WRONG, seed {seed}, {killing.describe()}: {what}", flush=True)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        done, kills, newcomers = done + 1, kills + killing.kills, newcomers + killing.newcomers
        longest = max(longest, time.monotonic() - begun)
        if wrong and not given.keep_going:
            break
    print(f"{kills} kills and {newcomers} newcomers in {done} jobs, the longest of {longest:.1f} s; {wrong} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
