#!/usr/bin/env python3
"""Writes the stacks of all threads of a process, and of all processes that it has started, to standard error.

usage: tests/watchdog/stacks.py --show|--kill|--watch <process> [<why>]

With --kill, it then ends the processes that the process has started, but not the process itself. With --watch, it reads
lines "<seconds> <what>" from standard input, each of which replaces the one before, and ends when the process does. If the
time of a line passes, it does what --kill does and ends the process, too. Processes that run Python are ended by SIGABRT
first, so that their faulthandler writes where their Python code is.
"""

import os
import pathlib
import select
import shutil
import signal
import subprocess
import sys
import time

TOOLS = {  # programs that unwind a process; in stripped programs, both miss the symbols but not the stacks
    "eu-stack": ["-p"],
    "gdb": ["-nx", "-batch", "-iex", "set debuginfod enabled off", "-ex", "thread apply all backtrace", "-p"],
}
MARK = "TUTTI_TEST_WATCHED"
PATIENCE_S, ALL_S, MOST = 10, 60, 32  # the time for one process, the time for all, and the number of processes


def say(text):
    sys.stderr.write(text.rstrip("\n") + "\n")
    sys.stderr.flush()


def read(pid, name):
    try:
        return pathlib.Path(f"/proc/{pid}/{name}").read_bytes().decode(errors="replace")
    except OSError:  # the process has just ended, or belongs to another user
        return ""


def processes():
    """Returns the parent of each process, without this process and zombies."""
    found = {}
    for entry in os.listdir("/proc"):
        fields = read(entry, "stat").rpartition(")")[2].split() if entry.isdigit() else []
        if fields and fields[0] != "Z" and int(entry) != os.getpid():
            found[int(entry)] = int(fields[1])
    return found


def started_by(root):
    """Returns the descendants of a process, and the processes with its mark whose parents have ended."""
    parents = processes()
    family = {root}
    family |= {pid for pid in parents if f"{MARK}={root}" in read(pid, "environ").split("\0")}
    for _ in parents:
        more = {pid for pid, parent in parents.items() if parent in family} - family
        if not more:
            break
        family |= more
    return sorted(family - {root, os.getpid()})


def tool():
    return next(([path, *options] for name, options in TOOLS.items() if (path := shutil.which(name))), None)


def show(pid, command):
    state = next((line.split("\t")[1] for line in read(pid, "status").splitlines() if line.startswith("State:")), "ended")
    say(f"watchdog: process {pid}, {state}: {read(pid, 'cmdline').replace(chr(0), ' ')[:200]}")
    quiet = dict(os.environ, DEBUGINFOD_URLS="")
    try:
        done = subprocess.run([*command, str(pid)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True, errors="replace", timeout=PATIENCE_S, check=False, env=quiet)
        say(done.stdout)
    except subprocess.TimeoutExpired as late:
        say((late.stdout or b"").decode(errors="replace") + f"watchdog: {command[0]} did not end")


def show_all(root, why):
    family = started_by(root)
    say(f"\nwatchdog: {why}; the stacks of process {root} and of {len(family)} that it has started:")
    command, end = tool(), time.monotonic() + ALL_S
    if command is None:
        say(f"watchdog: none of {', '.join(TOOLS)} is installed; `./dev setup` installs elfutils, which has eu-stack")
        return family
    for shown, pid in enumerate([root, *family]):
        if shown == MOST or time.monotonic() > end:
            say(f"watchdog: and {1 + len(family) - shown} more processes")
            break
        show(pid, command)
    return family


def kill(pids, number):
    for pid in pids:
        try:
            os.kill(pid, number)
        except OSError:  # the process has ended
            pass


def has_ended(pid):
    """Returns whether the process has ended, which is also true of a zombie, whose parent has not waited for it yet."""
    return read(pid, "stat").rpartition(")")[2].split()[:1] in ([], ["Z"])


def end_all(pids):
    """Ends processes, those that run Python one after the other, because each writes its stacks and they would mix."""
    end = time.monotonic() + 5
    for pid in pids:
        if "python" not in os.path.basename(read(pid, "cmdline").split("\0")[0]):
            continue
        kill([pid], signal.SIGABRT)
        while not has_ended(pid) and time.monotonic() < end:
            time.sleep(0.02)
    kill(pids, signal.SIGKILL)


def watch(root):
    try:
        process, lines = os.pidfd_open(root), sys.stdin.fileno()
    except ProcessLookupError:  # the process has ended already
        return
    end, what, text = None, "", b""
    while True:
        ready, _, _ = select.select([process, lines], [], [], None if end is None else max(0, end - time.monotonic()))
        if process in ready:
            return
        if lines in ready:
            got = os.read(lines, 1 << 16)
            if not got:
                return
            *whole, text = (text + got).split(b"\n")
            if whole:
                seconds, _, what = whole[-1].decode(errors="replace").partition(" ")
                end = time.monotonic() + float(seconds)
        elif end is not None and time.monotonic() >= end:
            end_all([root, *show_all(root, what)])  # the root first: the end of its children would let it go on
            return


def main(how, pid, why="somebody asks"):
    if how == "--watch":
        watch(int(pid))
        return
    family = show_all(int(pid), why)
    if how == "--kill":
        end_all(family)


if __name__ == "__main__":
    main(*sys.argv[1:])
