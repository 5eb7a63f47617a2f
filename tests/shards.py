#!/usr/bin/env python3
"""Runs the cases of a GoogleTest program side by side, in several processes.

usage: tests/shards.py <number> <program> [--gtest_output=xml:<file>] [argument of the program ...]

The outputs of the processes are printed one after the other, and their reports are merged into the requested one.
The exit status is 0 if that of all processes is.
"""

import os
import pathlib
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as xml

OUTPUT = "--gtest_output=xml:"


def merge(reports, path):
    """Writes the suites of all reports, and the sums of their counts, into one report."""
    roots = [xml.parse(report).getroot() for report in reports if report.exists()]
    if not roots:
        return
    for root in roots[1:]:
        roots[0].extend(list(root))
        for count in ("tests", "failures", "disabled", "errors"):
            roots[0].set(count, str(int(roots[0].get(count, 0)) + int(root.get(count, 0))))
    roots[0].set("time", str(max(float(root.get("time", 0)) for root in roots)))
    xml.ElementTree(roots[0]).write(path, encoding="UTF-8", xml_declaration=True)


def main(number, program, arguments):
    wanted = [argument[len(OUTPUT):] for argument in arguments if argument.startswith(OUTPUT)]
    arguments = [argument for argument in arguments if not argument.startswith(OUTPUT)]
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        reports = [folder / f"{index}.xml" for index in range(number)]
        outputs = [open(folder / f"{index}.txt", "w+b") for index in range(number)]
        running = []
        for index in range(number):
            environment = dict(os.environ, GTEST_TOTAL_SHARDS=str(number), GTEST_SHARD_INDEX=str(index))
            running.append(subprocess.Popen([program, *arguments, f"{OUTPUT}{reports[index]}"], env=environment,
                                            stdout=outputs[index], stderr=subprocess.STDOUT))
        statuses = [process.wait() for process in running]
        for output in outputs:
            output.seek(0)
            sys.stdout.buffer.write(output.read())
        if wanted:
            merge(reports, wanted[0])
    for index, status in enumerate(statuses):
        if status != 0:
            print(f"part {index + 1} of {number} of {program} ended with status {status}")
    return max(abs(status) for status in statuses)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2], sys.argv[3:]))
