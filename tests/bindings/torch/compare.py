#!/usr/bin/env python3
"""Compares two runs of suite.py: the second must pass every test that the first passes, or give a reason.

usage: compare.py <gloo's json> <tutti's json>
"""

import collections
import json
import sys


def main(reference, own):
    runs = [json.load(open(path, encoding="utf-8")) for path in (reference, own)]
    for path, run in zip((reference, own), runs):
        count = collections.Counter(outcome for outcome, _ in run.values())
        print(f"{path}: {count['passed']} passed, {count['failed']} failed, {count['skipped']} skipped")
    behind = [name for name, (outcome, _) in runs[0].items() if outcome == "passed" and runs[1][name][0] != "passed"]
    ahead = [name for name, (outcome, _) in runs[1].items() if outcome == "passed" and runs[0][name][0] != "passed"]
    for name in behind:
        print(f"passes with the first alone: {name}: {' '.join(runs[1][name][1].split())[-200:]}")
    for name in ahead:
        print(f"passes with the second alone: {name}")
    return 1 if any(outcome == "failed" for outcome, _ in runs[1].values()) else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
