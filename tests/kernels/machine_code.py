#!/usr/bin/env python3
"""Reads the machine code of the kernels, and checks it: machine_code.py FATBIN CUOBJDUMP

Each kernel keeps to its registers and spills none; those that move elements load and store 16 bytes at a time."""
import collections
import os
import pathlib
import re
import subprocess
import sys

REGISTERS = 128  # of 512 threads, which are the most of a block: 65536 in a multiprocessor
GENERATIONS = ("sm_80", "sm_90", "sm_100")


def lines_of(tool, option, binary):
    # It looks for nvdisasm, which lies beside it.
    environment = dict(os.environ, PATH=f"{pathlib.Path(tool).parent}:{os.environ['PATH']}")
    done = subprocess.run([tool, option, binary], env=environment, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def by_kernel(lines, pattern):
    """The matches of a pattern by generation and kernel."""
    found, generation, kernel = collections.defaultdict(list), None, None
    for line in lines:
        if match := re.search(r"arch = (\S+)", line):
            generation = match[1]
        elif match := re.search(r"Function\s*:?\s+(\w+)", line):
            kernel = match[1]
        if match := re.search(pattern, line):
            found[generation, kernel].append(match)
    return found


def main(binary, tool):
    usage = by_kernel(lines_of(tool, "-res-usage", binary), r"REG:(\d+) STACK:(\d+) .*LOCAL:(\d+)")
    accesses = by_kernel(lines_of(tool, "-sass", binary), r"\b(LD|ST|LDG|STG)\.E\.(?:\w+\.)*128\b|\b(STL|LDL)\b")
    wrong = []
    for (generation, kernel), (used, *more) in sorted(usage.items()):
        kinds = collections.Counter((match[1] or match[2])[:3] for match in accesses[generation, kernel])
        wide = kinds["LD"] + kinds["LDG"], kinds["ST"] + kinds["STG"]
        print(f"{generation:7} {kernel:22} {used[1]:>4} registers, {wide[0]:4} loads and {wide[1]:3} stores of 16 bytes")
        if more or int(used[1]) > REGISTERS or used[2] != "0" or used[3] != "0" or kinds["STL"] + kinds["LDL"] > 0:
            wrong.append(f"{kernel} on {generation} spills, or takes more than {REGISTERS} registers: {used[0]}")
        if kernel.startswith("tutti_run_") and 0 in wide:
            wrong.append(f"{kernel} on {generation} does not load and store 16 bytes at a time")
    kernels = {kernel for _, kernel in usage}
    for generation in GENERATIONS:
        if missing := kernels - {kernel for other, kernel in usage if other == generation}:
            wrong.append(f"there is no code for {generation} of {', '.join(sorted(missing))}")
    if len(kernels) < 20:
        wrong.append(f"only {len(kernels)} kernels were found")
    print("\n".join(wrong))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
