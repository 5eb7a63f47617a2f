#!/usr/bin/env python3
"""Counts the test cases of the last `meson test` in a build folder.

usage: tests/count.py <build folder>

Prints one line to standard output, "<passed> <failed> <skipped>", and to standard error the cases
that failed or were skipped, with the reason. Cases are those of GoogleTest (its XML) and of Python's
unittest (its closing lines); any other test is one case. A failure that meson reports but no case
does (a crash, a timeout, a leak found at exit) counts as one more failed case.
"""

import json
import pathlib
import re
import sys
import xml.etree.ElementTree as xml


def gtest_cases(path):
    """Yields (name, outcome, reason) for each case of a GoogleTest XML report."""
    for case in xml.parse(path).iter("testcase"):
        name = f"{case.get('classname')}.{case.get('name')}"
        failure, skip = case.find("failure"), case.find("skipped")
        if failure is not None:
            yield name, "failed", failure.get("message", "")
        elif case.get("status") == "notrun":
            yield name, "skipped", "disabled"
        elif skip is not None:
            yield name, "skipped", skip.get("message", "")
        else:
            yield name, "passed", ""


def unittest_cases(text):
    """Yields (name, outcome, reason) for each case of `python3 -m unittest --verbose`'s output."""
    for name, outcome in re.findall(r"^(\w+ \([\w.]+\)).*? \.\.\. ?(ok|FAIL|ERROR|skipped .*)$", text, re.M):
        if outcome == "ok":
            yield name, "passed", ""
        elif outcome.startswith("skipped"):
            yield name, "skipped", outcome[len("skipped "):]
        else:
            yield name, "failed", ""


def cases_of(test, folder):
    """Returns the cases of a line of meson's testlog.json."""
    name = test["name"].rpartition(" / ")[2]  # meson puts project and suite before it
    report = folder / f"{name}.xml"
    cases = []
    if report.exists():
        cases = list(gtest_cases(report))
    elif re.search(r"^Ran \d+ tests? in ", test.get("stderr", ""), re.M):
        cases = list(unittest_cases(test["stderr"]))
    passed = test["result"] in ("OK", "SKIP", "EXPECTEDFAIL")
    if not cases and test["result"] in ("OK", "SKIP"):
        cases = [(name, "passed" if test["result"] == "OK" else "skipped", "")]
    if not passed and not any(outcome == "failed" for _, outcome, _ in cases):
        cases.append((name, "failed", f"{test['result']}, exit status {test['returncode']}"))
    return cases


def main(folder):
    totals = {"passed": 0, "failed": 0, "skipped": 0}
    for line in (folder / "meson-logs" / "testlog.json").read_text().splitlines():
        test = json.loads(line)
        for name, outcome, reason in cases_of(test, folder):
            totals[outcome] += 1
            if outcome != "passed":
                print(f"{outcome}: {test['name']}: {name}: {' '.join(reason.split())[:300]}", file=sys.stderr)
    print(totals["passed"], totals["failed"], totals["skipped"])


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
