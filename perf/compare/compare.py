#!/usr/bin/env python3
"""Compares tutti with other libraries: f32, shared memory or machines in a box, by one method.

The host of a virtual machine moves its cores about, which changes every time by up to a factor of four. So
the libraries take turns, the one-way time of a cache line is measured before and after every single
measurement, and only measurements of one phase are compared.
"""
import argparse
import contextlib
import json
import os
import pathlib
import platform
import sys
import tempfile
import time

import plot
from libraries import LIBRARIES, ROOT, Failure, machine_limits, run_all
from machines import Machines
from results import EXCHANGE, KI, LIMIT, MI, ONE_WAY, OURS, Cell, behind, check, limit_of, phase_of, summarize, \
    table, to_baseline, wants_more

OPERATIONS = ["all_reduce", "all_reduce_in_place", "reduce_scatter", "all_gather", "all_to_all", "broadcast",
              "reduce", "send_recv", "barrier"]
FULL_SIZES = [8, KI, 4 * KI, 16 * KI, 64 * KI, 256 * KI, MI, 16 * MI, 64 * MI, 256 * MI]
SHORT_SIZES, OTHERS_SIZE = [8, 64 * KI, MI, 16 * MI], 64 * KI
BASELINE = ROOT / "perf" / "baseline.json"


def short_cells():
    """Returns all sizes of all-reduce, and one size of every other operation."""
    cells = [Cell("all_reduce", ranks, size) for ranks in (2, 4) for size in SHORT_SIZES]
    return cells + [Cell(operation, 2, 0 if operation == "barrier" else OTHERS_SIZE)
                    for operation in OPERATIONS if operation != "all_reduce"]


def machines_cells(args):
    """Returns cells with one rank and with two ranks on each machine."""
    short = not (args.full or args.operations or args.sizes or args.ranks)
    operations = args.operations or (["all_reduce"] if short else OPERATIONS)
    sizes = args.sizes or [size for size in ([8, KI, 64 * KI, MI, 16 * MI] if short else FULL_SIZES)
                           if args.full or size <= 16 * MI]
    cells = [Cell(operation, ranks, size) for ranks in args.ranks or [args.machines, 2 * args.machines]
             for operation in operations for size in ([0] if operation == "barrier" else sizes)]
    return cells + ([Cell("send_recv", args.machines, 8)] if short else [])


def chosen_cells(args):
    if args.machines > 1:
        return machines_cells(args)
    if not (args.full or args.operations or args.sizes or args.ranks):
        return short_cells()
    return [Cell(operation, ranks, size)
            for ranks in args.ranks or ([2, 4, 8] if args.full else [2, 4])
            for operation in args.operations or OPERATIONS
            for size in ([0] if operation == "barrier" else args.sizes or FULL_SIZES)]


def chosen_libraries(args):
    """Returns the libraries that are installed, tutti first, and lines about those that are not."""
    fit = [library for library in LIBRARIES if library.runs(args.machines)]
    short = ["openmpi"] if args.machines == 1 else ["bare", "openmpi_tcp"]
    names = args.peers or ([library.name for library in LIBRARIES] if args.full else short)
    here, missing = [], []
    for library in fit:
        if library.name != OURS and library.name not in names:
            continue
        if packages := library.missing():
            missing.append(f"{library.title} is missing: install {packages}")
        else:
            here.append(library)
    return here, missing


def say_where(text):
    """Shows progress on a terminal."""
    if sys.stderr.isatty():
        print(f"\r{text:60}\r", end="", file=sys.stderr, flush=True)


def measurements(out):
    """Returns what a program has printed, without the lines that its library writes (oneCCL's warnings) and a last line
    that was cut short."""
    return [json.loads(line) for line in out.splitlines(keepends=True) if line[0] == "{" and line[-1] == "\n"]


class Measuring:
    """Measures all cells with all libraries, in rounds."""

    def __init__(self, libraries, args, machines=None):
        self.machines = machines  # None: this machine
        self.build, self.rounds, self.limit_s = args.build, args.rounds, args.timeout
        self.suffix = "+written" if args.written else ""
        self.programs = {library: library.build(args.build) for library in libraries}
        self.cores = len(os.sched_getaffinity(0))
        if self.cores < 2:
            raise Failure("two cores are needed")
        self.samples, self.failures = [], {}

    def run(self, cells):
        """Ends when each cell has enough rounds of one phase, or after twice the wanted number of rounds."""
        sizes = sorted({limit.size for cell in cells if self.machines is None and (limit := limit_of(cell))})
        for number in range(2 * self.rounds):
            left = self.unfinished(cells)
            if not left:
                break
            if number < self.rounds:
                self.measure_limits(sizes, number)
            for (operation, ranks), of_sizes in left.items():
                say_where(f"round {number + 1}: {operation}, {ranks} ranks")
                # The library that goes first changes from round to round, so that the order gives none an advantage.
                turn = number % len(self.programs)
                order = [*self.programs][turn:] + [*self.programs][:turn]
                for library in order:
                    self.measure(library, operation, ranks, of_sizes, number)
        say_where("")

    def unfinished(self, cells):
        """Returns {(operation, ranks): sizes}; one start of the ranks measures all of these sizes."""
        left = {}
        for cell in cells:
            # A library that fails in an operation, or does not offer it, is no longer measured in it.
            sides = [library.name for library in self.programs
                     if library.serves(cell.ranks) and (library.name, cell.operation, cell.ranks) not in self.failures]
            if wants_more(self.samples, cell, sides, self.rounds):
                left.setdefault((cell.operation, cell.ranks), []).append(cell.size)
        return left

    def measure(self, library, operation, ranks, sizes, number):
        key = (library.name, operation, ranks)
        if key in self.failures or not library.serves(ranks):
            return
        where = (ranks, ranks > self.cores, self.build)
        starts = library.across(self.machines, *where) if self.machines else [library.launch(*where)]
        with tempfile.TemporaryDirectory(prefix="compare-") as folder:
            box = ["env", f"COMPARE_MACHINES={self.machines.count}"] if self.machines else []
            program = [*box, self.programs[library], folder, operation + self.suffix, *sizes]
            try:
                out = run_all([[*words, *program] for words in starts], self.limit_s)
                if not measurements(out):
                    self.failures[key] = "does not offer it"
            except Failure as failure:
                out = failure.output
                self.failures[key] = str(failure)
        for measurement in measurements(out):
            self.samples.append({"side": library.name, "round": number, "operation": operation, "ranks": ranks,
                                 **measurement})

    def measure_limits(self, sizes, number):
        for size in sizes:
            one_way_ns, *times = machine_limits(self.build, size, self.limit_s)
            for kind, time_us in zip((EXCHANGE, ONE_WAY), times):
                self.samples.append({"side": LIMIT, "round": number, "operation": kind, "ranks": 2, "size": size,
                                     "time_us": time_us, "one_way_ns": [one_way_ns]})


def machine():
    model = next((line.split(":", 1)[1].strip() for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines()
                  if line.startswith("model name")), platform.machine())
    return {"processor": model, "cores": len(os.sched_getaffinity(0)), "kernel": platform.release()}


def head(about, load, libraries, args):
    versions = [library.version_text() for library in libraries if library.name != OURS]
    return [f"# {about['processor']}, {about['cores']} cores, Linux {about['kernel']}, load {load:.1f} at the start",
            f"# {'; '.join(dict.fromkeys(versions))}",
            *([f"# {args.machines} machines in a box: network namespaces and veth; ranks dealt out "
               f"{'by turns' if args.by_turns else 'machine by machine'}"] if args.machines > 1 else []),
            *(["# what is sent is written before each call"] if args.written else []),
            "# f32, sum; medians of rounds of one phase. best: our time over the best peer's"]


def report(measuring, summaries, libraries, missing, machines):
    """Returns the table and the remarks below it."""
    lost = sum(1 for sample in measuring.samples if not phase_of(sample))
    return "\n".join([
        table(summaries, [library.name for library in libraries], machines), "",
        f"{len(measuring.samples)} measurements, {lost} discarded since the phase changed meanwhile",
        *(f"{name}: {operation}, {ranks} ranks: {why}" for (name, operation, ranks), why in measuring.failures.items()),
        *missing, "", "Behind a peer:", *(behind(summaries) or ["nowhere"])])


def check_baseline(args, summaries):
    """Returns the exit status."""
    baseline = json.loads(args.baseline.read_text())["cells"]
    compared, worse, skipped = check(summaries, baseline, args.tolerance)
    print("\n".join([f"\nBaseline: {compared} ratios compared, {len(worse)} grew by more than {args.tolerance:.0%}",
                     *worse, *(f"not compared: {line}" for line in skipped)]))
    return 1 if worse or compared == 0 else 0


def save(args, about, load, measuring, summaries, libraries, text):
    args.output.parent.mkdir(parents=True, exist_ok=True)
    rows = [{**one.cell._asdict(), "phase": one.phase, "rounds": one.rounds, "one_way_ns": one.one_way_ns,
             "time_us": one.time_us, "ratios": one.ratios, "limit_us": one.limit_us} for one in summaries]
    args.output.write_text(json.dumps({"time": time.strftime("%Y-%m-%d %H:%M:%S"), "machine": about, "load": load,
                                       "summary": rows, "samples": measuring.samples}, indent=1) + "\n")
    args.output.with_suffix(".txt").write_text(text + "\n")
    print(f"\nsaved: {args.output}, with the tables beside it as .txt")
    titles = {library.name: library.title for library in libraries}
    subtitle = f"f32; {about['processor']}, {about['cores']} cores, load {load:.1f}"
    if picture := plot.to_svg(summaries, titles, subtitle):
        args.output.with_suffix(".svg").write_text(picture)
        print(f"saved: {args.output.with_suffix('.svg')}")
    if args.save_baseline:
        cells = to_baseline(summaries)
        args.baseline.write_text(json.dumps({"machine": about, "load": load, "cells": cells}, indent=1) + "\n")
        print(f"saved: {args.baseline}")


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], epilog="Without arguments: a short version, "
                                     "beside Open MPI alone.")
    peers = [library.name for library in LIBRARIES if library.name != OURS]
    parser.add_argument("--full", action="store_true", help="all operations, sizes and peers; 2, 4 and 8 ranks")
    parser.add_argument("--rounds", type=int, help="of one phase, to compare (default 3; with --full 5)")
    parser.add_argument("--operations", nargs="+", choices=OPERATIONS, metavar="OPERATION", help=", ".join(OPERATIONS))
    parser.add_argument("--ranks", type=int, nargs="+")
    parser.add_argument("--machines", type=int, default=1, metavar="N", help="network namespaces with a cable between "
                        "them, made and removed here (root); with one rank each and two")
    parser.add_argument("--by-turns", action="store_true", help="with --machines: rank r is on machine r modulo N, as with "
                        "Slurm's --distribution=cyclic, in place of one machine's ranks after the other's")
    parser.add_argument("--sizes", type=int, nargs="+", help="bytes, of the larger buffer")
    parser.add_argument("--peers", nargs="+", choices=peers, metavar="PEER", help=f"{', '.join(peers)}; "
                        "`./dev bench` installs oneccl and ucc, from PyPI, where they are named here")
    parser.add_argument("--written", action="store_true", help="each rank writes all that it sends before each call, as "
                        "programs do (else a loop on buffers that rest, which stay in all caches)")
    parser.add_argument("--timeout", type=float, default=120, help="seconds that one start of a program may take")
    parser.add_argument("--check", action="store_true", help="fail when a ratio grew since the baseline")
    parser.add_argument("--tolerance", type=float, default=0.3, help="by which it may grow (default 0.3)")
    parser.add_argument("--save-baseline", action="store_true", help="keep this run's ratios as the baseline")
    parser.add_argument("--baseline", type=pathlib.Path, default=BASELINE)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build", help="build folder")
    parser.add_argument("--output", type=pathlib.Path, help="JSON; tables and plot go beside it (default: compare.json in "
                        "the build folder's perf)")
    args = parser.parse_args()
    if args.written and (args.check or args.save_baseline):
        parser.error("the baseline is of buffers that rest: not with --written")
    args.rounds = args.rounds or (5 if args.full else 3)
    if args.machines > 1 and (args.check or args.save_baseline):
        parser.error("the baseline is of one machine")
    if args.machines > 1 and (why := Machines.why_not()):
        parser.error(why)
    if args.by_turns and args.machines == 1:
        parser.error("--by-turns needs --machines")
    unfit = [library.name for library in LIBRARIES if library.name in (args.peers or []) and not library.runs(args.machines)]
    if unfit:
        parser.error(f"--peers {' '.join(unfit)}: measured {'between machines' if args.machines == 1 else 'on one machine'} alone")
    if any(ranks % args.machines for ranks in args.ranks or []):
        parser.error("each machine has as many ranks as the others")
    turns = "-by-turns" if args.by_turns else ""
    name = "compare.json" if args.machines == 1 else f"compare-{args.machines}-machines{turns}.json"
    args.output = args.output or args.build / "perf" / name
    return args


def main():
    args = parse()
    libraries, missing = chosen_libraries(args)
    about, load = machine(), os.getloadavg()[0]
    heading = "\n".join([*head(about, load, libraries, args), *(f"# {line}" for line in missing)])
    print(heading, flush=True)
    cells = chosen_cells(args)
    with Machines(args.machines, args.by_turns) if args.machines > 1 else contextlib.nullcontext() as machines:
        measuring = Measuring(libraries, args, machines)
        measuring.run(cells)
    summaries = [one for cell in cells if (one := summarize(measuring.samples, cell))]
    text = report(measuring, summaries, libraries, missing, args.machines)
    print(text)
    save(args, about, load, measuring, summaries, libraries, f"{heading}\n{text}")
    status = check_baseline(args, summaries) if args.check else 0
    failed = any(name == OURS for name, _, _ in measuring.failures)
    return 1 if failed else status


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Failure as failure:
        sys.exit(f"compare: {failure}")
