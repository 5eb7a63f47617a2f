#!/usr/bin/env python3
"""Runs the matrix of faults (table.py) over real processes, and prints it as measured.

usage: tests/faults/matrix.py <worker> [--only <pattern>] [--times <n>] [--seed <n>] [--table]

The exit status is 1 if a cell ends otherwise than the table says, and 77 if no box can be made here.
"""

import argparse
import dataclasses
import functools
import os
import pathlib
import random
import re
import shutil
import sys
import tempfile
import time

import box
import job as jobs
import strikes
import table

BOUND_S = 15  # from the fault to the last error, where a deadline of the table's own is far below it
DEADLINES_MS = {"TUTTI_TIMEOUT_MS": "1500", "TUTTI_STARTUP_TIMEOUT_MS": "3000", "WORKER_PATIENCE_MS": "1500",
                "WORKER_GROW_MS": "1500"}
LONG_MS = {"TUTTI_TIMEOUT_MS": "30000", "TUTTI_STARTUP_TIMEOUT_MS": "30000", "WORKER_PATIENCE_MS": "20000"}


class Otherwise(Exception):
    """A cell ended otherwise than the table says."""


def demand(what, text):
    if not what:
        raise Otherwise(text)


@dataclasses.dataclass
class Result:
    kinds: set  # of the others' first errors
    seconds: float  # until the last of them had it
    skipped: str = ""
    story: str = ""


class Run:
    """One job of one cell."""

    def __init__(self, worker, cell, draw, folder):
        self._worker, self._cell, self._row, self._draw, self._folder = worker, cell, cell.row, draw, folder
        self._fault = strikes.FAULTS[cell.row.fault]()
        self._newcomer = None

    def run(self):
        fault, cell = self._fault, self._cell
        settings = dict(DEADLINES_MS if "timeout" in self._row.others else LONG_MS, **fault.settings)
        if fault.file_store:
            name = fault.file_store if isinstance(fault.file_store, str) else "store"
            settings["WORKER_STORE"] = str(self._folder / name)
        if "TUTTI_TRACE_DIR" in settings:
            settings["TUTTI_TRACE_DIR"] = str(self._folder / settings["TUTTI_TRACE_DIR"])
        after = "shrink" if self._row.then in (table.SHRINKS, table.EITHER) else "end"
        with fault.around(self._folder), jobs.Job(self._worker, self._folder, 3, cell.moment, after, settings,
                                                  cell.transport, fault.machines(), fault.victim if fault.limited else None) as job:
            try:
                self._job = job
                self._begin()
                result = self._judge()
                fault.over = lambda _: None
                result.story = job.story()
                return result
            except Otherwise as otherwise:
                raise Otherwise(f"{otherwise}\n{job.story()}") from None
            finally:
                fault.over(job)

    def _others(self):
        return [rank for rank in self._job.ranks if rank.number != self._fault.victim]

    def _victim(self):
        return self._job.ranks[self._fault.victim]

    def _begin(self):
        job, fault, moment = self._job, self._fault, self._cell.moment
        for rank in job.ranks:
            demand(rank.wait_for("begin"), f"rank {rank.number} did not begin")
        if moment == "start-up":
            fault.before(job)
            job.tell("go")
            time.sleep(self._draw.uniform(0, 0.02))
            self._strike()
            return
        job.tell("go")
        for rank in job.ranks:
            demand(rank.wait_for("in$"), f"rank {rank.number} did not come to the moment")
        if moment in ("idle", "close"):
            first = self._draw.random() < 0.5 and moment == "close"
            if first:
                job.tell("go")
            self._strike()
            if not first:
                job.tell("go")
        else:
            time.sleep(self._draw.uniform(0, 0.05))
            self._strike()
        if moment == "grow":
            self._newcomer = job.newcomer("3000" if self._row.then == table.ENDS else "60000")

    def _strike(self):
        self._struck = time.monotonic()
        self._fault.strike(self._job)

    def _judge(self):
        then = self._row.then
        if then == table.EITHER:
            return self._either()
        if then == table.GOES_ON:
            return self._goes_on()
        kinds, latest = self._errors()
        if then == table.SHRINKS:
            self._shrinks()
        else:
            ended = max(self._ended(rank) for rank in self._others())
            latest = latest if kinds else ended
        self._fault.over(self._job)
        self._end()
        return Result(kinds, latest - self._struck)

    def _either(self):
        """All go on, or the others without rank 1, which has then got an error."""
        if self._newcomer:
            self._have_newcomer()
        self._victim().wait_for("error", 0.5)
        self._job.tell("stop")
        parties = set()
        for rank in self._others():
            last = rank.wait_for(r"last([ \d]*)")
            demand(last, f"rank {rank.number} did not go on")
            parties.add(frozenset(map(int, last.group(1).split())))
        self._victim().wait_for("ended")
        killed = self._victim().status() not in (0, None)  # without memory it may not even get to its error
        failed = killed or bool(self._victim().all("error"))
        expected = {rank.number for rank in (self._others() if failed else self._job.ranks)}
        demand(parties == {frozenset(expected)}, f"they went on as {[sorted(party) for party in parties]}")
        kinds, latest = self._errors() if failed else (set(), self._struck)
        if killed:
            self._row = dataclasses.replace(self._row, victim=None)
        elif not failed:
            self._row = dataclasses.replace(self._row, others="", victim="")
        self._end()
        return Result(kinds, latest - self._struck)

    def _errors(self):
        """Returns the kinds of the others' first errors, and when the last came."""
        kinds, latest, named = set(), self._struck, {}
        for rank in self._others():
            if not self._row.others or rank is self._newcomer:
                continue
            if self._cell.moment in table.MAKING:  # it may be left out without an error
                rank.wait_for("error|shrunk|grown")
            elif self._row.others != ".*":
                demand(rank.wait_for("error"), f"rank {rank.number} got no error")
            else:
                rank.wait_for("error|ended")
            for when, match in rank.all(r"error (\w+): (.*)")[:1]:
                kind, text = match.groups()
                demand(re.fullmatch(self._row.others, kind), f"rank {rank.number} got {kind}")
                named[rank.number] = re.search(rf"\b(ranks?|deadline:) (\d+, )*{self._fault.victim}\b", text)
                demand(named[rank.number] or self._row.named != "by all",
                       f"rank {rank.number}'s error does not name rank {self._fault.victim}")
                kinds.add(kind)
                latest = max(latest, when)
        demand(any(named.values()) or not named or self._row.named == "by none", f"no error names rank {self._fault.victim}")
        demand(latest - self._struck < BOUND_S, f"it took {latest - self._struck:.1f} s")
        return kinds, latest

    def _ended(self, rank):
        demand(rank.wait_for("ended"), f"rank {rank.number} did not end")
        when = rank.all("ended")[0][0]
        demand(when - self._struck < BOUND_S, f"rank {rank.number} took {when - self._struck:.1f} s to end")
        return when

    def _shrinks(self):
        if self._newcomer:
            self._have_newcomer()
        elif self._cell.moment == "shrink":
            time.sleep(0.2)
        self._job.tell("stop", but=[self._victim()])
        members = {rank.number for rank in self._others()}
        for rank in self._others():
            last = rank.wait_for(r"last([ \d]*)")
            demand(last, f"rank {rank.number} did not go on")
            demand(set(map(int, last.group(1).split())) == members, f"rank {rank.number} went on with{last.group(1)}")

    def _have_newcomer(self):
        """Lets the others grow until the newcomer is in."""
        end = time.monotonic() + jobs.PATIENCE_S
        while not self._newcomer.wait_for("joined", 0.3):
            demand(time.monotonic() < end and self._newcomer.status() is None, "the newcomer did not join")
            self._others()[0].tell("grow")

    def _goes_on(self):
        everyone = self._job.ranks
        if self._newcomer:
            demand(self._newcomer.wait_for("joined"), "the newcomer did not join")
        for rank in self._job.ranks:
            demand(rank.wait_for("in$"), f"rank {rank.number} did not start")
        time.sleep(0.5)
        self._fault.over(self._job)
        self._fault.over = lambda _: None
        self._job.tell("stop")
        for rank in everyone:
            last = rank.wait_for(r"last([ \d]*)")
            demand(last and set(map(int, last.group(1).split())) == {one.number for one in everyone},
                   f"rank {rank.number} did not go on with all")
        self._end()
        return Result(set(), 0)

    def _end(self):
        victim = self._victim()
        dead = self._row.victim is None
        for rank in self._job.ranks:
            rank.tell("stop")
            if rank is victim and dead:
                continue
            demand(rank.wait_for("ended"), f"rank {rank.number} did not end")
            rank.wait_for("status")
            demand(rank.status() == 0, f"rank {rank.number} ended with status {rank.status()}")
            if rank is not victim and not self._row.others:
                demand(not rank.all("error"), f"rank {rank.number} got an error")
        if dead:
            return
        if isinstance(self._fault, strikes.Damage) and self._fault.flips:
            demand(victim.all("flipped") or self._cell.moment == "close", "no bit was changed")
        errors = [match.groups() for _, match in victim.all(r"error (\w+): (.*)")]
        if not self._row.victim:
            demand(not errors, "rank 1 got an error")
        else:
            demand(errors, "rank 1 got no error")
            demand(re.fullmatch(self._row.victim, errors[0][0]), f"rank 1 got {errors[0][0]}")


@functools.cache
def is_sanitized(worker):
    program = pathlib.Path(worker).read_bytes()
    return b"__asan_init" in program or b"__tsan_init" in program


def run_cell(worker, cell, draw):
    """Returns the Result of one run of a cell, or raises Otherwise."""
    fault = strikes.FAULTS[cell.row.fault]
    missing = fault.why_not()
    if not missing and fault.limited and is_sanitized(worker):
        missing = "a worker without a sanitizer, which needs memory, descriptors and threads of its own"
    if missing:
        return Result(set(), 0, missing)
    folder = pathlib.Path(tempfile.mkdtemp(prefix="tutti-faults-"))
    try:
        result = Run(worker, cell, draw, folder).run()
        left = box.left_behind(folder, "store|disk")
        demand(not left, f"left behind: {left}")
        return result
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def text_of(cell, results):
    """A cell of the table in docs/faults.md."""
    if results[0].skipped:
        return "not run"
    kinds = sorted(set().union(*(result.kinds for result in results)))
    what = " or ".join(f"`{kind}`" for kind in kinds)
    if what:
        slowest = max(result.seconds for result in results)
        what += f" {slowest * 1000:.0f} ms" if slowest < 1 else f" {slowest:.1f} s"
        return what + (", goes on without" if cell.row.then in (table.SHRINKS, table.EITHER) else "")
    return {table.EITHER: "goes on", table.SHRINKS: "goes on without", table.ENDS: "ends well", table.GOES_ON: "goes on"}[cell.row.then]


def print_table(results):
    print("| fault | over | " + " | ".join(table.MOMENTS) + " |\n" + "|---" * (2 + len(table.MOMENTS)) + "|")
    for fault in table.faults():
        for transport in table.ALL:
            found = {cell.moment: text_of(cell, several) for cell, several in results.items()
                     if cell.row.fault == fault and cell.transport == transport}
            if found:
                words = [found.get(moment, table.why_not(fault, transport, moment)) for moment in table.MOMENTS]
                print(f"| {fault} | {transport} | " + " | ".join(words) + " |")


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("worker", type=os.path.abspath)
    arguments.add_argument("--only", default="", help="a pattern of cells, each of which is called 'fault / transport / moment'")
    arguments.add_argument("--part", action="store_true", help="a few cells of each fault, as in the tests")
    arguments.add_argument("--times", type=int, default=1)
    arguments.add_argument("--seed", type=int, default=int(time.time()))
    arguments.add_argument("--table", action="store_true")
    arguments.add_argument("--story", action="store_true", help="tell of each cell what its ranks said")
    given = arguments.parse_args()
    if box.INSIDE not in os.environ and (missing := box.why_no_box()):
        print("missing:", missing, file=sys.stderr)
        return 77
    box.enter()
    draw, results, wrong, part = random.Random(given.seed), {}, 0, table.part()
    for cell in table.cells():
        if not re.search(given.only, cell.name) or (given.part and cell not in part):
            continue
        for _ in range(given.times):
            begun = time.monotonic()
            try:
                result = run_cell(given.worker, cell, draw)
                results.setdefault(cell, []).append(result)
                print(result.story if given.story else "", end="")
                what = f"skipped, for want of {result.skipped}" if result.skipped else text_of(cell, [result])
            except Otherwise as otherwise:
                wrong += 1
                what = f"WRONG: {otherwise}"
            print(f"{cell.name}: {what} [{time.monotonic() - begun:.1f} s]", flush=True)
    if given.table:
        print_table(results)
    print(f"{sum(map(len, results.values()))} runs of {len(results)} cells as the table says, {wrong} otherwise, seed {given.seed}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
