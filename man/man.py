#!/usr/bin/env python3
"""Writes a tool's man page from what its --help prints, so that the two cannot differ.

usage: man/man.py <tool> <version>      the page goes to standard output

The tools print, in this order: a sentence; a usage line; groups of positionals and options, each
under a line that ends with a colon, and each option with its text beside or below it; then
paragraphs, in which indented lines are commands to be shown unchanged.
"""

import pathlib
import re
import subprocess
import sys

TOOLS = ["tutti-info", "tutti-perf", "tutti-plan", "tutti-run", "tutti-trace"]
SECTIONS = {"Positionals:": ".SH ARGUMENTS", "Options:": ".SH OPTIONS", "Subcommands:": ".SH COMMANDS"}


def roff(text):
    """Escapes text, so that roff shows it literally: backslashes, typed hyphens, and lines that would be requests."""
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return "\\&" + text if text.startswith((".", "'")) else text


def is_group(lines, at):
    follows = lines[at + 1] if at + 1 < len(lines) else ""
    return lines[at] in SECTIONS or (lines[at].endswith(":") and follows.startswith("  -"))


def group(lines):
    """Yields a group's heading and its entries, in which only the option's names are bold."""
    yield SECTIONS.get(lines[0], f".SS {roff(lines[0].rstrip(':'))}")
    for line in lines[1:]:
        if re.match(r"  \S", line):
            head, *text = re.split(r"  +", line.strip(), maxsplit=1)
            names, _, takes = head.partition(" ")
            yield ".TP"
            yield f"\\fB{roff(names)}\\fR {roff(takes)}".rstrip()
        else:
            text = [line.strip()]
        yield from map(roff, text)


def notes(lines):
    """Yields paragraphs as text, and indented lines unchanged."""
    shown = False
    for line in lines:
        if line.startswith("  ") != shown:
            shown = not shown
            yield ".PP\n.nf\n.RS" if shown else ".RE\n.fi"
        yield roff(line.removeprefix("  ").rstrip()) if line.strip() else ".PP"
    if shown:
        yield ".RE\n.fi"


def blocks(lines):
    """Returns the runs of lines that are not empty, as pairs (first, end)."""
    filled = [bool(line.strip()) for line in lines] + [False]
    starts = [i for i in range(len(lines)) if filled[i] and (i == 0 or not filled[i - 1])]
    return [(start, filled.index(False, start)) for start in starts]


def page(tool, version, help_text):
    lines = help_text.splitlines()
    usages = [i for i, line in enumerate(lines) if re.match(rf"Usage: \S*{tool} ", line)]
    first, best = usages[0], usages[-1]  # a usage line of the tool's own, if there is one, comes after CLI11's
    summary = " ".join(lines[:first]).strip()
    yield f'.TH {tool.upper()} 1 "" "tutti {version}" "tutti"'
    yield f".SH NAME\n{roff(tool)} \\- {roff(summary[0].lower() + summary[1:].rstrip('.'))}"
    yield f".SH SYNOPSIS\n\\fB{roff(tool)}\\fR {roff(lines[best].split(' ', 2)[2])}"
    for usage in usages:
        lines[usage] = ""
    lines[:first] = [""] * first
    rest = len(lines)
    for start, end in blocks(lines):
        if not is_group(lines, start):
            rest = start
            break
        yield from group(lines[start:end])
    yield ".SH NOTES"
    yield from notes(lines[rest:])
    yield ".SH SEE ALSO\n" + ", ".join(f"\\fB{roff(name)}\\fR(1)" for name in TOOLS if name != tool)


if __name__ == "__main__":
    tool = pathlib.Path(sys.argv[1])
    shown = subprocess.run([tool, "--help"], check=True, capture_output=True, text=True)
    print(*page(tool.name, sys.argv[2], shown.stdout), sep="\n")
